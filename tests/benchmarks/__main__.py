"""How fast laggard is, one table: `python -m tests.benchmarks [MEASURE ...] [--quick] [--device
cuda]`.

Every figure is a ratio, measured in alternation with what it is held against: its median over the
rounds, the least and the most. Speeds are medians, and good for this machine at that hour only.
"""

import argparse
import time
from datetime import UTC, datetime

from laggard.models.backends.batched import find_device
from tests.benchmarks.alternation import HEAD
from tests.benchmarks.clock import clock, network, recording
from tests.benchmarks.gradients import ensemble, gradients
from tests.benchmarks.sweep import sweep
from tests.machine import machine

MEASURES = {
    measure.__name__: measure for measure in (gradients, ensemble, clock, network, recording, sweep)
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument(
        "measures", nargs="*", metavar="MEASURE", help=f"of {', '.join(MEASURES)} (default: all)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="a minute or two instead of a quarter of an hour"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="of the gradients")
    given = parser.parse_args()
    if unknown := set(given.measures) - set(MEASURES):
        parser.error(
            f"no measure {', '.join(sorted(unknown))}: expected some of {', '.join(MEASURES)}"
        )
    device, start = find_device(given.device), time.perf_counter()
    print(
        f"{datetime.now(UTC):%Y-%m-%d}, {machine()}{', --quick' * given.quick}\n\n{HEAD}",
        flush=True,
    )
    for name in given.measures or MEASURES:
        for row in MEASURES[name](given.quick, device):
            print(row, flush=True)
    print(f"\nTaken in {(time.perf_counter() - start) / 60:.0f} min.")


if __name__ == "__main__":
    main()
