"""Compute-send-receive cycles per second without learning, over the timeouts per second of bare SimPy.

Both in the same process, in turn, by its own process time; bare SimPy has as many processes as there are workers.
A cycle of an all-reduce is a node's round: 2 (P - 1) messages sent, as many received. Memory is what the process grows
by until every worker has computed once.
"""

from collections.abc import Iterator
from statistics import median

from experiments.bench.alternation import Late
from experiments.bench.report import Entry, Ratio
from experiments.bench.settings import Settings
from experiments.bench.timeline import sample

METHODS = ("async_ps", "sync_ps", "all_reduce", "sgp")
SIZES = (16, 256, 4096, 65_536)


def measure(settings: Settings) -> Iterator[Entry]:
    """An entry a method and number of workers; a quick bench leaves out the largest, which takes a minute to begin."""
    turn, patience = (0.1, 4.0) if settings.quick else (0.6, 60.0)
    for method in METHODS:
        first: float | None = None
        for workers in SIZES[:3] if settings.quick else SIZES:
            case: dict[str, str | int] = {"method": method, "workers": workers}
            try:
                sampled = settings.children.run(sample, method, workers, turn, settings.rounds, patience)
            except Late as late:
                yield Entry(measure="clock", case=case, note=str(late))
                continue
            speed = median(sampled.cycles)
            first = speed if workers == SIZES[0] else first
            rates = {
                "cycles/s": speed,
                "bare SimPy (timeouts/s)": median(sampled.bare),
                "memory (MiB)": sampled.memory / 2**20,
                "memory (KiB/worker)": sampled.memory / 2**10 / workers,
            }
            if first:
                rates[f"speed over that of {SIZES[0]} workers"] = speed / first
            if method == "all_reduce":
                rates["messages/s"] = 2 * (workers - 1) * speed
            note = "" if sampled.begun is not None else "not every worker had computed once when it was sampled"
            yield Entry(
                measure="clock", case=case, ratio=Ratio.between(sampled.cycles, sampled.bare), rates=rates, note=note
            )
