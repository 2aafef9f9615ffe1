"""Objectives: the mean loss of a network's outputs, and a regulariser of its weights."""

import math
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from laggard.models.data import LabelKind

if TYPE_CHECKING:
    from torch import Tensor

    from laggard.models.backends.autograd import Loss


@dataclass(frozen=True)
class Objective:
    """The mean loss of a mini-batch, and a non-convex regulariser of all weights.

    f(w) = (1/B) sum_b loss(o_b, y_b) + regularizer sum_i w_i^2 / (1 + w_i^2), for outputs o_b and
    labels y_b.

    Attributes:
        regularizer: the factor of a non-convex regulariser of all weights.
        label_kind: the kind of labels that the loss accepts, as in `Dataset`.

    Raises:
        ValueError: `regularizer` is negative or infinite.
    """

    label_kind: ClassVar[LabelKind] = "classes"
    regularizer: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        if not 0 <= self.regularizer < math.inf:
            raise ValueError(f"regularizer = {self.regularizer}: expected a finite number >= 0")

    def check_label_kind(self, label_kind: LabelKind) -> None:
        """Raise `ValueError` unless the loss takes labels of `label_kind`."""
        if label_kind == self.label_kind:
            return
        names = {objective: name for name, objective in OBJECTIVES.items()}
        fitting = [name for kind, name in names.items() if kind.label_kind == label_kind]
        name = names.get(type(self), type(self).__name__)
        expected = f"expected {' or '.join(fitting)}, since labels are {label_kind}"
        raise ValueError(f"loss = {name}: {expected}")

    def outputs(self, classes: int) -> int:
        """The number of outputs of a network for `classes` classes.

        Raises:
            ValueError: the loss is for another number of classes.
        """
        return classes

    def function(self) -> "Loss":
        """The mean loss, a scalar, of outputs `(batch, outputs)` and labels `(batch,)`."""
        raise NotImplementedError

    def predict(self, outputs: "Tensor") -> "Tensor":
        """The class `(...)` that outputs `(..., outputs)` stand for."""
        return outputs.argmax(dim=-1)

    def find_right(self, outputs: "Tensor", labels: "Tensor") -> "Tensor | None":
        """Whether each prediction equals its label; None where nothing is right or wrong."""
        return self.predict(outputs) == labels


@dataclass(frozen=True)
class FunctionLoss(Objective):
    """The objective of a given loss, a function of outputs and labels."""

    loss: "Loss"

    def function(self) -> "Loss":
        return self.loss


@dataclass(frozen=True)
class CrossEntropyLoss(Objective):
    """Cross entropy of the outputs' softmax with the labels, smoothed by `smoothing`.

    loss = -sum_k q_k log softmax(o)_k with q_k = smoothing / classes, and 1 - smoothing more for
    the label.

    Attributes:
        smoothing: the share of a label that is divided equally among all classes.

    Source: Szegedy et al. (2016), arXiv 1512.00567, section 7; `torch.nn.CrossEntropyLoss`.

    Raises:
        ValueError: `smoothing` is not from 0 to 1.
    """

    smoothing: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.smoothing <= 1:
            raise ValueError(f"smoothing = {self.smoothing}: expected a number from 0 to 1")

    def function(self) -> "Loss":
        from torch.nn.functional import cross_entropy

        if self.smoothing:
            return partial(cross_entropy, label_smoothing=self.smoothing)
        return cross_entropy


@dataclass(frozen=True)
class SquaredLoss(Objective):
    """Half the squared distance of the outputs from the label's unit vector.

    loss = 1/2 sum_k (o_k - [k = y])^2; of a linear network, least squares.
    """

    def function(self) -> "Loss":
        return squared_loss


@dataclass(frozen=True)
class LogisticLoss(Objective):
    """Binary logistic loss of one output, for two classes.

    loss = log(1 + exp(-s o)) with s = 1 for class 1 and -1 for class 0; of a linear network,
    logistic regression.

    Source: Cox (1958), The regression analysis of binary sequences; `torch.nn.BCEWithLogitsLoss`.
    """

    def outputs(self, classes: int) -> int:
        if classes != 2:
            raise ValueError(
                "loss = logistic: expected cross_entropy or squared, since there are "
                f"{classes} classes"
            )
        return 1

    def function(self) -> "Loss":
        return logistic_loss

    def predict(self, outputs: "Tensor") -> "Tensor":
        return (outputs[..., 0] > 0).long()


@dataclass(frozen=True)
class MeanSquaredLoss(Objective):
    """Squared error of one output, for labels that are numbers; there is no accuracy.

    loss = (o - y)^2; of a linear network, linear regression. `torch.nn.MSELoss`.
    """

    label_kind: ClassVar[LabelKind] = "numbers"

    def function(self) -> "Loss":
        return mean_squared_loss

    def find_right(self, outputs: "Tensor", labels: "Tensor") -> None:
        return None


