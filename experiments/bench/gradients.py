"""Real gradients per second, over those of the best plain training loop of the same network, data and batch.

The engine's are counted from a run's first update to its last: clock, network, rules and recording are in it,
evaluations and start-up are not. The plain loop's are its steps. Gradients that no update applied do not count.
"""

from collections.abc import Iterator
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import torch

from experiments.bench.alternation import Speed, alternate
from experiments.bench.plain import best, loops, settle
from experiments.bench.report import Entry, Ratio
from experiments.bench.settings import Settings
from experiments.build import arguments
from experiments.config import Config
from experiments.errors import ConfigError
from experiments.grid import members, runs
from models import LeNet5, Supervised
from simulator import ALGORITHMS, Cluster, Evaluate, Mileage, Network, Rule, Stop, simulate
from simulator.laws import Gamma

WORKERS = 16
BATCHES = (32, 64, 128)


def measure(settings: Settings) -> Iterator[Entry]:
    """An entry a method and batch; of one config, where the settings have one."""
    if settings.config is not None:
        yield from of_config(settings, settings.config)
        return
    device = settings.place
    data = settings.data.to(device, torch.float32)
    for batch in BATCHES:
        task = Supervised(LeNet5().build, data, batch, device=device.type)
        contest = {name: {**given, "task": task} for name, given in methods(Rule(lr=0.01)).items()}
        if device.type == "cuda":
            contest["delayed by 32, 16 members"] = {**delayed(Rule(lr=0.01), 32), "task": task, "ensemble": 16}
        yield from versus(settings, contest, loops(LeNet5(), data, batch), batch)


def methods(rule: Rule) -> dict[str, dict[str, Any]]:
    """Cluster and algorithm of each method, for `simulate`: sixteen uneven workers at 10 Gb/s."""
    cluster = Cluster(WORKERS, Gamma(mean=0.01, cv=0.1), network=Network(bandwidth=1.25e9, latency=1e-4))
    served = {
        name: {"cluster": cluster, "algorithm": ALGORITHMS[name](rule)} for name in ("async_ps", "sync_ps", "sgp")
    }
    return {**served, "delayed": delayed(rule, WORKERS - 1)}


def delayed(rule: Rule, delay: int) -> dict[str, Any]:
    """One process whose gradients are `delay` updates late, as those of delay + 1 equal workers are."""
    return {"cluster": Cluster(1), "algorithm": ALGORITHMS["delayed"](rule, delay=delay)}


def of_config(settings: Settings, config: Config) -> Iterator[Entry]:
    """The entry of one run's config.

    Raises:
        ConfigError: several runs or members, or the task is no network on a data set.
    """
    planned = runs(config)
    if len(planned) > 1 or len(members(planned[0].config)) > 1:
        raise ConfigError("sweep", "bench measures one model: fix the swept keys, or sweep={}")
    config = planned[0].config
    if not hasattr(config.task, "dataset"):
        raise ConfigError("task.model", f"expected a network on a data set, got {config.task.model!r}")
    given = arguments(config)
    data = config.task.dataset.build().to(given["task"].device, given["task"].dtype)
    plain = loops(config.task.build(), data, config.task.batch, config.learning.lr, config.seed)
    yield from versus(settings, {config.algorithm.name: given}, plain, config.task.batch)


def versus(
    settings: Settings, contest: dict[str, dict[str, Any]], plain: dict[str, Any], batch: int
) -> Iterator[Entry]:
    """An entry for each of `contest`, all of whom take turns with the best of the `plain` loops."""
    chosen, speed = best(plain, steps=20)
    steps = max(3 * WORKERS, round(settings.turn * speed))
    turns: dict[str, Speed] = {f"plain, {name}": partial(loop, steps) for name, loop in chosen.items()}
    turns |= {name: partial(engine_speed, given, steps) for name, given in contest.items()}
    speeds = alternate(turns, settings.rounds)
    opponents = {name: speeds[name] for name in turns if name not in contest}
    fastest = [max(round_) for round_ in zip(*opponents.values(), strict=True)]
    for name in contest:
        rates = {f"{whose} (gradients/s)": median(rates) for whose, rates in opponents.items()}
        yield Entry(
            measure="gradients",
            case={"method": name, "batch": batch},
            ratio=Ratio.between(speeds[name], fastest),
            rates={"laggard (gradients/s)": median(speeds[name]), **rates},
        )


def engine_speed(given: dict[str, Any], gradients: int, first: int = 0) -> float:
    """Applied gradients per second, of every member, from the engine's update number `first` to its last.

    The run is over once `gradients` were computed.
    """
    task, moments = given["task"], []
    if task.device.type == "cpu":
        torch.set_num_threads(1)  # a plain loop may have had more

    def watch(mileage: Mileage) -> None:
        if len(moments) == first or mileage.gradients >= gradients - WORKERS:  # where it begins, and may end
            settle(task.device)
        moments.append((perf_counter(), mileage.samples))

    quiet = {"stop": Stop(gradients=gradients), "evaluate": Evaluate(every_updates=10 * gradients)}
    simulate(**{**given, **quiet}, watch=watch)
    (start, before), (end, after) = moments[first], moments[-1]
    ensemble = given.get("ensemble") or 1
    return ensemble * (after - before) / task.batch / (end - start)
