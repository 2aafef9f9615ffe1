"""The config of an experiment: every key, typed strictly, and what it is by default."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from experiments.errors import ConfigError, shown, translated
from experiments.parts import ALGORITHM, LEARNING, TASK, ClusterPart, EvaluatePart, RecordPart, StopPart
from experiments.schema import Count, Part, Seed
from models.backends import NAMES
from simulator import Invalid


class Config(Part):
    """An experiment: one run, or under `sweep` a grid of them.

    Seeds that are null follow `seed`; `threads` null means one per core. `backend` is how gradients are taken: by
    `threads` on a CPU, and on a GPU by whichever of the others is the fastest, unless it says which.
    """

    name: Annotated[str, Field(pattern=r"^\w[\w .-]*$")] = "experiment"
    cluster: ClusterPart = ClusterPart()
    algorithm: ALGORITHM.type = Field("async_ps", validate_default=True)
    task: TASK.type = Field({}, validate_default=True)
    learning: LEARNING.type = Field({}, validate_default=True)
    stop: StopPart = StopPart(epochs=1.0)
    evaluate: EvaluatePart = EvaluatePart()
    record: RecordPart = RecordPart()
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


def parse(document: Mapping[str, Any], kept: bool = False) -> Config:
    """The config that a document describes; each of its parts has been built once, to see that it can be.

    Args:
        kept: the document is a result's: nothing is built, and entries of one's own are not imported.

    Raises:
        ConfigError: an unknown key or name, a wrong type, a value out of its range; names the dotted key.
    """
    try:
        return Config.model_validate(document, context={"kept": kept})
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
