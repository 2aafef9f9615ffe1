"""What workers did with their time."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.figures.look import LIGHT, PALETTE, PERCENT, drawing, legend, saved, several
from experiments.lines import Drawn, Label, shortened, titles

STATES = {
    "computing": {"color": PALETTE[0]},
    "sending": {"color": PALETTE[4]},
    "waiting": {"facecolor": "white", "edgecolor": PALETTE[1], "hatch": "////"},
    "down": {"color": LIGHT},
}
MOST = 40


def occupation(results: Sequence[Drawn] | Drawn, path: str | Path | None = None, label: Label | None = None) -> Figure:
    """Who waited: the shares of their time that workers computed, sent, waited and were down.

    A bar a worker for one run, a bar a run for several, over all of its workers. A share written in it is the waiting.
    """
    results = several(results)
    if len(results) == 1:
        table = shares(results[0].workers)
        names = [f"worker {rank}" for rank in results[0].workers["worker"]]
    else:
        table = pd.concat([shares(of.workers.sum().to_frame().T) for of in results], ignore_index=True)
        counts = [len(of.workers) for of in results]
        called = [shortened(name, 48) for name in titles(results, label)]
        names = [f"{name} (n = {n})" for name, n in zip(called, counts, strict=True)]
    shown = table.head(MOST).fillna(0.0)
    with drawing(8, 1.1 + 0.24 * max(3, len(shown))) as figure:
        axes, left = figure.subplots(), np.zeros(len(shown))
        for state, look in STATES.items():
            width = shown[state].to_numpy()
            if width.any():
                axes.barh(range(len(shown)), width, 0.72, left, label=state, linewidth=0.7, **look)
            left = left + width
        for row, waited in enumerate(shown["waiting"]):
            axes.annotate(f"{waited:.0%}", (1, row), (4, 0), textcoords="offset points", va="center", size="small")
        axes.set(xlabel="share of the workers' time (%); beside it, of waiting", xlim=(0, 1))
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.set_yticks(range(len(shown)), names[:MOST])
        axes.xaxis.set_major_formatter(PERCENT)
        axes.grid(visible=False)
        notes = ["n: workers"] * (len(results) > 1)
        notes += [f"{len(table) - len(shown)} more are not shown"] * (len(table) > MOST)
        legend(figure, axes, notes)
    return saved(figure, path)


def shares(workers: pd.DataFrame) -> pd.DataFrame:
    """Of each row of `Result.workers`, the share (0 to 1) of its time in each state; NaN where it had no time."""
    spent = workers[list(STATES)].astype(float)
    return spent.div(spent.sum(axis=1).replace(0.0, np.nan), axis=0)
