"""The entrants of a league: every method that accepts the cluster, each in its strongest form.

Settings that change nothing but times, such as the collective, the buckets and the shards of a
server, are chosen by the clock alone: the form that computes gradients fastest enters. Servers
stand on the workers' machines, so that no method has more hardware, unless the cluster's file
places them. Settings that change what is learnt are chosen by trials: a method declares their
ranges as `SPACE`, in the form of `sweep.search`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, NamedTuple

from laggard.experiments.config.config import Config
from laggard.experiments.config.document import put
from laggard.experiments.config.errors import ConfigError, error_line, unknown_name
from laggard.experiments.config.grid import fill_swept_keys, runs
from laggard.experiments.config.installed import installed_plugins
from laggard.experiments.config.search import is_rule_number
from laggard.experiments.config.task import epoch_samples
from laggard.experiments.league.setting import LeagueSetting
from laggard.simulator import ALGORITHMS, Algorithm, Deadlock, Outcome, Stop, Timing, simulate

ALL_REDUCE, SERVER = "all_reduce", "sync_ps"
COMPULSORY = (ALL_REDUCE, SERVER)
"""The opponents without which there is no league, for they overlap communication and backward pass:
all-reduce in buckets, and the sharded server in buckets.
"""
COLLECTIVES_TIMED = ("hierarchical", "halving_doubling", "recursive_doubling", "tree", "ring")
MAX_TIMELINES = 5
"""Timelines of an entrant: combinations of its settings that move events."""
MAX_PAIRS = 256
"""Workers times shards: the time of a simulation is in proportion."""
ROUNDS = 4
"""Mini-batches of each worker in which the clock compares forms."""
DottedKeys = dict[str, Any]


@dataclass(frozen=True)
class Entrant:
    """A method in its strongest form.

    Attributes:
        name: the name of the method, or `module:Class`.
        settings: the dotted keys of its form.
        ranges: the ranges from which its trials choose, as in `sweep.search`.
        config: the form on the league's cluster and task, at the first of its timelines.
        timelines: the settings that move events, a mapping per timeline.
        asked: the number of settings that the method asks to try, if any.
    """

    name: str
    settings: DottedKeys
    ranges: Mapping[str, Any]
    config: Config
    timelines: Sequence[DottedKeys]
    asked: int | None = None


class MethodForm(NamedTuple):
    """A method at some settings that change times alone.

    Attributes:
        settings: these settings.
        timelines, configs: the settings that move events, as far as the cluster accepts them, and
            the config of each.
        refusal: the error of a timeline that the cluster refuses.
    """

    settings: DottedKeys
    timelines: list[DottedKeys]
    configs: list[Config]
    refusal: ConfigError = ConfigError("", "none")


def names_of_methods(only: Sequence[str], added: Sequence[str]) -> list[str]:
    """The names of all methods and plugins, or of `only` and the compulsory methods.

    Raises:
        ConfigError: one of `only` is unknown.
    """
    installed = [entry.name for entry in installed_plugins([Algorithm])]
    names = [*ALGORITHMS, *installed]
    for name in only:
        if name not in names:
            raise unknown_name("", name, names).relocate(where="methods")
    if only:
        names = [*COMPULSORY, *only]
    return [*names, *added]


def find_entrants(
    setting: LeagueSetting, names: Iterable[str], seed: int
) -> tuple[list[Entrant], dict[str, str]]:
    """The entrants, and for each other method the reason why it cannot enter.

    Raises:
        ConfigError: the cluster refuses a compulsory opponent, or there is no such plugin.
    """
    entrants = []
    refused = {}
    for name in names:
        document = {**setting.base, "seed": seed, "algorithm": {"name": name}}
        try:
            entrants.append(_enter(name, document, setting.ranges))
        except ConfigError as error:
            if error.key == "algorithm.name":  # no such plugin
                raise
            if name in COMPULSORY:
                problem = f"a league needs {name} as an opponent, which this cluster refuses"
                refusal = error.relocate(where=setting.cluster_file)
                raise ConfigError("", f"{refusal}: {problem}") from None
            refused[name] = str(error)
    return entrants, refused


def _enter(name: str, document: Mapping[str, Any], ranges: Mapping[str, Any]) -> Entrant:
    """The method in its fastest form.

    Raises:
        ConfigError: no form fits the cluster.
    """
    plain = fill_swept_keys(document)
    space = dict(getattr(type(plain.algorithm).recipe, "SPACE", {}))
    asked = space.pop("runs", None)
    timelines = _timelines(name, space)
    choices = _clock_choices(plain)
    forms: list[MethodForm] = []
    for placed in _places_of_servers(document, plain):
        combinations = _combinations({**placed, **choices})
        forms = [_try_form(document, settings, timelines) for settings in combinations]
        fitting = [form for form in forms if form.configs]
        if fitting:
            form = min(fitting, key=lambda form: _seconds_per_gradient(form.configs[0]))
            own = {key: _accepted_choices(key, space[key], form.timelines) for key in space}
            ranges = {**ranges, **own}
            return Entrant(name, form.settings, ranges, form.configs[0], form.timelines, asked)
    raise forms[-1].refusal  # the refusal of the plainest form


def _try_form(
    document: Mapping[str, Any], settings: DottedKeys, timelines: Sequence[DottedKeys]
) -> MethodForm:
    form = MethodForm(settings, [], [])
    for timeline in timelines:
        try:
            config = fill_swept_keys(with_settings(document, {**settings, **timeline}))
            runs(config)  # for its checks of the config's runs
        except ConfigError as error:
            form = form._replace(refusal=error)
        else:
            form.timelines.append(timeline)
            form.configs.append(config)
    return form


def _timelines(name: str, space: Mapping[str, Any]) -> list[DottedKeys]:
    """The combinations of settings that move events."""
    values = {}
    for key, limits in space.items():
        ((kind, ends),) = limits.items()
        if all(is_rule_number(key, end) for end in ends):
            continue
        if kind != "choice":
            problem = f"expected {{choice: [...]}}, since {key} moves events, got {kind}"
            raise ConfigError("", f"{name}: SPACE: {problem}")
        values[key] = ends
    number = prod(map(len, values.values()))
    if number > MAX_TIMELINES:
        problem = f"expected choices that make at most {MAX_TIMELINES} timelines, got {number}"
        raise ConfigError("", f"{name}: SPACE: {problem}")
    return list(_combinations(values))


def _accepted_choices(
    key: str, limits: Mapping[str, Any], timelines: Sequence[DottedKeys]
) -> DottedKeys:
    """A range of `SPACE`, without choices that occur in no accepted timeline."""
    if key not in timelines[0]:
        return dict(limits)
    accepted = [timeline[key] for timeline in timelines]
    return {"choice": [value for value in limits["choice"] if value in accepted]}


def _combinations(values: Mapping[str, Sequence[Any]]) -> Iterator[DottedKeys]:
    for combination in product(*values.values()):
        yield dict(zip(values, combination, strict=True))


def _places_of_servers(document: Mapping[str, Any], plain: Config) -> list[dict[str, list[bool]]]:
    """The places of servers to try: the workers' machines, unless the cluster's file names them."""
    workers = plain.cluster.workers
    ranks = plain.algorithm.build(workers).roles(workers)
    named = "colocated" in document["cluster"].get("network", {})
    if named or all(rank >= 0 for rank in ranks):
        return [{}]
    return [{"cluster.network.colocated": [True]}, {}]


def _clock_choices(plain: Config) -> dict[str, Sequence[Any]]:
    """The settings of a method that the clock chooses, with the values to try, the plainest last.

    A method that can shrink does so where workers crash or leave.
    """
    workers = plain.cluster.workers
    message = size_of_messages(plain)
    most_shards = max(1, min(workers, MAX_PAIRS // workers))
    shards = (most_shards, 1) if most_shards > 1 else (1,)
    forms: dict[str, Sequence[Any]] = {
        "collective": COLLECTIVES_TIMED,
        "bucket_bytes": (message / 4, None),
        "slice_bytes": (message / 4,),
        "shards": shards,
    }
    if plain.build_cluster().has_crashes:
        forms["on_crash"] = ("shrink",)
    fields = type(plain.algorithm).model_fields
    return {f"algorithm.{key}": values for key, values in forms.items() if key in fields}


def size_of_messages(config: Config) -> float:
    """The size of a message with a model (bytes)."""
    size: float | None = config.build_cluster().network.message_bytes
    if size is None:
        size = 4.0 * sum(layer.params for layer in config.task.layers())
    return size


def with_settings(document: Mapping[str, Any], settings: DottedKeys) -> Mapping[str, Any]:
    """`document` with these values of dotted keys."""
    for key, value in settings.items():
        document = put(document, key, value)
    return document


def _seconds_per_gradient(config: Config) -> float:
    progress = clock(config, Stop(gradients=ROUNDS * config.cluster.workers)).progress
    return progress.time / max(progress.gradients, 1)


def clock(config: Config, stop: Stop) -> Outcome:
    """The times of a run, simulated without learning: no event time depends on a tensor.

    Raises:
        ConfigError: no event is left in the simulation.
    """
    task = config.task
    epoch = epoch_samples(task) or 60_000  # the default of `Timing`
    timing = Timing(getattr(task, "batch", 1), epoch, network=task.layers())
    algorithm = config.algorithm.build(config.cluster.workers)
    try:
        return simulate(config.build_cluster(), algorithm, timing, stop=stop, seed=config.seed)
    except Deadlock as error:
        raise ConfigError("algorithm", error_line(error)) from None
