"""The config of an experiment: every key, typed strictly, and what it is by default."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, WrapValidator

from experiments.errors import ConfigError, shown, translated
from experiments.parts import ALGORITHM, LEARNING, ClusterPart, EvaluatePart, RecordPart, StopPart
from experiments.schema import Count, Part, Seed, once
from experiments.tasks import TASK
from models.backends import NAMES
from simulator import Invalid


class Config(Part):
    """An experiment: one run, or under `sweep` a grid of them.

    `question` is the first comment of its file unless it is said. Seeds that are null follow `seed`; `threads` null
    means one per core. `backend` is how gradients are taken: by `threads` on a CPU, and on a GPU by whichever of the
    others is the fastest, unless it says which.
    """

    name: Annotated[str, Field(pattern=r"^\w[\w .-]*$")] = "experiment"
    question: str = ""
    cluster: Annotated[ClusterPart, WrapValidator(once)] = ClusterPart()
    algorithm: ALGORITHM.type = Field("async_ps", validate_default=True)
    task: TASK.type = Field({}, validate_default=True)
    learning: LEARNING.type = Field({}, validate_default=True)
    stop: Annotated[StopPart, WrapValidator(once)] = StopPart(epochs=1.0)
    evaluate: Annotated[EvaluatePart, WrapValidator(once)] = EvaluatePart()
    record: Annotated[RecordPart, WrapValidator(once)] = RecordPart()
    seed: Seed = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    backend: Literal[NAMES] = "auto"  # type: ignore[valid-type]
    threads: Count | None = None
    sweep: dict[str, Any] = Field({})

    def resolved(self) -> dict[str, Any]:
        """The config of one run as plain data, with every default written out; `parse` reads it back."""
        return self.model_dump()

    def given(self) -> dict[str, Any]:
        """What was said, as plain data without the defaults and without the sweep."""
        return self.model_dump(exclude_unset=True, exclude={"sweep"})


class Checks:
    """What was found about the parts of a grid's configs: equal parts are parsed, built and agreed upon once.

    Attributes:
        known: the parts, by where they stand and what was written there; they stay alive here, so that their ids
            stay theirs.
    """

    def __init__(self) -> None:
        self.known: dict[Any, Part] = {}
        self._fine: set[tuple[Any, ...]] = set()
        self._said: dict[int, str] = {}

    def agree(self, config: Config) -> None:
        """As the function `agree`, once for an algorithm on a cluster."""
        pair = ("agree", id(config.algorithm), id(config.cluster))
        if pair not in self._fine:
            agree(config)
            self._fine.add(pair)

    def fit(self, config: Config) -> None:
        """Check that task, workers and device fit together and the model can be cut, once for each of them.

        Raises:
            ConfigError: they do not; says what would have to change.
        """
        parts = ("fit", id(config.task), id(config.algorithm), config.cluster.workers, config.device, config.backend)
        if parts not in self._fine:
            config.task.fits(config.cluster.workers, config.device, config.backend)
            cuts(config)
            self._fine.add(parts)

    def identity(self, config: Config) -> tuple[Any, ...]:
        """What is equal for two configs of a grid exactly if they are the same run."""
        parts = [config.cluster, config.algorithm, config.task, config.learning, config.stop, config.evaluate]
        for part in parts:
            if id(part) not in self._said:
                self._said[id(part)] = json.dumps(part.model_dump(), sort_keys=True)
        return (*(self._said[id(part)] for part in parts), config.seed, json.dumps(config.sweep))


def parse(document: Mapping[str, Any], kept: bool = False, checks: Checks | None = None) -> Config:
    """The config that a document describes; each of its parts has been built once, to see that it can be.

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
        raise translated(error, document) from None


def agree(config: Config) -> None:
    """Check that the algorithm can run on the cluster.

    Raises:
        ConfigError: it cannot; says what would have to change.
    """
    with _blamed_on(config):
        config.algorithm.build(config.cluster.workers).check(config.cluster.build())


def cuts(config: Config) -> None:
    """Check that the algorithm can cut the model into the slices that its nodes hold, if it does.

    Raises:
        ConfigError: it cannot; says what would have to change.
    """
    layers = config.task.layers()
    params = sum(layer.params for layer in layers)
    with _blamed_on(config):
        config.algorithm.build(config.cluster.workers).slices(config.cluster.workers, params, layers)


@contextmanager
def _blamed_on(config: Config) -> Iterator[None]:
    """What is invalid is told under its dotted key."""
    try:
        yield
    except Invalid as error:
        places = {"Network": "cluster.network"}
        own = error.field in type(config.algorithm).model_fields
        owner = "algorithm" if own else places.get(error.owner, "cluster")
        raise ConfigError(f"{owner}.{error.field}", f"expected {error.expected}, got {shown(error.got)}") from None
