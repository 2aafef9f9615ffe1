"""From the config of a run to what `simulator.simulate` is called with."""

from typing import Any

import torch
from torch import Tensor

from experiments.config import Config
from experiments.errors import blamed
from experiments.grid import members
from simulator import Invalid, Task


def arguments(config: Config) -> dict[str, Any]:
    """The arguments of `simulate` for a run's config.

    Raises:
        ConfigError: network, data set, partition and device do not fit together.
        DataMissingError: the data set is not there.
    """
    workers = config.cluster.workers
    learnt = task(config)
    return {
        "cluster": config.cluster.build(learnt.batch),
        "algorithm": config.algorithm.build(workers, rule=config.learning.build(workers, **scalars(config))),
        "task": learnt,
        "stop": config.stop.build(),
        "evaluate": config.evaluate.build(),
        "record": config.record.build(),
        "seed": config.seed,
        "learning_seeds": learning_seeds(config),
    }


def task(config: Config) -> Task:
    """What the run learns, on its device; the training set is dealt by `seed`.

    Raises:
        ConfigError: its pieces do not fit together, or the device is not there.
        DataMissingError: the data set is not there.
    """
    hardware = {key: getattr(config, key) for key in ("device", "backend", "threads")}
    try:
        return config.task.task(workers=config.cluster.workers, seed=config.seed, **hardware)
    except Invalid:
        raise
    except ValueError as error:
        raise blamed("task", error) from None


def scalars(config: Config) -> dict[str, Tensor]:
    """The swept numbers of the rule, by dotted key below `learning`: float64 tensors `(ensemble, 1)`."""
    each = members(config)
    return {
        key.removeprefix("learning."): torch.tensor([[member[key]] for member in each], dtype=torch.float64)
        for key in each[0]
        if key != "learning.seed"
    }


def learning_seeds(config: Config) -> list[int]:
    """The seed of each member's initial weights and mini-batches."""
    usual = config.seed if config.learning.seed is None else config.learning.seed
    return [member.get("learning.seed", usual) for member in members(config)]
