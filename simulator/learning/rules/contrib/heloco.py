"""HeLoCo: late changes of a model that oppose the outer momentum are turned towards it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Annotated

from laggard.simulator.errors import NonNegative, Range, Settings

if TYPE_CHECKING:
    from torch import Tensor

LEAST_LENGTH = 1e-30
"""The least length by which a vector is divided; one of 0 has no direction."""


@dataclass(frozen=True)
class HeLoCo(Settings):
    """The outer step of a change D of a model, corrected by the momentum m, tensor by tensor.

    With u = D / |D|, v = m / |m|, c = u . v and conf = |D| / (|D| + kappa |m|), D becomes

        c >= aligned        D
        c < 0               D - b c |D| v,    b = min(-k_s c conf, most)
        else                |D| u' / |u'|,    u' = (1 - l) u + l v,    l = min(k_d (1 - c) conf, 1)

    and then m <- mu m + (1 - mu) D, w <- w - outer_lr (D + mu m), for the mu of `outer_momentum`.
    A change that opposes m loses a part of its component along m. A change across m is turned
    towards it and keeps its length. Where m = 0, a change stays as it is. The momentum is a mean,
    unlike that of `diloco`, whose learning rates therefore do not carry over. Vectors and matrices
    are corrected one by one, and the whole model at once where the task has none.

    Source: Asif et al. (2026), arXiv 2606.00271. The equations are those of a page of formulas that
    names the paper, `aligned` and `most` those of a public implementation. The strengths k_s, k_d
    and kappa were not found, and have no default.

    Attributes:
        shrinkage: k_s, how much a change that opposes the momentum is shortened.
        turning: k_d, how far a change across the momentum is turned.
        relative: kappa, the weight of the momentum's length in the confidence.
        aligned: the cosine from which on a change stays as it is.
        most: the largest share by which a change is shortened.
    """

    shrinkage: NonNegative
    turning: NonNegative
    relative: NonNegative
    aligned: Annotated[float, Range(least=0, most=1)] = 0.2
    most: Annotated[float, Range(least=0, most=1)] = 0.5

    def step(
        self,
        change: "Tensor",
        momentum: "Tensor",
        decay: float,
        lr: float,
        shapes: Mapping[str, Sequence[int]],
    ) -> "tuple[Tensor, Tensor]":
        """The step of the weights `(ensemble, params)`, and the next momentum.

        Args:
            decay: mu.
            shapes: the shapes of the parameters by name, in their order; none for a model of one
                vector.
        """
        import torch

        sizes = [prod(shape) for shape in shapes.values()] or [change.shape[1]]
        blocks = zip(change.split(sizes, dim=1), momentum.split(sizes, dim=1), strict=True)
        corrected = torch.cat([self.correct(own, reference) for own, reference in blocks], dim=1)
        momentum = decay * momentum + (1 - decay) * corrected
        return (corrected + decay * momentum) * -lr, momentum

    def correct(self, change: "Tensor", momentum: "Tensor") -> "Tensor":
        """The corrected change of one tensor `(ensemble, n)`."""
        length = change.norm(dim=1, keepdim=True)
        size = momentum.norm(dim=1, keepdim=True)
        own = change / length.clamp(min=LEAST_LENGTH)
        reference = momentum / size.clamp(min=LEAST_LENGTH)
        cosine = (own * reference).sum(dim=1, keepdim=True)
        confidence = length / (length + self.relative * size).clamp(min=LEAST_LENGTH)
        share = (-self.shrinkage * cosine * confidence).clamp(max=self.most)
        shortened = change - share * cosine * length * reference
        turn = (self.turning * (1 - cosine) * confidence).clamp(max=1.0)
        between = (1 - turn) * own + turn * reference
        turned = length * between / between.norm(dim=1, keepdim=True).clamp(min=LEAST_LENGTH)
        corrected: Tensor = shortened.where(cosine < 0, turned)
        return change.where((cosine >= self.aligned) | (size == 0), corrected)
