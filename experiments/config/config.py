"""The config of an experiment: every key, typed strictly, and what it is by default."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html import escape
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BeforeValidator, Field, ValidationError

from laggard.experiments.config.clusters import ClusterPart
from laggard.experiments.config.errors import (
    ConfigError,
    error_at,
    refused_setting,
    translate_error,
)
from laggard.experiments.config.files import without_paths
from laggard.experiments.config.parts import (
    ALGORITHM,
    LEARNING,
    SOURCE,
    EvaluatePart,
    RecordPart,
    StopPart,
)
from laggard.experiments.config.plain import text_of
from laggard.experiments.config.schema import Part, Seed, fill_defaults
from laggard.experiments.config.tasks import TASK
from laggard.models.backends import BACKEND_NAMES
from laggard.simulator import Cluster, InvalidSettingError, Rule
from laggard.simulator.engine.stopping import check_periods


class Config(Part):
    """An experiment: one run, or under `sweep` a grid of them.

    Attributes:
        name: of the folder that holds its results.
        question: what it asks; by default the first comment of its file.
        cluster: the machines.
        algorithm: how they train.
        task: what is learnt.
        learning: the optimiser, and what else makes an update of gradients.
        stop: when a run ends.
        evaluate: when the model is evaluated.
        record: what is recorded besides.
        seed: of everything random; `cluster.seed` and `learning.seed` follow it where they are
            null.
        device: where gradients are computed; `auto` is a GPU where there is one.
        backend: how gradients are taken: by `threads` on a CPU, and on a GPU by whichever of the
            others is the fastest, unless it says which.
        threads: that compute gradients; one per core by default.
        sweep: dotted key -> its values; the grid is the product of all. Under `search`, settings
            are drawn at random.
    """

    name: Annotated[str, Field(pattern=r"^\w[\w .-]*$", max_length=80)] = "experiment"
    question: str = ""
    cluster: Annotated[Any, fill_defaults(ClusterPart)] = Field({}, validate_default=True)
    algorithm: Annotated[Any, BeforeValidator(ALGORITHM)] = Field("async_ps", validate_default=True)
    task: Annotated[Any, BeforeValidator(TASK)] = Field({}, validate_default=True)
    learning: Annotated[Any, BeforeValidator(LEARNING)] = Field({}, validate_default=True)
    stop: Annotated[Any, fill_defaults(StopPart)] = Field({"epochs": 1.0}, validate_default=True)
    evaluate: Annotated[Any, fill_defaults(EvaluatePart)] = Field({}, validate_default=True)
    record: Annotated[Any, fill_defaults(RecordPart)] = Field({}, validate_default=True)
    seed: Seed = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    backend: Literal[BACKEND_NAMES] = "auto"  # type: ignore[valid-type]
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    sweep: dict[str, Any] = Field({})

    def build_cluster(self) -> Cluster:
        """The cluster, on which a mini-batch is the task's.

        Raises:
            ConfigError: as in `ClusterPart.build`, or the operations of the task cannot be counted.
        """
        counted = self.cluster.compute.speed is not None
        try:
            operations = self.task.operations() if counted else None
        except ValueError as error:
            raise error_at("task", error) from None
        try:
            cluster: Cluster = self.cluster.build(getattr(self.task, "batch", 1), operations)
        except ConfigError as error:
            raise error.relocate(key=f"cluster.{error.key}") from None
        return cluster

    def as_dict(self) -> dict[str, Any]:
        """The config of one run as plain data, with every default written out; `parse` reads it
        back.
        """
        return self.model_dump()

    def explicit(self) -> dict[str, Any]:
        """The explicit settings, as plain data without the defaults and without the sweep."""
        return self.model_dump(exclude_unset=True, exclude={"sweep"})

    def _repr_html_(self) -> str:
        """The explicit settings as YAML, for notebooks; text is escaped."""
        return f"<pre>{escape(text_of(self.explicit() | ({'sweep': self.sweep} if self.sweep else {})))}</pre>"


class Checks:
    """A cache of checks for a grid's configs: equal parts are parsed, built and checked once.

    Attributes:
        known: the parts, by where they stand and what was written there; they stay alive here, so
            that their ids stay theirs.
    """

    def __init__(self) -> None:
        self.known: dict[Any, Part] = {}
        self._fine: set[tuple[Any, ...]] = set()

    def agree(self, config: Config) -> None:
        """Check that the algorithm can run on the cluster, once for each pair.

        Raises:
            ConfigError: it cannot; says what would have to change.
        """
        parts = (
            id(part)
            for part in (
                config.algorithm,
                config.cluster,
                config.task,
                config.stop,
                config.evaluate,
            )
        )
        clip = config.learning.clip
        agreed = ("agree", type(clip), *parts)
        if agreed not in self._fine:
            cluster = config.build_cluster()
            with _report_under_key(config):
                rule = Rule(clip=clip.build())
                config.algorithm.build(config.cluster.workers, rule=rule).check_cluster(cluster)
                check_periods(config.stop.build(), config.evaluate.build(), cluster)
            if config.stop.accuracy is not None and not config.task.measures_accuracy:
                problem = f"expected null, since {config.task.model} has no accuracy, got {config.stop.accuracy:g}"
                raise ConfigError("stop.accuracy", problem)
            self._fine.add(agreed)

    def fit(self, config: Config, members: int) -> None:
        """Check that task, workers, device and members fit together and the model can be cut, once
        for each of them.

        Raises:
            ConfigError: they do not; says what would have to change.
        """
        task, workers = config.task, config.cluster.workers
        parts = (
            "fit",
            id(task),
            id(config.algorithm),
            workers,
            config.device,
            config.backend,
            members,
        )
        if parts not in self._fine:
            task.fits(workers, config.device, config.backend)
            task.check_start(members)
            layers = task.layers()
            with _report_under_key(config):
                config.algorithm.build(workers).slices(
                    workers, sum(layer.params for layer in layers), layers
                )
            self._fine.add(parts)


def parse(document: Mapping[str, Any], kept: bool = False, checks: Checks | None = None) -> Config:
    """The config that a document describes; each of its parts has been built once as a check.

    Args:
        kept: the document is a result's: nothing is built, and entries of one's own are not
            imported.
        checks: of the grid that the document belongs to.

    Raises:
        ConfigError: an unknown key or name, a wrong type, a value out of its range; names the
            dotted key.
    """
    context = {"kept": kept, "known": checks.known if checks else None}
    try:
        return Config.model_validate(document, context=context)
    except ValidationError as error:
        raise translate_error(error, document) from None


@contextmanager
def _report_under_key(config: Config) -> Iterator[None]:
    """Report an invalid setting under its dotted key."""
    try:
        yield
    except InvalidSettingError as error:
        network = config.cluster.network
        own = {"Network": "cluster.network", type(network).recipe.__name__: "cluster.network"}
        owner = {**own, "Rule": "learning", "Stop": "stop", "Evaluate": "evaluate"}.get(
            error.owner, "cluster"
        )
        if error.owner != "Network" and error.field in type(config.algorithm).model_fields:
            owner = "algorithm"
        raise refused_setting(owner, error) from None


IGNORED = ("name", "question", "device", "backend", "threads", "evaluate.target_accuracy", "record")
"""Keys that do not change a run's outcome: names, execution, targets and additional records."""
DEFAULTS_VERSION = 1
"""To be increased whenever a default changes, since a run's digest leaves out settings that equal
their default.
"""
# of each kind of part, as `_standard_of`
_standard: dict[type[Part], tuple[set[str], dict[str, str]]] = {}


