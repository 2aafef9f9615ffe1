"""The engine. `simulate` is its whole interface in Python."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from laggard.errors import check_members
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
    """Run `algorithm` on `cluster` in virtual time, learning `task`, until `stop`.

    Args:
        task: the learning problem; without one only the clock runs.
        evaluate: the period of evaluations; an epoch by default.
        seed: the seed of everything random; `cluster.seed` and `learning_seeds` override it.
        learning_seeds: a seed per member, for its initial weights and its mini-batches.
        ensemble: the number of members that share one learning seed; 1 by default.
        watch: called with the progress after every update.
        memory: bytes of promised weights and gradients above which promises are evaluated early; by
            default 4 GiB, and on a GPU a quarter of its free memory.
        defer: False evaluates every gradient when it is started, which is only slower.
        record: optional records, such as a row for every message.
        observe: called with the simulation before it runs.
        snapshots: takes snapshots of the run, and may continue it from an earlier one.

    Raises:
        Deadlock: no event is left although nodes wait, and no node crashed.
        InvalidSettingError: a setting does not fit the others.
        TypeError: a class or another type where an object is expected.
        RuntimeError: weights were changed in place while their gradient was promised.
        SnapshotError: the run cannot continue from that snapshot.
    """
    # here, since a run imports torch, which takes a second
    from laggard.simulator.engine.simulation import Simulation

    _check_type("cluster", cluster, isinstance(cluster, Cluster), "Cluster(workers, law)")
    is_algorithm = hasattr(algorithm, "roles")
    _check_type("algorithm", algorithm, is_algorithm, "an algorithm, as AsyncPS(Rule())")
    is_task = task is None or hasattr(task, "batches") or hasattr(task, "gradients")
    _check_type("task", task, is_task, "a task, as Quadratic()")
    if task is not None:
        check_members("simulate", "task", task, Task)
    _check_type("stop", stop, isinstance(stop, Stop), "Stop(updates=100)")
    _check_type("evaluate", evaluate, isinstance(evaluate, Evaluate | None), "Evaluate()")
    members = [seed]
    if learning_seeds is not None:
        members = list(learning_seeds)
    elif ensemble is not None:
        members = [seed] * ensemble
    if not members or ensemble not in (None, len(members)):
        expected = "one member or more, as many as learning_seeds"
        raise InvalidSettingError("simulate", "ensemble", expected, ensemble)
    cluster_seed = seed if cluster.seed is None else cluster.seed
    seeds = Seeds(cluster_seed, members)
    task = task or Timing()
    evaluate = evaluate or Evaluate()
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


def _check_type(name: str, argument: object, fits: bool, expected: str) -> None:
    if not fits or isinstance(argument, type):
        raise TypeError(f"simulate: {name}: expected {expected}, got {argument!r:.100}")
