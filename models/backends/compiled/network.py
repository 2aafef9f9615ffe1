"""The compiled gradient of a network. Data are checked before: compiled code has no checks."""

import threading
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from laggard.models.backends import COMPILED, UNCOMPILED
from laggard.models.backends.autograd import Loss
from laggard.models.backends.compiled.compiler import Passes, compile_passes, describe_compiler
from laggard.models.backends.compiled.kernels import SAMPLES, Floats, Integers
from laggard.models.backends.compiled.layers import NotCompiledError
from laggard.models.backends.compiled.plan import Plan, build_plan
from laggard.models.variants import Indexable, tensor_of

LEFT_OUT = -100  # the label that torch's cross entropy leaves out

Data = tuple[Floats, Integers]  # inputs (samples, features), labels (samples,)


class Network:
    """A module's passes, compiled when they are first needed.

    Its methods return None where a module, a loss or data cannot be compiled; autograd takes those.
    One thread calls them. Any thread may call the functions that they return; each thread has its
    own working memory.
    """

    def __init__(self, module: nn.Module, loss: Loss) -> None:
        self._module = module
        self._smoothing = label_smoothing_of(loss)
        self._compiled: dict[tuple[int, ...], tuple[Plan, Passes] | None] = {}
        self._failed: set[tuple[int, ...]] = set()  # shapes whose passes could not be compiled
        self._key: tuple[int, ...] = ()
        self._tensors: tuple[Tensor, ...] = ()  # kept, so that their ids stay theirs
        self._data: Data | None = None
        self._own = threading.local()

    def differentiate(
        self,
        weights: Sequence[Tensor],
        x: Indexable,
        y: Indexable,
        index: Tensor,
        gradients: Tensor,
        losses: Tensor,
    ) -> Callable[[int], None] | None:
        """A function of a row that writes one model's gradient and loss.

        Args:
            weights: the weights of all models, in parts `(members, params)`.
            x: inputs `(samples, ...)`.
            y: labels `(samples,)`.
            index: mini-batches `(models, batch)`.
            gradients: the output, `(models, params)`.
            losses: the output, `(models,)`.

        Raises:
            IndexError: a label is not a class of the network, or an index is not of a sample.
        """
        compiled = self._compile(weights[0], tensor_of(x))
        if compiled is None:
            return None
        plan, passes = compiled
        batch_size = index.shape[1]
        # samples that depend on each other have to be in one pass; autograd refuses one alone
        if batch_size == 0 or (plan.batched and not 2 <= batch_size <= SAMPLES):
            return None
        data = self._check(tensor_of(x), tensor_of(y), plan.classes)
        if data is None:
            return None
        _check_range("index", index, len(x), "samples")
        rows = [row for part in weights for row in part.detach().contiguous().numpy()]
        batches = index.long().contiguous().numpy()
        to_gradients = gradients.numpy()
        to_losses = losses.numpy()
        has_variants = x is not tensor_of(x)
        smoothing = np.float32(self._smoothing)

        def job(row: int) -> None:
            inputs, labels = data
            batch = batches[row]
            if has_variants:  # variants are made for this mini-batch only
                inputs = x[index[row]].flatten(1).numpy()
                labels = y[index[row]].numpy()
                batch = np.arange(len(batch))
            network = plan.steps, plan.numbers, plan.tables, rows[row]
            to_losses[row] = passes.differentiate(
                *network, inputs, labels, batch, smoothing, to_gradients[row], self._space(plan)
            )

        return job

    def predict(self, weights: Tensor, x: Tensor) -> Callable[[int, slice], Tensor] | None:
        """A function of a row and some samples: the outputs `(samples, classes)` of one model."""
        compiled = self._compile(weights, x)
        if compiled is None:
            return None
        plan, passes = compiled
        if plan.batched:
            return None
        rows = weights.detach().contiguous().numpy()
        inputs = x.flatten(1).contiguous().numpy()

        def job(row: int, samples: slice) -> Tensor:
            index = np.arange(len(inputs))[samples]
            outputs = np.empty((len(index), plan.classes), np.float32)
            network = plan.steps, plan.numbers, plan.tables, rows[row]
            passes.predict(*network, inputs, index, outputs, self._space(plan))
            return torch.from_numpy(outputs)

        return job

    def arithmetic(self, x: Tensor) -> str:
        """A description of the code that computes gradients at inputs of the shape and type of `x`:
        equal descriptions on equal machines mean equal bits.
        """
        if self._compile(x, x) is not None:
            return f"{COMPILED}: {describe_compiler()}"
        if tuple(x.shape[1:]) in self._failed:
            return UNCOMPILED
        return "autograd"

    def _compile(self, weights: Tensor, x: Tensor) -> tuple[Plan, Passes] | None:
        """The plan and the passes for inputs of the shape of `x`, if they are compiled."""
        if self._smoothing is None or x.numel() == 0:
            return None
        if weights.dtype != torch.float32 or x.dtype != torch.float32:
            return None
        shape = tuple(x.shape[1:])
        if shape not in self._compiled:
            self._compiled[shape] = None  # also where a later line finds that it is not compiled
            try:
                plan = build_plan(self._module, shape)
            except NotCompiledError:
                return None
            passes = compile_passes()
            if passes is None:
                self._failed.add(shape)
                return None
            self._compiled[shape] = plan, passes
        return self._compiled[shape]

    def _check(self, x: Tensor, y: Tensor, classes: int) -> Data | None:
        """`x` and `y` as arrays; None where labels are probabilities, or where some are to be
        ignored.
        """
        # The same tensors, not changed in place since, need no second check.
        key = id(x), x._version, id(y), y._version
        if key == self._key:
            return self._data
        self._key = key
        self._tensors = (x, y)
        self._data = None
        if y.dtype == torch.int64 and y.shape == x.shape[:1] and not (y == LEFT_OUT).any():
            _check_range("label", y, classes, "classes")
            self._data = x.flatten(1).contiguous().numpy(), y.contiguous().numpy()
        return self._data

    def _space(self, plan: Plan) -> Floats:
        """This thread's working memory for a plan."""
        if getattr(self._own, "plan", None) is not plan:
            self._own.plan = plan
            self._own.space = np.zeros(plan.space, np.float32)
        space: Floats = self._own.space
        return space


def label_smoothing_of(loss: Loss) -> float | None:
    """The label smoothing of torch's cross entropy; None for any other loss."""
    if loss is cross_entropy:
        return 0.0
    if not isinstance(loss, partial) or loss.func is not cross_entropy:
        return None
    if loss.args or set(loss.keywords) != {"label_smoothing"}:
        return None
    return float(loss.keywords["label_smoothing"])


def _check_range(name: str, values: Tensor, count: int, what: str) -> None:
    lowest, highest = (int(value) for value in values.aminmax())
    if lowest < 0 or highest >= count:
        wrong = lowest if lowest < 0 else highest
        raise IndexError(
            f"{name} {wrong}: expected 0 to {count - 1}, since there are {count} {what}"
        )
