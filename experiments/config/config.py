"""The config of an experiment: every key, typed strictly, and what it is by default."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError

from laggard.experiments.config.errors import refused_setting, translate_error
from laggard.experiments.config.parts import ALGORITHM, LEARNING, ClusterPart, EvaluatePart, RecordPart, StopPart
from laggard.experiments.config.schema import Count, Part, Seed, fill_defaults
from laggard.experiments.config.tasks import TASK
from laggard.models.backends.choice import BACKEND_NAMES
from laggard.simulator import InvalidSettingError


class Config(Part):
    """An experiment: one run, or under `sweep` a grid of them.

    `question` is the first comment of its file unless it is said. Seeds that are null follow `seed`; `threads` null
    means one per core. `backend` is how gradients are taken: by `threads` on a CPU, and on a GPU by whichever of the
    others is the fastest, unless it says which.
    """

    name: Annotated[str, Field(pattern=r"^\w[\w .-]*$")] = "experiment"
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
    threads: Count | None = None
    sweep: dict[str, Any] = Field({})

    def resolved(self) -> dict[str, Any]:
        """The config of one run as plain data, with every default written out; `parse` reads it back."""
        return self.model_dump()

    def given(self) -> dict[str, Any]:
        """The explicit settings, as plain data without the defaults and without the sweep."""
        return self.model_dump(exclude_unset=True, exclude={"sweep"})


class Checks:
    """A cache of checks for a grid's configs: equal parts are parsed, built and checked once.

    Attributes:
        known: the parts, by where they stand and what was written there; they stay alive here, so that their ids
            stay theirs.
    """

    def __init__(self) -> None:
        self.known: dict[Any, Part] = {}
        self._fine: set[tuple[Any, ...]] = set()

    def agree(self, config: Config) -> None:
        """Check that the algorithm can run on the cluster, once for each pair.

        Raises:
            ConfigError: it cannot; says what would have to change.
        """
        parts = ("agree", id(config.algorithm), id(config.cluster))
        if parts not in self._fine:
            with _report_under_key(config):
                config.algorithm.build(config.cluster.workers).check(config.cluster.build())
            self._fine.add(parts)

    def fit(self, config: Config) -> None:
        """Check that task, workers and device fit together and the model can be cut, once for each of them.

        Raises:
            ConfigError: they do not; says what would have to change.
        """
        task, workers = config.task, config.cluster.workers
        parts = ("fit", id(task), id(config.algorithm), workers, config.device, config.backend)
        if parts not in self._fine:
            task.fits(workers, config.device, config.backend)
            layers = task.layers()
            with _report_under_key(config):
                config.algorithm.build(workers).slices(workers, sum(layer.params for layer in layers), layers)
            self._fine.add(parts)


def parse(document: Mapping[str, Any], kept: bool = False, checks: Checks | None = None) -> Config:
    """The config that a document describes; each of its parts has been built once as a check.

    Args:
        kept: the document is a result's: nothing is built, and entries of one's own are not imported.
        checks: of the grid that the document belongs to.

    Raises:
        ConfigError: an unknown key or name, a wrong type, a value out of its range; names the dotted key.
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
        owner = "cluster.network" if error.owner == "Network" else "cluster"
        owner = "algorithm" if error.field in type(config.algorithm).model_fields else owner
        raise refused_setting(owner, error) from None


IGNORED = ("name", "question", "device", "backend", "threads", "evaluate.target_accuracy", "record")
"""Keys that do not change a run's outcome: names, execution, targets and additional records."""


def digest_of(resolved: Mapping[str, Any]) -> str:
    """SHA-256 of what decides a run's outcome: its resolved config as canonical JSON, without the keys in `IGNORED`.

    It is also that of a config with keys that this version does not have.
    """
    document = {**resolved, "evaluate": dict(resolved.get("evaluate", {}))}
    for key in IGNORED:
        owner, _, name = key.rpartition(".")
        (document[owner] if owner else document).pop(name, None)  # older results lack some
    document["sweep"] = list(document.get("sweep", {}).items())  # their order is the order of the members
    return hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