@dataclass(frozen=True)
class BinaryLoss(Objective):
    """Binary cross entropy of an output for each class, for labels that are sets of classes.

    loss = mean_k log(1 + exp(-s_k o_k)) with s_k = 1 for a class k of the set and -1 for another. A
    class is predicted if its output is positive. A sample is right if its whole set is: the subset
    accuracy. `torch.nn.BCEWithLogitsLoss`.
    """

    label_kind: ClassVar[LabelKind] = "sets"

    def function(self) -> "Loss":
        return binary_loss

    def predict(self, outputs: "Tensor") -> "Tensor":
        return (outputs > 0).long()

    def find_right(self, outputs: "Tensor", labels: "Tensor") -> "Tensor":
        return (self.predict(outputs) == labels).all(dim=-1)


def check_scalar(name: str, loss: "Loss", outputs: "Tensor", labels: "Tensor") -> None:
    """Check that a loss is a scalar and has a gradient.

    Args:
        name: the name of the loss, for the error.
        outputs: the outputs of a few samples, `(batch, classes)`, or `(batch, positions, classes)`.
        labels: the labels of these samples.

    Raises:
        ValueError: it is no scalar tensor, or has no gradient.
    """
    from torch import Tensor, enable_grad

    with enable_grad():
        value = loss(outputs.requires_grad_(), labels)
    expected = "expected the mean loss of a mini-batch, a scalar tensor"
    if not isinstance(value, Tensor):
        raise ValueError(f"{name}: {expected}, got {type(value).__name__}")
    if value.dim() > 0:
        got = f"got shape {tuple(value.shape)} for {len(labels)} samples"
        raise ValueError(f"{name}: {expected}, {got}: take the mean")
    if not value.requires_grad:
        remedy = "compute it from the outputs, without detach, item or numpy"
        raise ValueError(f"{name}: {expected} with a gradient, got one without: {remedy}")


def squared_loss(outputs: "Tensor", targets: "Tensor") -> "Tensor":
    """Half the mean squared distance of outputs `(batch, classes)` from labels' unit vectors."""
    import torch

    units = (targets[:, None] == torch.arange(outputs.shape[1], device=outputs.device)).to(
        outputs.dtype
    )
    return (outputs - units).square().sum(dim=1).mean() / 2


def logistic_loss(outputs: "Tensor", targets: "Tensor") -> "Tensor":
    """The mean binary logistic loss of outputs `(batch, 1)` and labels `(batch,)` of 0 and 1."""
    from torch.nn.functional import binary_cross_entropy_with_logits

    return binary_cross_entropy_with_logits(outputs[:, 0], targets.to(outputs.dtype))


def mean_squared_loss(outputs: "Tensor", targets: "Tensor") -> "Tensor":
    """The mean squared error of outputs `(batch, 1)` for numbers `(batch,)`."""
    return (outputs[:, 0] - targets.to(outputs.dtype)).square().mean()


def binary_loss(outputs: "Tensor", targets: "Tensor") -> "Tensor":
    """The mean binary cross entropy of outputs and sets, both `(batch, classes)`."""
    from torch.nn.functional import binary_cross_entropy_with_logits

    return binary_cross_entropy_with_logits(outputs, targets.to(outputs.dtype))


def penalty(weights: "Tensor") -> "Tensor":
    """The regulariser sum_i w_i^2 / (1 + w_i^2), `(models,)`, of `weights` `(models, params)`.

    On a CPU a model at a time, so that the order of a sum does not depend on the other models.
    """
    import torch

    squares = weights.square()
    terms = squares / (1 + squares)
    if weights.device.type == "cpu":
        return torch.stack([row.sum() for row in terms])
    return terms.sum(dim=1)


def penalty_gradient(weights: "Tensor") -> "Tensor":
    """The gradient of `penalty`, 2 w / (1 + w^2)^2, shaped as `weights`."""
    return 2 * weights / (1 + weights.square()).square()


def penalty_curvature(weights: "Tensor") -> "Tensor":
    """The diagonal of the Hessian of `penalty`, (2 - 6 w^2) / (1 + w^2)^3, shaped as `weights`."""
    squares = weights.square()
    return (2 - 6 * squares) / (1 + squares) ** 3


OBJECTIVES: dict[str, type[Objective]] = {
    "cross_entropy": CrossEntropyLoss,
    "squared": SquaredLoss,
    "logistic": LogisticLoss,
    "mean_squared": MeanSquaredLoss,
    "binary": BinaryLoss,
}
LOSS_OF_LABELS: dict[LabelKind, str] = {
    "classes": "cross_entropy",
    "numbers": "mean_squared",
    "sets": "binary",
}
"""The default loss of each kind of labels."""
