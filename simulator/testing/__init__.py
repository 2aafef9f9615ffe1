"""The identities of every algorithm on every cluster and task, for tests of plugins.

from laggard.simulator.testing import check_algorithm

def test_identities():
    check_algorithm(MyAlgorithm)
"""

from collections.abc import Callable

from laggard.simulator.algorithms.base import Algorithm
from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.learning.rules import Rule
from laggard.simulator.learning.task import Task
from laggard.simulator.testing.identities import IDENTITIES
from laggard.simulator.testing.trial import Trial, trial_of

__all__ = ["IDENTITIES", "Trial", "check_algorithm", "trial_of"]


def check_algorithm(
    algorithm: Algorithm | Callable[[Rule], Algorithm],
    *,
    cluster: Cluster | None = None,
    task: Task | None = None,
    updates: int = 60,
    seed: int = 0,
) -> list[str]:
    """Check every identity of `IDENTITIES`; return the names of the identities that could be
    checked.

    Hash seeds cannot be checked for an algorithm that another process cannot import, such as one
    defined in a notebook.

    Args:
        algorithm: an instance, or a function that makes one from a rule: the class, where its other
            fields have defaults.
        cluster: by default four uneven workers on a slow network, or another number of workers that
            the algorithm accepts.
        task: a noisy quadratic by default; another task must give the same bits in an ensemble as
            alone.
        updates: the number of updates of each run.
        seed: the seed of everything random.

    Raises:
        AssertionError: an identity does not hold; names it and the likely causes.
        InvalidSettingError: the algorithm accepts none of the clusters.
    """
    made = trial_of(algorithm, cluster=cluster, task=task, updates=updates, seed=seed)
    return [name for name, check in IDENTITIES.items() if check(made) is not False]
