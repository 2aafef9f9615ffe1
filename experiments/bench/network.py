"""Messages per second under fair sharing, over the timeouts per second of bare SimPy with as many processes.

So many messages are always under way: each flow sends its next when the one before has arrived. On the star all go into
the server's card; random pairs are drawn anew for each message among as many workers as there are flows.
"""

from collections.abc import Iterator
from statistics import median

from experiments.bench.alternation import Late
from experiments.bench.report import Entry, Ratio
from experiments.bench.settings import Settings
from experiments.bench.traffic import TRAFFIC, carried

FLOWS = (16, 256, 1024)


def measure(settings: Settings) -> Iterator[Entry]:
    """An entry a kind of traffic and number of flows."""
    turn, patience = (0.15, 5.0) if settings.quick else (1.0, 30.0)
    for kind in TRAFFIC:
        first: float | None = None
        for flows in FLOWS:
            case: dict[str, str | int] = {"traffic": kind, "flows": flows}
            try:
                messages, timeouts = settings.children.run(carried, kind, flows, turn, settings.rounds, patience)
            except Late as late:
                yield Entry(measure="network", case=case, note=str(late))
                continue
            speed = median(messages)
            first = speed if flows == FLOWS[0] else first
            rates = {"messages/s": speed, "bare SimPy (timeouts/s)": median(timeouts)}
            if first:
                rates[f"speed over that of {FLOWS[0]} flows"] = speed / first
            yield Entry(measure="network", case=case, ratio=Ratio.between(messages, timeouts), rates=rates)
