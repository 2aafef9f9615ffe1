"""How long an iteration takes as a cluster grows: simulated, beside the closed forms of theory."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from experiments.figures.closed import closed_form
from experiments.figures.grids import gridded
from experiments.figures.lateness import applied_of
from experiments.figures.look import MARKERS, PALETTE, PLAIN, SPARSE, drawing, legend, quantity, saved, several
from experiments.lines import Drawn, shortened

WORKERS, BANDWIDTH = "cluster.workers", "cluster.network.bandwidth"
PANELS = 6


def scaling(results: Sequence[Drawn], path: str | Path | None = None) -> Figure:
    """Virtual time per update against the number of workers: a colour a bandwidth, a panel a method.

    Markers are simulated, in the second half of a run; lines are the closed forms of `closed_form`, where theory has
    one. An update is a server's, a round of a collective, or one step of every node of a gossip.

    Raises:
        ValueError: all results have the same number of workers.
    """
    results = several(results)
    table = gridded(results, WORKERS, BANDWIDTH, single=True)
    table["seconds"] = table["run"].map({run: seconds_per_update(result) for run, result in enumerate(results)})
    table["panel"] = [
        panel or method_of(results[run].config) for panel, run in zip(table["panel"], table["run"], strict=True)
    ]
    shown = list(dict.fromkeys(table["panel"]))[:PANELS]
    speeds, columns = sorted(table[BANDWIDTH].unique()), min(len(shown), 3)
    rows, sizes = math.ceil(len(shown) / columns), sorted(table[WORKERS].unique())
    with drawing(8 if columns > 1 else 6, 1.2 + 2.7 * rows) as figure:
        panels_of = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
        closed_found = False
        for axes, panel in zip(panels_of.flat, shown, strict=False):
            for index, speed in enumerate(speeds):
                own = table[(table["panel"] == panel) & (table[BANDWIDTH] == speed)]
                if not len(own):
                    continue
                look = {"color": PALETTE[index % 8]}
                mean = own.groupby(WORKERS)["seconds"].mean()
                axes.plot(mean.index, mean, MARKERS[index % 8], markersize=5, label=quantity(speed, "B/s"), **look)
                firsts = own.drop_duplicates(WORKERS).set_index(WORKERS)["run"]
                expected = [expected_seconds(results[int(firsts[P])]) for P in mean.index]
                if np.isfinite(expected).any():
                    closed_found = True
                    axes.plot(mean.index, expected, "-", linewidth=1, **look)
            axes.set(xscale="log", yscale="log", xlabel="workers", ylabel="virtual time per update (s)")
            axes.set_title(shortened(panel, 110 // columns), fontsize="small")
            axes.xaxis.set_major_locator(FixedLocator(sizes[:: math.ceil(len(sizes) / 8)]))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(PLAIN)
            axes.label_outer()
        if table["seconds"].max() < 100 * table["seconds"].min():
            panels_of[0, 0].yaxis.set_major_formatter(PLAIN)
            panels_of[0, 0].yaxis.set_minor_formatter(SPARSE)
        for number in range(len(shown), rows * columns):
            panels_of.flat[number].set_visible(False)
            above = panels_of.flat[number - columns]
            above.tick_params(labelbottom=True)
            above.set_xlabel("workers")
        notes = ["markers: simulated" + "; lines: closed form" * closed_found]
        seeds = table.drop_duplicates("run").groupby(["panel", WORKERS, BANDWIDTH]).size()
        notes += [f"n = {seeds.min()}" + f" to {seeds.max()}" * bool(seeds.min() < seeds.max()) + " per marker"]
        legend(figure, list(panels_of.flat), notes)
    return saved(figure, path)


def seconds_per_update(result: Drawn) -> float:
    """Virtual seconds from one update of a model to its next, in the second half of a run.

    Of P models with s_i seconds an update each: P / sum_i (1 / s_i), the time in which they have one each on average.
    NaN where no model had two updates.
    """
    applied = applied_of(result.updates).drop_duplicates(["target", "version"]).sort_values("version")
    gaps = []
    for _, of in applied.groupby("target"):
        late = of.iloc[len(of) // 2 - (len(of) < 4) :]
        if len(late) > 1:
            ends = late.iloc[[0, -1]]
            gaps.append(np.diff(ends["time"])[0] / np.diff(ends["version"])[0])
    return len(gaps) / sum(1 / gap for gap in gaps) if gaps and min(gaps) > 0 else 0.0 if gaps else math.nan


def expected_seconds(result: Drawn) -> float:
    """Virtual seconds of an update by `closed_form`; NaN where there is none."""
    closed = closed_form(result)
    return math.nan if closed is None else closed(result.config.cluster.workers)


def method_of(config: Any) -> str:
    """The method, and its collective where it has one."""
    collective = getattr(config.algorithm, "collective", None)
    return config.algorithm.name + (f", {collective}" if collective else "")
