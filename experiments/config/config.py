"""The config of an experiment: every key with its type and default, and the digest of a run."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html import escape
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin

from pydantic import Field, ValidationError

from laggard.experiments.config.cluster import ClusterPart
from laggard.experiments.config.document import text_of
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
    TunePart,
)
from laggard.experiments.config.places import name_places
from laggard.experiments.config.revisions import revisions_of
from laggard.experiments.config.schema import Part, Seed
from laggard.experiments.config.task import TASK
from laggard.models.backends import BACKEND_NAMES
from laggard.simulator import Cluster, InvalidSettingError
from laggard.simulator.engine.stopping import check_periods


class Config(Part):
    """An experiment: one run, or under `sweep` a grid of runs.

    Attributes:
        name: the name of the folder with its results.
        question: the question that it answers; by default the first comment of its file.
        cluster: the machines.
        algorithm: the distributed training method.
        task: the learning problem.
        learning: the optimiser, and the other parts of the learning rule.
        stop: the limits of a run.
        evaluate: when and how the model is evaluated.
        record: further recordings.
        seed: the seed of everything random; `cluster.seed` and `learning.seed` follow it where they
            are null.
        device: the device that computes gradients; `auto` is a GPU where there is one.
        backend: the code that computes gradients: `auto` takes `threads` on a CPU, and on a GPU the
            fastest of the others.
        threads: the number of threads that compute gradients; one per core by default.
        sweep: dotted key -> its values; the grid is the product of all. Under `search`, settings
            are drawn at random.
        tune: settings that other seeds choose before the sweep runs; null where nothing is chosen.
    """

    shared: ClassVar[bool] = False
    name: Annotated[str, Field(pattern=r"^\w[\w .-]*$", max_length=80)] = "experiment"
    question: str = ""
    cluster: ClusterPart = Field({}, validate_default=True)
    algorithm: Annotated[Any, ALGORITHM] = Field("async_ps", validate_default=True)
    task: Annotated[Any, TASK] = Field({}, validate_default=True)
    learning: Annotated[Any, LEARNING] = Field({}, validate_default=True)
    stop: StopPart = Field({"epochs": 1.0}, validate_default=True)
    evaluate: EvaluatePart = Field({}, validate_default=True)
    record: RecordPart = Field({}, validate_default=True)
    seed: Seed = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    backend: Literal[BACKEND_NAMES] = "auto"  # type: ignore[valid-type]
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    sweep: dict[str, Any] = Field({})
    tune: TunePart | None = None

    def build_cluster(self) -> Cluster:
        """The cluster, on which a mini-batch is the task's.

        Raises:
            ConfigError: as in `ClusterPart.build_cluster`, or the operations of the task cannot be
                counted.
        """
        operations = None
        if self.cluster.compute.speed is not None:
            try:
                operations = self.task.operations()
            except ValueError as error:
                raise error_at("task", error) from None
        try:
            return self.cluster.build_cluster(getattr(self.task, "batch", 1), operations)
        except ConfigError as error:
            raise error.relocate(key=f"cluster.{error.key}") from None

    def check(self, members: int) -> None:
        """Check that task, cluster, algorithm and stop of a run with `members` fit together.

        Raises:
            ConfigError: one of them does not fit the others.
        """
        cluster = self.build_cluster()
        workers = self.cluster.workers
        with _report_under_key(self):
            rule = self.learning.build(workers)
            algorithm = self.algorithm.build(workers, rule=rule)
            algorithm.check_cluster(cluster)
            algorithm.check_end(cluster, self.stop.build())
            check_periods(self.stop.build(), self.evaluate.build(), cluster)
        if self.stop.accuracy is not None and not self.task.measures_accuracy:
            problem = "expected null, since the task has no accuracy"
            raise ConfigError("stop.accuracy", f"{problem}, got {self.stop.accuracy:g}")
        self.task.fits(workers, self.device, self.backend)
        self.task.check_start(members)
        layers = self.task.layers()
        params = sum(layer.params for layer in layers)
        with _report_under_key(self):
            slices = self.algorithm.build(workers).slices(workers, params, layers)
        if getattr(type(self.learning).recipe, "needs_shapes", False):
            with _report_under_key(self):
                rule = self.learning.build(workers).with_shapes(self.task.parameter_shapes())
                for place in slices.values():
                    rule.of_part(place)

    def as_dict(self) -> dict[str, Any]:
        """The config of one run as plain data with all defaults; `parse` reads it back."""
        return self.model_dump()

    def explicit(self) -> dict[str, Any]:
        """The explicit settings of a run as plain data, without defaults, sweep and tune."""
        return self.model_dump(exclude_unset=True, exclude={"sweep", "tune"})

    def _repr_html_(self) -> str:
        """The explicit settings as YAML, for notebooks; text is escaped."""
        document = self.explicit()
        if self.sweep:
            document["sweep"] = self.sweep
        if self.tune:
            document["tune"] = self.tune.model_dump(exclude_unset=True)
        return f"<pre>{escape(text_of(document))}</pre>"


def parse(
    document: Mapping[str, Any], stored: bool = False, cache: dict[Any, Any] | None = None
) -> Config:
    """The config that a document describes; each of its parts has been built once as a check.

    Args:
        stored: the document is a result's: nothing is built, and no plugin is imported.
        cache: the parts that the configs of a grid share: equal parts are parsed once.

    Raises:
        ConfigError: an unknown key or name, a wrong type, a value out of range; names the dotted
            key.
    """
    try:
        return Config.model_validate(document, context={"stored": stored, "cache": cache})
    except ValidationError as error:
        raise name_places(translate_error(error, document), Config) from None


@contextmanager
def _report_under_key(config: Config) -> Iterator[None]:
    """Report an invalid setting under its dotted key."""
    try:
        yield
    except InvalidSettingError as error:
        owners = {
            "Network": "cluster.network",
            type(config.cluster.network).recipe.__name__: "cluster.network",
            "Rule": "learning",
            type(config.learning).recipe.__name__: "learning",
            "Compress": "algorithm.compress",
            "Stop": "stop",
            "Evaluate": "evaluate",
        }
        for key, part in config.learning.parts.items():
            owners[type(part).recipe.__name__] = f"learning.{key}"
        owner = owners.get(error.owner, "cluster")
        if error.owner != "Network" and error.field in type(config.algorithm).model_fields:
            owner = "algorithm"
        raise refused_setting(owner, error) from None


# --- digests

IGNORED = (
    "name",
    "question",
    "device",
    "backend",
    "threads",
    "evaluate.target_accuracy",
    "record",
    "tune",
)
"""Keys that do not change a run's outcome: names, execution, targets, further recordings, and how
its settings were chosen.
"""
DEFAULTS_VERSION = 1
"""Add 1 whenever a default changes. A digest leaves out settings that equal their default, so that
an old run would otherwise have the id of a new one.
"""
_defaults: dict[type[Part], tuple[set[str], dict[str, str]]] = {}  # as `_defaults_of` gives them


def digest_of(config: Config) -> str:
    """SHA-256 of what decides a run's outcome: the settings that differ from the defaults.

    It leaves out the keys in `IGNORED`. Files count by their content, plugins also by their source.
    A key that a later version adds with a default changes no digest.
    """
    settings = without_paths(_differences(config, config.as_dict()))
    document = {"defaults": DEFAULTS_VERSION, **settings, "sweep": config.sweep}
    revisions = revisions_of(config)
    if revisions:
        document["revisions"] = revisions
    return digest_of_settings(document)


def digest_of_settings(resolved: Mapping[str, Any]) -> str:
    """SHA-256 of settings as plain data, without the keys in `IGNORED`.

    The settings are a new run's differences from the defaults (`digest_of`), or all of a stored
    config, to check it; that may have keys that this version lacks.
    """
    document = {**resolved, "evaluate": dict(resolved.get("evaluate", {}))}
    for key in IGNORED:
        owner, _, name = key.rpartition(".")
        mapping = document
        if owner:
            mapping = document[owner]
        mapping.pop(name, None)  # older results lack some
    # a list, since the order of the axes is the order of the members
    document["sweep"] = list(document.get("sweep", {}).items())
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _differences(value: Any, settings: Any) -> Any:
    """The name of a part and its settings that differ from the defaults; of a plugin, all settings.

    Args:
        settings: all settings of `value`, as plain data.
    """
    if isinstance(value, list):
        return [_differences(*item) for item in zip(value, settings, strict=True)]
    if not isinstance(value, Part) or SOURCE in settings:
        return settings
    always, defaults = _defaults_of(type(value), settings)
    return {
        key: _differences(getattr(value, key), setting)
        for key, setting in settings.items()
        if key in always or repr(setting) != defaults.get(key)
    }


def _defaults_of(kind: type[Part], settings: Mapping[str, Any]) -> tuple[set[str], dict[str, str]]:
    """The keys of a part that have no default or name the part, and the other defaults as text."""
    if kind not in _defaults:
        always = set()
        for key, field in kind.model_fields.items():
            hint = field.annotation
            is_constant = get_origin(hint) is Literal and len(get_args(hint)) == 1
            if is_constant or field.is_required():
                always.add(key)
        required = {key: settings[key] for key in always}
        default = kind.model_validate(required, context={"stored": True})
        _defaults[kind] = always, {key: repr(item) for key, item in default.model_dump().items()}
    return _defaults[kind]
