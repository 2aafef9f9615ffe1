"""The figure of a claim: a statistic against one of its keys, a line for each value of another."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from pandas.api.types import is_numeric_dtype
from scipy.stats import t as student

from experiments.figures.look import DASHES, MARKERS, PALETTE, drawing, legend, saved
from experiments.lines import CONFIDENCE, said

if TYPE_CHECKING:
    import pandas as pd

    from experiments.claims import Claim
    from experiments.claims.claim import Scale

SEED = "seed"
TICKS = 12


def stored(name: str, folder: str | Path = "results/claims", scale: "Scale" = "cpu") -> Figure:
    """The figure of the claim called `name`, from the numbers that its row was stored with.

    Raises:
        ValueError: no such row, or it has no figure.
    """
    from experiments.claims import claims
    from experiments.claims.ledger import figure_table, ledger

    rows = ledger(Path(folder), scale)
    table = figure_table(rows[name], Path(folder)) if name in rows else None
    if table is None:
        raise ValueError(f"{name}: expected a stored row with a figure; there are {', '.join(rows) or 'none'}")
    return picture(claims([name])[0], table)


def picture(claim: "Claim", table: "pd.DataFrame", path: str | Path | None = None) -> Figure:
    """A claim's statistic: means over seeds with the 95 % interval of the mean, of the values that are finite.

    Args:
        table: a row per setting and seed, with the statistic as `value`.

    Raises:
        ValueError: the claim has no figure, or the table not its keys.
    """
    drawn = claim.figure
    if drawn is None:
        raise ValueError(f"{claim.id} has no figure")
    for key in filter(None, (drawn.x, drawn.lines)):
        if key not in table:
            raise ValueError(f"{claim.id}: the statistic {drawn.of} has no key {key!r}")
    names = list(dict.fromkeys(table[drawn.lines])) if drawn.lines else [None]
    categories = None if is_numeric_dtype(table[drawn.x]) else list(dict.fromkeys(table[drawn.x]))
    with drawing(8, 4.2) as figure:
        axes = figure.subplots()
        for number, name in enumerate(names):
            own = table if name is None else table[table[drawn.lines] == name]
            finite = own[np.isfinite(own["value"])]
            by = finite.groupby(drawn.x, sort=categories is None)["value"]
            mean, n = by.mean(), by.count()
            half = student.ppf((1 + CONFIDENCE) / 2, np.maximum(n - 1, 1)) * by.std(ddof=1) / np.sqrt(n)
            x = [categories.index(each) for each in mean.index] if categories else mean.index
            named = "" if drawn.lines == "of" else f"{drawn.lines} = "  # curves that `together` names say it all
            label = None if name is None else f"{named}{said(name)}"
            style = {
                "marker": MARKERS[number % len(MARKERS)],
                "linestyle": "none" if categories else DASHES[number % len(DASHES)],  # nothing lies between names
                "label": label,
            }
            axes.errorbar(x, mean, half.fillna(0), color=PALETTE[number % len(PALETTE)], capsize=2, **style)
        if categories:
            axes.set_xticks(range(len(categories)), list(map(str, categories)))
        if drawn.log_x:
            axes.set_xscale("log")
            settings = sorted(set(table[drawn.x]))
            if len(settings) <= TICKS:
                axes.set_xticks(settings, [f"{setting:g}" for setting in settings])
                axes.set_xticks([], minor=True)
        if drawn.log_y:
            axes.set_yscale("log")
        axes.set(xlabel=drawn.xlabel or drawn.x, ylabel=drawn.y)
        seeds = table[SEED].nunique() if SEED in table else 0
        interval = f"means of {seeds} seeds and their {100 * CONFIDENCE:.0f} % intervals" if seeds > 1 else ""
        legend(figure, axes, [f"{claim.id}: {claim.question}", interval])
    return saved(figure, path)
