"""Gradients per second of E members in one run, over those of E runs one after another.

Runs one after another go at the speed of one of them, which is what is measured in turn with the ensemble. Each
member has a learning rate of its own; the method is `async_ps` with sixteen workers and a batch of 32.
The first 48 updates are left out: sixteen versions of 64 models are first laid into fresh memory, which takes a virtual
machine longer than the arithmetic.
"""

from collections.abc import Iterator
from functools import partial
from statistics import median

import torch

from experiments.bench.alternation import Speed, alternate
from experiments.bench.gradients import WORKERS, engine_speed, methods
from experiments.bench.report import Entry, Ratio
from experiments.bench.settings import Settings
from models import LeNet5, Supervised
from simulator import Rule

MEMBERS = (1, 4, 16, 64)
SINGLE = "one after another"
WARM = 3 * WORKERS  # updates until every worker has read anew, and memory is not asked of the system any more


def measure(settings: Settings) -> Iterator[Entry]:
    """An entry a size of the ensemble."""
    device = settings.place
    task = Supervised(LeNet5().build, settings.data.to(device, torch.float32), batch=32, device=device.type)
    single = {**methods(Rule(lr=0.01))["async_ps"], "task": task}
    engine_speed(single, 2 * WORKERS)
    speed = engine_speed(single, 4 * WORKERS)
    least = 24 if device.type == "cpu" else 4 * WORKERS  # a GPU evaluates all sixteen in flight at once
    turns: dict[str, Speed] = {SINGLE: partial(engine_speed, single, max(32, round(settings.turn * speed)))}
    for members in MEMBERS:
        rates = torch.linspace(0.001, 0.02, members, dtype=torch.float64).unsqueeze(1)
        given = {**methods(Rule(lr=rates))["async_ps"], "task": task, "ensemble": members}
        updates = max(least, round(settings.turn * speed / members))
        turns[str(members)] = partial(engine_speed, given, 1 + WARM + updates, WARM)
    speeds = alternate(turns, settings.rounds)
    for members in MEMBERS:
        yield Entry(
            measure="ensemble",
            case={"against": SINGLE, "members": members},
            ratio=Ratio.between(speeds[str(members)], speeds[SINGLE]),
            rates={
                "one run (gradients/s)": median(speeds[str(members)]),
                f"{SINGLE} (gradients/s)": median(speeds[SINGLE]),
            },
        )
