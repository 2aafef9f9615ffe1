"""Initial weights of a task from a file."""

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
"""Running statistics of batch normalisation in a state_dict; laggard computes its own."""


class WarmStart:
    """A task that starts from other initial weights, and passes on everything else.

    Example:
        >>> import torch
        >>> from laggard.models import Quadratic
        >>> WarmStart(Quadratic(dim=2), torch.tensor([[3.0, 4.0]])).start([0, 1])
        tensor([[3., 4.],
                [3., 4.]])

    Args:
        task: any task.
        initial: weights `(1, params)` of all members, or `(ensemble, params)`.
    """

    def __init__(self, task: Any, initial: "Tensor") -> None:
        self._task = task
        self._initial = initial

    def start(self, seeds: Sequence[int]) -> "Tensor":
        """The initial weights `(ensemble, params)`, a member for each seed.

        Raises:
            ValueError: the number of members or of parameters differs.
        """
        task_weights: Tensor = self._task.start(seeds)
        all_members = task_weights.shape
        one_member = task_weights[:1].shape
        if self._initial.shape not in (all_members, one_member):
            expected = f"expected the shape {tuple(one_member)} or {tuple(all_members)}"
            raise ValueError(f"initial weights: {expected}, got {tuple(self._initial.shape)}")
        return self._initial.to(task_weights).expand_as(task_weights).clone()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)


def count_initial(file: str, params: int, shapes: Callable[[], Shapes]) -> int:
    """The number of models in a safetensors file: a result's `weights`, or one state_dict.

    Args:
        params: the number of parameters of the model.
        shapes: returns the shapes of its parameters by name; empty where parameters have no names.

    Raises:
        ValueError: the file holds neither, or another model.
    """
    stored = {}
    for name, shape in _read_shapes(file).items():
        if not name.endswith(STATISTICS):
            stored[name] = shape
    size = sum(map(prod, stored.values()))
    # A network may have one parameter called `weights`: then the shape decides.
    if set(stored) == {WEIGHTS}:
        shape = stored[WEIGHTS]
        if shape[1:] == (params,):
            return shape[0]
        if size != params:
            expected = f"weights (members, {params}), as many as the model has"
            got = f"weights of the shape {shape}"
            raise wrong_file("initial_file", file, expected, got)
    if size != params:
        raise wrong_file("initial_file", file, f"the model's {params} parameters", f"{size}")
    model = shapes()
    for name in {**model, **stored}:
        if stored.get(name) == model.get(name):
            continue
        expected = f"no parameter {name}"
        if name in model:
            expected = f"{name} of the shape {model[name]}"
        raise wrong_file("initial_file", file, expected, f"{stored.get(name, 'none')}")
    return 1


def read_initial(file: str, params: int, shapes: Shapes) -> "Tensor":
    """The models `(members, params)` in a file, with parameters in the order of `shapes`."""
    from safetensors.torch import load_file

    from laggard.models.flat import flatten

    stored = load_file(file)
    if WEIGHTS in stored and stored[WEIGHTS].shape[1:] == (params,):
        return stored[WEIGHTS]
    return flatten(stored[name] for name in shapes)[None]


def _read_shapes(file: str) -> dict[str, tuple[int, ...]]:
    """The names and shapes of the tensors in a file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, "np") as tensors:
            return {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        reason = " ".join(str(error).split()).replace(":", "")
        raise wrong_file("initial_file", file, "a safetensors file", reason) from None
