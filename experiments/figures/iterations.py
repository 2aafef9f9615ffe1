"""How long an iteration takes as a cluster grows: simulated, beside the closed forms of theory."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from experiments.config import Config
from experiments.figures.grids import gridded
from experiments.figures.lateness import applied_of
from experiments.figures.look import MARKERS, PALETTE, PLAIN, SPARSE, drawing, legend, quantity, saved, several
from experiments.lines import Drawn, shortened
from experiments.verify.collectives import TIMES
from simulator.laws import Constant, Scaled
from simulator.topology import Auto, Ring

WORKERS, BANDWIDTH = "cluster.workers", "cluster.network.bandwidth"
PANELS = 6
Closed = Callable[[int], float]


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
                closed = closed_form(results[int(own["run"].iloc[0])])
                if closed is not None:
                    closed_found = True
                    axes.plot(mean.index, [closed(int(P)) for P in mean.index], "-", linewidth=1, **look)
            axes.set(xscale="log", yscale="log", xlabel="workers", ylabel="virtual time per update (s)")
            axes.set_title(shortened(panel, 110 // columns), fontsize="small")
            axes.xaxis.set_major_locator(FixedLocator(sizes[:: math.ceil(len(sizes) / 8)]))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(PLAIN)
            axes.label_outer()
        if table["seconds"].max() < 100 * table["seconds"].min():
            panels_of[0, 0].yaxis.set_major_formatter(PLAIN)
            panels_of[0, 0].yaxis.set_minor_formatter(SPARSE)
        for axes in panels_of.flat[len(shown) :]:
            axes.set_visible(False)
        notes = ["markers: simulated" + "; lines: closed form, for equal constant times" * closed_found]
        seeds = table.drop_duplicates("run").groupby(["panel", WORKERS, BANDWIDTH]).size()
        notes += [f"n = {seeds.min()}" + f" to {seeds.max()}" * bool(seeds.min() < seeds.max()) + " per marker"]
        legend(figure, list(panels_of.flat), notes)
    return saved(figure, path)


def seconds_per_update(result: Drawn) -> float:
    """Virtual seconds from one update of a model to its next, in the second half of a run; the mean over its models.

    NaN where no model had two updates.
    """
    applied = applied_of(result.updates).drop_duplicates(["target", "version"]).sort_values("version")
    gaps = []
    for _, of in applied.groupby("target"):
        late = of.iloc[len(of) // 2 - (len(of) < 4) :]
        if len(late) > 1:
            ends = late.iloc[[0, -1]]
            gaps.append(np.diff(ends["time"])[0] / np.diff(ends["version"])[0])
    return float(np.mean(gaps)) if gaps else math.nan


def closed_form(result: Drawn) -> Closed | None:
    """Seconds an update of P workers takes by theory, with t_c constant, N bytes, latency alpha, beta seconds a byte.

    all_reduce                   t_c + the collective's (`experiments.verify.collectives.TIMES`)
    sync_ps                      t_c + 2 alpha + 2 P N beta (fair), t_c + 2 alpha + (P + 1) N beta (fifo)
    async_ps, fifo               max((t_c + 2 alpha + 2 N beta) / P, N beta)
    sgp, one peer                t_c + alpha + N beta; max(t_c, alpha + N beta) with overlap 1
    dpsgd on a ring, P > 2       max(t_c, alpha + 2 N beta); t_c + alpha + 2 N beta where it adapts first

    None where none of them holds: other laws or settings, unequal cards, private wires, a server whose work takes time.
    """
    config = result.config
    if not isinstance(config, Config):
        return None
    cluster, algorithm = (
        config.cluster.build(config.task.batch if hasattr(config.task, "batch") else 1),
        config.algorithm,
    )
    law, network = cluster.compute, cluster.network
    law = law.law if isinstance(law, Scaled) else law
    uneven = (
        network.cards or network.links or network.colocated or network.server_bandwidth or network.wiring != "cards"
    )
    if uneven or cluster.slowdowns or cluster.apply_seconds or not isinstance(law, Constant):
        return None
    t_c, alpha, transfer = cluster.compute.mean, network.latency, model_bytes(result) / network.bandwidth
    forms = {
        "all_reduce": lambda: _all_reduce(algorithm, t_c, alpha, transfer),
        "sync_ps": lambda: _sync_ps(algorithm, t_c, alpha, transfer, network.sharing),
        "async_ps": lambda: _async_ps(algorithm, t_c, alpha, transfer, network.sharing),
        "sgp": lambda: _sgp(algorithm, t_c, alpha, transfer, isinstance(network.topology, Auto)),
        "dpsgd": lambda: _dpsgd(algorithm, t_c, alpha, transfer, isinstance(network.topology, Auto | Ring)),
    }
    return forms.get(algorithm.name, lambda: None)()


def model_bytes(result: Any) -> float:
    """The bytes of one model's message."""
    given = result.config.cluster.network.message_bytes
    return float(4 * result.weights.shape[1] if given is None else given)


def method_of(config: Any) -> str:
    """The method, and its collective where it has one."""
    collective = getattr(config.algorithm, "collective", None)
    return config.algorithm.name + (f", {collective}" if collective else "")


def _all_reduce(algorithm: Any, t_c: float, alpha: float, transfer: float) -> Closed:
    _, _, seconds = TIMES[algorithm.collective]
    halves = "doubling" in algorithm.collective
    return lambda P: math.nan if halves and P & (P - 1) else t_c + seconds(P, alpha, transfer) * (P > 1)


def _sync_ps(algorithm: Any, t_c: float, alpha: float, transfer: float, sharing: str) -> Closed | None:
    if algorithm.wait_for is not None or algorithm.local_steps != 1 or algorithm.shards != 1:
        return None
    return lambda P: t_c + 2 * alpha + (2 * P if sharing == "fair" else P + 1) * transfer


def _async_ps(algorithm: Any, t_c: float, alpha: float, transfer: float, sharing: str) -> Closed | None:
    plain = algorithm.n_push == algorithm.n_fetch == algorithm.accumulate == algorithm.shards == 1
    if not plain or algorithm.sync_every or sharing != "fifo":
        return None
    return lambda P: max((t_c + 2 * alpha + 2 * transfer) / P, transfer)


def _sgp(algorithm: Any, t_c: float, alpha: float, transfer: float, one_peer: bool) -> Closed | None:
    if not one_peer or algorithm.overlap > 1:
        return None
    way = alpha + transfer
    return lambda P: t_c if P == 1 else max(t_c, way) if algorithm.overlap else t_c + way


def _dpsgd(algorithm: Any, t_c: float, alpha: float, transfer: float, ring: bool) -> Closed | None:
    if not ring:
        return None
    first = algorithm.order == "combine_then_adapt"

    def seconds(P: int) -> float:
        way = (alpha + min(P - 1, 2) * transfer) * (P > 1)
        return max(t_c, way) if first else t_c + way

    return seconds
