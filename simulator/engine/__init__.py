"""The engine: `simulate` is its whole interface in Python; nodes, stopping criteria, faults and
clockwork behind it.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.stopping import Evaluate, Stop
from laggard.simulator.errors import InvalidSettingError
from laggard.simulator.learning.task import Task, Timing
from laggard.simulator.recording.counters import RunProgress
from laggard.simulator.recording.messages import Record
from laggard.simulator.recording.outcome import Outcome
from laggard.simulator.timing.streams import Seeds

if TYPE_CHECKING:
    from laggard.simulator.algorithms.base import Algorithm
    from laggard.simulator.engine.simulation import Simulation
    from laggard.simulator.engine.snapshots import Snapshots


def simulate(
    cluster: Cluster,
    algorithm: "Algorithm",
    task: Task | None = None,
    *,
    stop: Stop,
    evaluate: Evaluate | None = None,
    seed: int = 0,
    learning_seeds: Sequence[int] | None = None,
    ensemble: int | None = None,
    watch: Callable[[RunProgress], None] | None = None,
    memory: float | None = None,
    defer: bool = True,
    record: Record | None = None,
    observe: "Callable[[Simulation], None] | None" = None,
    snapshots: "Snapshots | None" = None,
) -> Outcome:
    """Run `algorithm` on `cluster` in virtual time, learning `task` (without one the clock runs
    alone), until `stop`.

    Args:
        evaluate: how often the model is evaluated; once an epoch by default.
        seed: of everything random; `cluster.seed` and `learning_seeds` override it.
        learning_seeds: a seed per member, for its initial weights and its mini-batches.
        ensemble: how many members, where they share one learning seed; 1 by default.
        watch: called with the progress after every update; `observe` with the simulation, before it
            runs.
        memory: bytes of promised weights and gradients above which promises are evaluated early; by
            default 4 GiB, and on a GPU a quarter of its free memory.
        defer: False evaluates every gradient when it is started, only slower; `record` may ask for
            every message.
        snapshots: are taken of the run, and the one from which it goes on, if any.

    Raises:
        Deadlock, InvalidSettingError: nothing can happen any more; a setting does not fit the
            others.
        TypeError: a class or something else where an object is expected.
        RuntimeError: weights were changed in place while a gradient of theirs was promised.
        SnapshotError: the run cannot go on from that snapshot.
    """
    from laggard.simulator.engine.simulation import Simulation

    for name, given, fits, expected in (
        ("cluster", cluster, isinstance(cluster, Cluster), "Cluster(workers, law)"),
        ("algorithm", algorithm, hasattr(algorithm, "roles"), "an algorithm, as AsyncPS(Rule())"),
        ("task", task, task is None or hasattr(task, "batches"), "a task, as Quadratic()"),
        ("stop", stop, isinstance(stop, Stop), "Stop(updates=100)"),
        ("evaluate", evaluate, isinstance(evaluate, Evaluate | None), "Evaluate()"),
    ):
        if not fits or isinstance(given, type):
            raise TypeError(f"simulate: {name}: expected {expected}, got {given!r:.100}")
    if learning_seeds is None:
        members = [seed] * (1 if ensemble is None else ensemble)
    else:
        members = list(learning_seeds)
    if not members or ensemble not in (None, len(members)):
        raise InvalidSettingError(
            "simulate", "ensemble", "one member or more, as many as learning_seeds", ensemble
        )
    seeds = Seeds(seed if cluster.seed is None else cluster.seed, members)
    task, evaluate = task or Timing(), evaluate or Evaluate()
    simulation = Simulation(
        cluster, algorithm, task, stop, evaluate, seeds, watch, memory, defer, record
    )
    if observe is not None:
        observe(simulation)
    try:
        if snapshots is None:
            return simulation.run()
        return snapshots.run(simulation)
    finally:
        simulation.pool.cancel()
