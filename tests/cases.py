"""Cases of parametrised tests: those in tables beside the tests, and which of all `make test` runs;
`make slow` runs the others.
"""

from pathlib import Path

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[1]


def yaml_table(file, name):
    """The table of this name beside a module of tests."""
    return YAML(typ="safe").load(Path(file).with_name(name))


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