def digest_of(config: Config) -> str:
    """SHA-256 of what decides a run's outcome: the settings that differ from the defaults, without
    those in `IGNORED`.

    Of files it is their content, of entries of one's own their sources too. A key that a later
    version adds with a default changes no digest.
    """
    return digest_of_settings(
        {
            "defaults": DEFAULTS_VERSION,
            **without_paths(_differences(config, config.as_dict())),
            "sweep": config.sweep,
        }
    )


def digest_of_settings(resolved: Mapping[str, Any]) -> str:
    """SHA-256 of a resolved config, with every default, without the keys in `IGNORED`: to check
    what is stored, also where it has keys that this version lacks.
    """
    document = {**resolved, "evaluate": dict(resolved.get("evaluate", {}))}
    for key in IGNORED:
        owner, _, name = key.rpartition(".")
        (document[owner] if owner else document).pop(name, None)  # older results lack some
    # their order is the order of the members
    document["sweep"] = list(document.get("sweep", {}).items())
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _differences(value: Any, every: Any) -> Any:
    """The settings of a part that differ from their defaults, and its name; all settings of an
    entry of one's own.

    Args:
        every: all its settings, as plain data.
    """
    if isinstance(value, list):
        return [_differences(*each) for each in zip(value, every, strict=True)]
    if not isinstance(value, Part) or SOURCE in every:
        return every
    always, standard = _standard_of(type(value), every)
    return {
        key: _differences(getattr(value, key), setting)
        for key, setting in every.items()
        if key in always or repr(setting) != standard[key]
    }


def _standard_of(kind: type[Part], every: Mapping[str, Any]) -> tuple[set[str], dict[str, str]]:
    """The keys of a kind of part that have no default or name it, and what the others are by
    default.
    """
    if kind not in _standard:
        hints = {key: field.annotation for key, field in kind.model_fields.items()}
        constants = {
            key
            for key, hint in hints.items()
            if get_origin(hint) is Literal and len(get_args(hint)) == 1
        }
        always = constants | {
            key for key, field in kind.model_fields.items() if field.is_required()
        }
        standard = kind.model_validate({key: every[key] for key in always}, context={"kept": True})
        _standard[kind] = (
            always,
            {key: repr(setting) for key, setting in standard.model_dump().items()},
        )
    return _standard[kind]
