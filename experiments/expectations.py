"""What theory expects beside what was measured: the staleness of gradients, and the seconds of an update."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from experiments.store import Result
from experiments.tables import method

if TYPE_CHECKING:
    import pandas as pd


def expected_staleness(results: Sequence[Result]) -> "pd.DataFrame":
    """A row a run: theory's mean staleness beside that of the gradients applied in the second half of its time.

    Theory is of the steady state, `figures.theory.staleness_theory`; a run begins with fresh gradients, which is why
    its first half is left out. Columns: what was swept (else `method`), `law` (what theory knows: a whole law, or by
    Little's law the mean), `theory` and `measured` (updates), `ratio` of measured to theory (NaN of 0 and 0), `n`
    (gradients).
    """
    import pandas as pd

    from experiments.figures.lateness import applied_of
    from experiments.figures.theory import staleness_theory

    rows = []
    for result in results:
        theory, applied = staleness_theory(result.config), applied_of(result.updates)
        late = applied.loc[applied["time"] > result.metrics["time"].max() / 2, "staleness"]
        mean = theory.mean if theory else math.nan
        rows.append(
            {**_called(result), "law": theory.law if theory else "", **_beside(mean, late.mean()), "n": len(late)}
        )
    return pd.DataFrame(rows)


def expected_seconds(results: Sequence[Result]) -> "pd.DataFrame":
    """A row a run: the seconds of an update by theory, beside those that it took in the second half of the run.

    Theory is `figures.closed.closed_form`; measured is `figures.iterations.seconds_per_update`, where an update is a
    server's, a round of a collective, or one step of every node of a gossip. Columns: what was swept (else `method`),
    `theory` and `measured` (s; NaN where theory has no closed form), `ratio` of measured to theory.
    """
    import pandas as pd

    from experiments.figures.iterations import expected_seconds, seconds_per_update

    rows = [{**_called(of), **_beside(expected_seconds(of), seconds_per_update(of))} for of in results]
    return pd.DataFrame(rows)


def _called(result: Result) -> dict[str, Any]:
    return dict(result.labels) or {"method": method(result)}


def _beside(theory: float, measured: float) -> dict[str, float]:
    return {"theory": theory, "measured": measured, "ratio": measured / theory if theory else math.nan}
