"""Which cases of a parametrised test `make test` runs; `make slow` runs the others."""

import pytest


def quick(cases, *, only):
    """The cases of `pytest.mark.parametrize`: those in `only` as they are, the others marked slow.

    A case is a value, or a tuple of a value for each argument.
    """
    params = []
    for case in cases:
        values = case if isinstance(case, tuple) else (case,)
        marks = () if case in only else pytest.mark.slow
        params.append(pytest.param(*values, marks=marks))
    return params
