"""In which phase of a gradient's life it became stale, and how long each phase took."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.figures.look import GREY, PALETTE, drawing, legend, saved, several
from experiments.lines import Drawn, Label, shortened, titles

PHASES = ("network down", "compute", "network up", "barrier", "queue")
"""From the read to the worker; computing; to the target; waiting for the others of the same update; waiting in turn."""
UNSPLIT = "network up, queue, barrier"
"""The last three together, where a run did not record when gradients arrived."""


LOOKS: Mapping[str, dict[str, object]] = {
    "network down": {"color": PALETTE[5]},
    "compute": {"color": PALETTE[0]},
    "network up": {"color": PALETTE[4]},
    "barrier": {"facecolor": "white", "edgecolor": PALETTE[3], "hatch": "\\\\\\\\"},
    "queue": {"facecolor": "white", "edgecolor": PALETTE[1], "hatch": "////"},
    UNSPLIT: {"facecolor": "white", "edgecolor": PALETTE[4], "hatch": "...."},
}
MOST = 24


def split(results: Sequence[Drawn] | Drawn, path: str | Path | None = None, label: Label | None = None) -> Figure:
    """Where staleness comes from: the updates, and the seconds, of each phase of a gradient's life.

    A bar a worker for one run, a bar a run for several; means over the applied gradients. See `phases`.
    """
    results = several(results)
    names = ["all workers"] if len(results) == 1 else titles(results, label)
    tables = {name: (phases(of.updates), seconds(of.updates)) for name, of in zip(names, results, strict=True)}
    if len(results) == 1:  # each counts the updates of all
        counts, spent = tables["all workers"]
        for rank in sorted(results[0].updates["worker"].unique()):
            tables[f"worker {rank}"] = counts[counts["worker"] == rank], spent[spent["worker"] == rank]
    shown = dict(list(tables.items())[:MOST])
    with drawing(8, 1.3 + 0.25 * max(3, len(shown))) as figure:
        left, right = figure.subplots(1, 2, sharey=True)
        counted = [len(counts) for counts, _ in shown.values()]
        _stack(left, [counts.drop(columns=["worker", "staleness"]).mean() for counts, _ in shown.values()], "{:.2f}")
        _stack(right, [spent.drop(columns="worker").mean() for _, spent in shown.values()], "{:.3g}")
        names = [f"{shortened(name, 36)} (n = {n:,})" for name, n in zip(shown, counted, strict=True)]
        left.set(xlabel="mean staleness (updates)", ylim=(len(shown) - 0.4, -0.6))
        left.set_yticks(range(len(shown)), names)
        right.set_xlabel("mean time from its start (s)")
        notes = [
            "n: applied gradients",
            f"{len(tables) - len(shown)} more are not shown" * (len(tables) > len(shown)),
        ]
        if not all(recorded(of.updates) for of in results):
            notes.append("arrivals were not recorded (record.messages: true): the last three phases are one")
        legend(figure, [left, right], notes)
    return saved(figure, path)


def _stack(axes: Axes, means: Sequence[pd.Series], form: str) -> None:
    """Stacked bars with their sums beside them."""
    table = pd.DataFrame(means).reset_index(drop=True)
    table = table.reindex(columns=[name for name in (*PHASES, UNSPLIT) if name in table]).fillna(0.0)
    left = np.zeros(len(table))
    for name in table:
        there = (table[name] > 0).to_numpy()  # an empty bar would still have edges
        if there.any():
            axes.barh(there.nonzero()[0], table.loc[there, name], 0.72, left[there], label=name, linewidth=0.7,
                      **LOOKS[name])  # fmt: skip
        left = left + table[name].to_numpy()
    for row, total in enumerate(left):
        axes.annotate(
            form.format(total), (total, row), (3, 0), textcoords="offset points", va="center", size="small", color=GREY
        )
    axes.set_xlim(0, 1.15 * max(left.max(initial=0.0), 1e-12))
    axes.grid(visible=False, axis="y")


def phases(updates: pd.DataFrame) -> pd.DataFrame:
    """Of each applied gradient, the updates of its target that fell into each phase of its life; their sum is its
    staleness.

    A gradient is read, `started`, `computed`, it `arrived`, its update was ready (the last of the gradients that were
    applied together had arrived), and it was applied. With V(t) the version of its target just before t,

        network down = V(started) - version_read,   compute = V(computed) - V(started),   ...

    so that updates at the very moment at which two phases meet are the later one's. Where `arrived` is not recorded the
    last three phases are one.

    Args:
        updates: rows as of `Result.updates`.

    Returns:
        A row per applied gradient with its `worker`, `staleness` and a column per phase.
    """
    applied = updates[updates["status"] == "applied"]
    borders = _borders(applied)
    counts = pd.DataFrame(index=applied.index)
    for target, of in applied.groupby("target"):
        moments, versions = _versions(updates[updates["target"] == target])
        before = of["version_read"].to_numpy()
        for name, border in borders.items():
            if border is None:
                reached = of["version"].to_numpy()
            else:
                found = np.searchsorted(moments, border[of.index].to_numpy(), side="left") - 1
                reached = np.where(found >= 0, versions[np.maximum(found, 0)], 0)
            reached = np.clip(reached, before, of["version"])
            counts.loc[of.index, name] = reached - before
            before = reached
    return applied[["worker", "staleness"]].join(counts.reindex(columns=list(borders)).fillna(0.0))


def seconds(updates: pd.DataFrame) -> pd.DataFrame:
    """Of each applied gradient, the seconds that each phase after its start took, and its `worker`."""
    applied = updates[updates["status"] == "applied"]
    before, spent = applied["started"], {"worker": applied["worker"]}
    for name, border in list(_borders(applied).items())[1:]:
        border = applied["time"] if border is None else border
        spent[name] = border - before
        before = border
    return pd.DataFrame(spent)


def recorded(updates: pd.DataFrame) -> bool:
    """Whether the moments at which gradients arrived are known."""
    return "arrived" in updates and bool(updates["arrived"].notna().any())


def _borders(applied: pd.DataFrame) -> dict[str, pd.Series | None]:
    """The moment (s) at which each phase ends, in their order; None at the fate itself."""
    start = {"network down": applied["started"], "compute": applied["computed"].fillna(applied["time"])}
    if not recorded(applied):
        return {**start, UNSPLIT: None}
    arrived = applied["arrived"].fillna(start["compute"])  # what stays on its node needs no way
    ready = arrived.groupby([applied["target"], applied["version"], applied["time"]]).transform("max")
    return {**start, "network up": arrived, "barrier": ready, "queue": None}


def _versions(updates: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """The moments (s) of a target's updates, and the versions that its model then had."""
    rose = updates[updates["status"] == "applied"].groupby("version")["time"].min()
    return rose.to_numpy(), rose.index.to_numpy() + 1
