"""The tasks that are no network on a data set: what `task` has in common, time alone, and
quadratics.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator

from laggard import simulator
from laggard.experiments.config.errors import ConfigError, error_at
from laggard.experiments.config.files import absolute_path
from laggard.experiments.config.schema import Described, FileHash
from laggard.models.initial import Shapes, WarmStart, count_initial, read_initial
from laggard.models.vision import vision_layers
from laggard.simulator.learning.task import Layer, layers_of

DType = Literal["float32", "float64"]


class TaskPart(Described):
    """`task`: what is learnt; a network on a data set, or something of its own.

    Attributes:
        learns: whether anything is.
        measures_accuracy: whether evaluations may measure a test accuracy.
    """

    learns: ClassVar[bool] = True
    measures_accuracy: ClassVar[bool] = True
    model: str

    @property
    def workers_differ(self) -> bool:
        """Whether workers learn from data of their own, so that the model depends on who
        contributes.
        """
        return False

    def fits(self, workers: int, device: str, backend: str = "auto") -> None:
        """Check that the pieces fit together, before anything is read or run.

        Raises:
            ConfigError: they do not; says what would have to change.
        """
        if device == "cuda":
            raise ConfigError(
                "device", f"expected auto or cpu, since {self.model} uses no GPU, got 'cuda'"
            )
        if backend != "auto":
            raise ConfigError(
                "backend",
                f"expected auto, since {self.model} has a way of its own, got {backend!r}",
            )

    def layers(self) -> Sequence[Layer]:
        """The layers that a pipeline could cut, as far as they can be known without reading
        data.
        """
        return layers_of(self.build())

    def check_start(self, members: int) -> None:
        """Check that an ensemble of so many members can start from the initial weights.

        Raises:
            ConfigError: it cannot; says what the file holds.
        """

    def warm_start(self, task: Any, members: int) -> simulator.Task:
        """`task`, of so many members, with its initial weights in place of its own, where it has
        some.

        Raises:
            InvalidSettingError, ConfigError: their file has changed since the config was read, or
                is of another model.
        """
        return task  # type: ignore[no-any-return]

    def operations(self) -> float | None:
        """Operations of a gradient of one sample, where they are counted: of networks.

        A multiplication and an addition for each entry of the forward pass, and twice as many for
        the backward pass.
        """
        return None

    def task(
        self, *, workers: int, seed: int, device: str, backend: str, threads: int | None
    ) -> simulator.Task:
        """The task, for a cluster of `workers`; `seed` deals the training set.

        Raises:
            ValueError: network, data set, partition and workers do not fit together.
            DataMissingError: the data set is not there.
        """
        import torch

        given = {"dtype": getattr(torch, self.dtype)} if hasattr(self, "dtype") else {}
        return self.build(**given)  # type: ignore[no-any-return]


class LearntPart(TaskPart):
    """`task` where weights are learnt: from the task's own start, or from a file's.

    Attributes:
        initial_file: initial weights of the same network, `weights.safetensors` of a result or a
            state_dict of torch in that format; of one model, or of one for each member of the
            ensemble.
    """

    files: ClassVar[frozenset[str]] = frozenset({"initial_file"})
    initial_file: Annotated[str | None, BeforeValidator(absolute_path)] = None
    initial_file_sha256: FileHash = None

    def check_start(self, members: int) -> None:
        if self.initial_file is not None and (
            params := sum(layer.params for layer in self.layers())
        ):
            self._check_initial(self.initial_file, members, params, self.parameter_shapes)

    def parameter_shapes(self) -> Shapes:
        """The shapes of the parameters by their names in a state_dict, where they have names."""
        return {}

    def warm_start(self, task: Any, members: int) -> simulator.Task:
        if self.initial_file is not None:
            self._hash("initial_file")
            shapes = getattr(task, "shapes", dict)
            self._check_initial(self.initial_file, members, task.params, shapes)
            task = WarmStart(task, read_initial(self.initial_file, task.params, shapes()))
        return task  # type: ignore[no-any-return]

    def _check_initial(
        self, file: str, members: int, params: int, shapes: Callable[[], Shapes]
    ) -> None:
        try:
            found = count_initial(file, params, shapes)
        except ValueError as error:
            raise error_at("task", error) from None
        if found not in (1, members):
            problem = f"expected one model, or one for each of the {members} members, got {file} with {found}"
            raise ConfigError("task.initial_file", problem)


OPERATIONS = 6
"""Operations of a gradient for each multiplication of a forward pass."""


class TimingPart(TaskPart):
    """`task` where nothing is learnt."""

    learns = False
    measures_accuracy = False


def network_timing(
    network: str = "resnet50", image: int = 224, batch: int = 32, epoch: int = 1_281_167
) -> simulator.Timing:
    """A network of torchvision on images: nothing is learnt, but its layers say what takes how
    long.

    A message has 4 bytes a parameter; gradients are sent in buckets of its layers, and pipelines
    cut there; `cluster.compute.speed` makes seconds of its operations.

    Args:
        network: a classifier's name in torchvision, such as `resnet50` or `vgg16`.
        image: height and width of an image, in pixels.
        batch: samples in a mini-batch.
        epoch: samples in an epoch; ImageNet's by default.

    Raises:
        ValueError: torchvision has no such classifier, or it takes no image of this size.
        InvalidSettingError: `batch` or `epoch` is below 1.
    """
    return simulator.Timing(batch, epoch, network=vision_layers(network, image, batch))


class NetworkTimingPart(TimingPart):
    """`task` where a network of torchvision takes time, and nothing is learnt."""

    def fits(self, workers: int, device: str, backend: str = "auto") -> None:
        super().fits(workers, device, backend)
        try:
            self.layers()
        except ValueError as error:
            raise error_at("task", error) from None

    def operations(self) -> float | None:
        return float(OPERATIONS * sum(layer.work for layer in self.layers()))


class QuadraticPart(LearntPart):
    """`task` with closed forms: a quadratic, one for all workers or one for each."""

    measures_accuracy = False

    @property
    def workers_differ(self) -> bool:
        return bool(self.build().workers)

    def fits(self, workers: int, device: str, backend: str = "auto") -> None:
        super().fits(workers, device, backend)
        for key in ("shift", "scale"):
            if (own := getattr(self, key)) and len(own) != workers:
                raise ConfigError(
                    f"task.{key}", f"expected one for each of the {workers} workers, got {len(own)}"
                )
