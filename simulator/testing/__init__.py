"""What every algorithm must satisfy, whatever it learns and on whichever cluster: for tests of one's own.

from simulator.testing import check_algorithm

def test_it_keeps_the_identities_of_every_algorithm():
    check_algorithm(MyAlgorithm)
"""

from collections.abc import Callable

from simulator.algorithm import Algorithm
from simulator.cluster import Cluster
from simulator.rules import Rule
from simulator.task import Task
from simulator.testing.identities import IDENTITIES
from simulator.testing.trial import Trial, trial_of

__all__ = ["IDENTITIES", "Trial", "check_algorithm", "trial_of"]


def check_algorithm(
    algorithm: Algorithm | Callable[[Rule], Algorithm],
    *,
    cluster: Cluster | None = None,
    task: Task | None = None,
    updates: int = 60,
    seed: int = 0,
) -> list[str]:
    """Check every identity of `IDENTITIES`; its names, but for those that could not be asked.

    An algorithm that another process cannot import, as from a notebook, is not asked about hash seeds.

    Args:
        algorithm: an instance, or what makes one from a rule: the class itself, where all else has defaults.
        cluster: by default four uneven workers on a slow network, or as many as the algorithm agrees to.
        task: a noisy quadratic by default; one of your own must give the same bits in an ensemble as alone.
        updates: of each run.
        seed: of everything random.

    Raises:
        AssertionError: an identity does not hold; names it and says what to look for.
        Invalid: the algorithm agrees to none of the clusters.
    """
    made = trial_of(algorithm, cluster=cluster, task=task, updates=updates, seed=seed)
    return [name for name, check in IDENTITIES.items() if check(made) is not False]
