"""Compressors, as pure functions of values `(ensemble, params)`, and the encoders of a node.

No size depends on a value, since one timeline serves all members of an ensemble: there are no
thresholds and no entropy coding.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from operator import add, sub
from typing import TYPE_CHECKING, Annotated, Literal

from laggard.simulator.errors import (
    InvalidSettingError,
    NonNegative,
    NonNegativeInt,
    PositiveInt,
    Range,
    Settings,
)
from laggard.simulator.learning.gradients import DROPPED, IN_FLIGHT, GradientPromise
from laggard.simulator.learning.promises import Derived, Promise, evaluate, known, total

if TYPE_CHECKING:
    from torch import Tensor

PositiveShare = Annotated[float, Range(above=0, most=1)]
BITS_PER_NUMBER = 32
"""Bits of an uncompressed number, and of an index."""
SHARE_ROUNDING = 1e-9
"""How far rounding may lift a share of the parameters above a whole number."""


def top_k(values: "Tensor", k: int) -> "Tensor":
    """Keep the k numbers of greatest magnitude of each member of `values` `(ensemble, params)`.

    Among equal magnitudes the lowest indices are kept, so that a member of an ensemble keeps the
    same numbers as a single run. k numbers and their indices are sent: 2 k / d models.

    Example:
        >>> import torch
        >>> top_k(torch.tensor([[1.0, -3.0, 3.0, 2.0]]), 2)
        tensor([[ 0., -3.,  3.,  0.]])
    """
    import torch

    order = values.abs().sort(dim=1, descending=True, stable=True).indices
    kept = order[:, :k]
    return torch.zeros_like(values).scatter(1, kept, values.gather(1, kept))


def keep_indices(values: "Tensor", indices: Sequence[int]) -> "Tensor":
    """Keep the numbers of `values` `(ensemble, params)` at k indices, the same for all members.

    Where the indices are drawn at random it is random-k. A receiver that draws the same ones needs
    no indices: k / d models are sent.
    """
    import torch

    mask = torch.zeros(values.shape[1], dtype=torch.bool)
    mask[list(indices)] = True
    return values.where(move_beside(values, mask), 0.0)


def move_beside(values: "Tensor", other: "Tensor") -> "Tensor":
    """`other` on the device of `values`; the program does not wait for a copy to a GPU."""
    if values.is_cuda:
        other = other.pin_memory()
    return other.to(values.device, non_blocking=True)


def count_kept(share: float, params: int) -> int:
    """k, the given share of `params`, rounded up; at least 1."""
    return max(1, math.ceil(share * params - SHARE_ROUNDING))


def size_of_kept(share: float, params: int, has_indices: bool) -> float:
    """The size in models of k numbers, with their indices or without; 1 at most.

    Args:
        share: k / params before k is rounded up; it is the size where nothing is learnt.
    """
    if params:
        share = count_kept(share, params) / params
    if has_indices:
        share = 2 * share
    return min(1.0, share)


def scaled_signs(values: "Tensor") -> "Tensor":
    """The signs of `values` `(ensemble, params)` times the mean magnitude of each member's numbers.

    C(v) = (|v|_1 / d) sign(v), the sign of 0 being 1. |v - C(v)|^2 = |v|^2 - |v|_1^2 / d.

    Example:
        >>> import torch
        >>> scaled_signs(torch.tensor([[1.0, -3.0, 0.0, 2.0]]))
        tensor([[ 1.5000, -1.5000,  1.5000,  1.5000]])
    """
    size = values.abs().mean(dim=1, keepdim=True)
    return size.where(values >= 0, -size)


def quantize(values: "Tensor", levels: int, uniform: "Tensor") -> "Tensor":
    """Round the numbers of `values` `(ensemble, params)` at random to s levels of their norm.

    C(v)_i = |v| sign(v_i) xi_i / s with xi_i the integer below s |v_i| / |v|, or with the
    probability of the fractional part p_i the one above. E C(v) = v, and
    E |C(v) - v|^2 = (|v| / s)^2 sum_i p_i (1 - p_i) <= min(d / s^2, sqrt(d) / s) |v|^2.

    Args:
        levels: s.
        uniform: `(params,)`, random numbers from 0 to 1, the same for all members.
    """
    import torch

    norm = values.norm(dim=1, keepdim=True)
    # where all numbers are 0, the result is 0 for any divisor
    places = values.abs() * levels / norm.clamp(min=torch.finfo(values.dtype).tiny)
    below = places.floor()
    xi = below + (uniform < places - below)
    rounded: Tensor = values.sign() * xi * norm / levels
    return rounded


@dataclass(frozen=True)
class Compress(Settings):
    """The compression of a node's messages: the compressor C, and the use of what it leaves out.

    With `feedback: ef`, error feedback, a node adds what it has not sent to its next value v, from
    e = 0 on:

        p = v + e,    it sends C(p),    e <- p - C(p)

    So the sum of its messages, plus e, is the sum of its values. Messages that are dropped go back
    into e. Take P workers in lock step with memories e_i, under plain SGD at a constant rate lr.
    Then w - lr mean_i e_i moves as w does without compression, with the same gradients.

    With `ef21` a node and its receivers hold an estimate h of its value, from h = 0 on. The node
    sends the compressed difference, and the receivers use the new h for the value:

        h <- h + C(v - h)

    Where values stand still, h tends to them. So workers whose optima differ reach the minimum of
    their mean loss, where `ef` at a constant rate stays near it.

    Both need a C of |v - C(v)|^2 <= (1 - delta) |v|^2 for a delta > 0, of the whole vector. With
    `none` what C leaves out is lost. Each node has its own memory, which restarts with the node's
    role after a crash.

    name      C                                       delta  size in models, for d numbers
    top_k     the k of greatest magnitude             k / d  2 k / d, with indices of 32 bits
    random_k  k at indices that all nodes draw alike  k / d  k / d
    sign      (|v|_1 / d) sign(v)                     1 / d  1 / 32 + 1 / d
    qsgd      rounded to s levels of |v|, unbiased    -      (1 + ceil(log2(s + 1))) / 32 + 1 / d

    The size is 1 at most. Draws depend on `coin`, the rank and the number of the message alone.

    Source: Stich, Cordonnier, Jaggi (2018), arXiv 1809.07599 (top_k, random_k); Karimireddy et al.
    (2019), arXiv 1901.09847, algorithms 1 and 2 (sign, ef; there with lr v for v); Alistarh et al.
    (2017), arXiv 1610.02132, section 3.1 (qsgd); Richtarik, Sokolov, Fatkhullin (2021), arXiv
    2106.05203 (ef21).

    Attributes:
        name: the name of the compressor C.
        keep: k / d of top_k and random_k; k is rounded up.
        levels: s of qsgd.
        feedback: the use of what C leaves out; qsgd needs none, since it is unbiased, and what it
            leaves out may be longer than its input.
        codec_seconds: the time (s) in which a node codes a message and decodes those that it gets.
        coin: the seed of random draws, independent of all other seeds.
    """

    name: Literal["top_k", "random_k", "sign", "qsgd"]
    keep: PositiveShare | None = None
    levels: PositiveInt | None = None
    feedback: Literal["ef", "ef21", "none"] = "ef"
    codec_seconds: NonNegative = 0.0
    coin: NonNegativeInt = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        for key, names in (("keep", ("top_k", "random_k")), ("levels", ("qsgd",))):
            value = getattr(self, key)
            if (value is None) == (self.name in names):
                expected = f"a number for {' and '.join(names)}, and null for others"
                raise InvalidSettingError("Compress", key, expected, value)
        if self.name == "qsgd" and self.feedback != "none":
            expected = "none for qsgd: what it leaves may be longer than what it was given"
            raise InvalidSettingError("Compress", "feedback", expected, self.feedback)

    @property
    def is_linear(self) -> bool:
        """Whether the sum of several messages can be sent in the size of one message."""
        return self.name == "random_k"

    def size(self, params: int) -> float:
        """The size of a message in models; terms in 1 / d are left out where nothing is learnt."""
        if self.keep is not None:
            return size_of_kept(self.keep, params, has_indices=self.name == "top_k")
        bits = 1
        if self.levels is not None:
            bits += math.ceil(math.log2(self.levels + 1))
        scale = 1 / params if params else 0.0
        return min(1.0, bits / BITS_PER_NUMBER + scale)

    def apply(self, values: "Tensor", rank: int, call: int) -> "Tensor":
        """C(values) `(ensemble, params)` in the message number `call` of node `rank`."""
        import numpy as np
        import torch

        params = values.shape[1]
        if self.keep is not None:
            kept = count_kept(self.keep, params)
            if kept >= params:
                return values
            if self.name == "top_k":
                return top_k(values, kept)
            alike = np.random.default_rng((self.coin, call))
            return keep_indices(values, alike.choice(params, kept, replace=False).tolist())
        if self.levels is not None:
            uniform = np.random.default_rng((self.coin, call, rank)).random(params)
            draws = torch.from_numpy(uniform).to(values.dtype)
            return quantize(values, self.levels, move_beside(values, draws))
        return scaled_signs(values)


class Whole:
    """A node's side of messages without compression: it sends its values, and forgets them.

    Attributes:
        size: the size of a message, in models.
        seconds: the time that coding a message and decoding others takes.
    """

    size = 1.0
    seconds = 0.0

    def encode_gradient(self, gradient: GradientPromise) -> GradientPromise:
        """The gradient with the value that the receivers use."""
        return gradient

    def encode_sum(self, gradients: Sequence[GradientPromise]) -> Sequence[GradientPromise]:
        """The gradients whose sum the receivers use for that of `gradients`."""
        return gradients

    def encode_change(self, change: "Tensor", gradient: GradientPromise) -> "Tensor":
        """The value that the receivers use for a change of a model `(ensemble, params)`, computed
        now.

        Args:
            gradient: one of the gradients that made the change; if it was dropped, so was the
                message.
        """
        return change


class Encoder(Whole):
    """A node's side of compression: the compressed values that it sends, and its memory.

    Args:
        numbers: gives each message its number, from 1 on. The encoders of a node that sends its
            model in parts share it, or messages of several parts would have the same draws.
    """

    def __init__(
        self, compress: Compress, rank: int, params: int, numbers: Iterator[int] | None = None
    ) -> None:
        self.size = compress.size(params)
        self.seconds = compress.codec_seconds
        self._compress = compress
        self._rank = rank
        self._learns = params > 0
        if numbers is None:
            numbers = count(1)
        self._numbers = numbers
        self._memory: Promise | None = None  # e, or h of ef21; None is 0
        self._sent: list[tuple[GradientPromise, Promise]] = []  # messages that may be dropped

    def encode(self, value: Promise, gradient: GradientPromise) -> Promise:
        """The value that the receivers use for `value` once they have the message.

        Args:
            gradient: one of the gradients that make up `value`; if it was dropped, so was the
                message.
        """
        if not self._learns:
            return value
        compress = partial(self._compress.apply, rank=self._rank, call=next(self._numbers))
        if self._compress.feedback == "none":
            return Derived((value,), compress)
        self._take_back()
        if self._compress.feedback == "ef21":
            message = self._memory = self._next_estimate(value, compress)
        else:
            whole = value
            if self._memory is not None:
                whole = Derived((value, self._memory), add)
            message = Derived((whole,), compress)
            self._memory = Derived((whole, message), sub)
        self._sent.append((gradient, message))
        return message

    def encode_gradient(self, gradient: GradientPromise) -> GradientPromise:
        return gradient.map(lambda _, value: value, self.encode(gradient, gradient))

    def encode_sum(self, gradients: Sequence[GradientPromise]) -> Sequence[GradientPromise]:
        last = gradients[-1]
        message = self.encode(total(gradients), last)
        return [last.map(lambda _, value: value, message, batches=len(gradients))]

    def encode_change(self, change: "Tensor", gradient: GradientPromise) -> "Tensor":
        return self.encode(known(change), gradient).value

    def _take_back(self) -> None:
        """Add dropped messages back to e. An estimate h keeps them, as its receivers do."""
        dropped = [message for gradient, message in self._sent if gradient.status == DROPPED]
        self._sent = [sent for sent in self._sent if sent[0].status == IN_FLIGHT]
        if not dropped or self._memory is None:
            return
        if self._compress.feedback == "ef":
            self._memory = total([self._memory, *dropped])
        # Computed now: a memory that waits refers to the weights of all gradients dropped in a row.
        evaluate([self._memory])

    def _next_estimate(self, value: Promise, compress: "partial[Tensor]") -> Promise:
        if self._memory is None:
            return Derived((value,), compress)
        difference = Derived((value, self._memory), sub)
        message = Derived((difference,), compress)
        return Derived((self._memory, message), add)
