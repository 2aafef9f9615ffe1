"""Weights in a file from which a task starts, instead of its own initial weights."""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from laggard.models.files import wrong_file

if TYPE_CHECKING:
    from torch import Tensor

Shapes = Mapping[str, tuple[int, ...]]
WEIGHTS = "weights"
"""The only tensor in a result's file, `(members, params)`."""
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
"""What a state_dict has of batch normalisation beside parameters: here it follows from the training
set.
"""


class WarmStart:
    """A task whose members start from given weights; in all else it is that task.

    Example:
        >>> import torch
        >>> from laggard.models import Quadratic
        >>> WarmStart(Quadratic(dim=2), torch.tensor([[3.0, 4.0]])).start([0, 1])
        tensor([[3., 4.],
                [3., 4.]])

    Args:
        task: what is learnt.
        initial: weights `(1, params)` of all members, or `(ensemble, params)`.
    """

    def __init__(self, task: Any, initial: "Tensor") -> None:
        self._task, self._initial = task, initial

    def start(self, seeds: Sequence[int]) -> "Tensor":
        """The given weights `(ensemble, params)`, for as many members as there are seeds.

        Raises:
            ValueError: they are not of so many members or parameters.
        """
        own: Tensor = self._task.start(seeds)
        if self._initial.shape not in (own.shape, own[:1].shape):
            expected = f"{tuple(own[:1].shape)} or {tuple(own.shape)}"
            raise ValueError(
                f"initial weights: expected the shape {expected}, got {tuple(self._initial.shape)}"
            )
        return self._initial.to(own).expand_as(own).clone()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)


def count_initial(file: str, params: int, shapes: Callable[[], Shapes]) -> int:
    """How many models a safetensors file holds, found without torch: `weights` of a result, or one
    model's state_dict.

    Args:
        params: of the model.
        shapes: gives those of its parameters, by their names in a state_dict; none where it has no
            names.

    Raises:
        ValueError: neither, or of another model.
    """
    found = {
        name: shape for name, shape in _read_shapes(file).items() if not name.endswith(STATISTICS)
    }
    size = sum(map(prod, found.values()))
    if set(found) == {WEIGHTS} and (found[WEIGHTS][1:] == (params,) or size != params):
        if found[WEIGHTS][1:] != (params,):
            got = f"weights of the shape {found[WEIGHTS]}"
            raise wrong_file(
                "initial_file", file, f"weights (members, {params}), as many as the model has", got
            )
        return found[WEIGHTS][0]
    if size != params:
        raise wrong_file("initial_file", file, f"the model's {params} parameters", f"{size}")
    expected = shapes()
    if other := [name for name in {**expected, **found} if found.get(name) != expected.get(name)]:
        name, given = other[0], found.get(other[0], "none")
        if name in expected:
            problem = f"{name} of the shape {expected[name]}"
        else:
            problem = f"no parameter {name}"
        raise wrong_file("initial_file", file, problem, f"{given}")
    return 1


def read_initial(file: str, params: int, shapes: Shapes) -> "Tensor":
    """The models `(members, params)` in a file, with the parameters in the order of `shapes`; as in
    `count_initial`.
    """
    from safetensors.torch import load_file

    from laggard.models.flat import flatten

    found = load_file(file)
    if WEIGHTS in found and found[WEIGHTS].shape[1:] == (params,):
        return found[WEIGHTS]
    return flatten(found[name] for name in shapes)[None]


def _read_shapes(file: str) -> dict[str, tuple[int, ...]]:
    """The names and shapes of the tensors in a file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, "np") as tensors:
            return {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        reason = " ".join(str(error).split())
        raise wrong_file(
            "initial_file", file, "a safetensors file", reason.replace(":", "")
        ) from None
