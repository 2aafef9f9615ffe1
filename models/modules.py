"""Modules that torch lacks: parts of networks, and dropout with masks by a hash."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.nn.modules.dropout import _DropoutNd

GAMMA, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # of SplitMix64


class GrayToColour(nn.Module):
    """Images of one channel `(batch, 1, height, width)` as three equal channels."""

    def forward(self, x: Tensor) -> Tensor:
        return x.expand(-1, 3, -1, -1)


class BasicBlock(nn.Module):
    """relu(shortcut(x) + part(x)), with two convolutions of 3 x 3 and their norms in `part`.

    The shortcut has no parameters: where `part` halves the image and adds maps, it takes every
    second pixel and has zeros for the added maps (option A).
    """

    def __init__(self, part: nn.Sequential, stride: int, added: int) -> None:
        super().__init__()
        self.part = part
        self.stride = stride
        self.added = added

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x[..., :: self.stride, :: self.stride]
        widened = pad(shortcut, (0, 0, 0, 0, 0, self.added))
        outputs: Tensor = (widened + self.part(x)).relu()
        return outputs


def convolution_of_3(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    """A convolution of 3 x 3 without a bias; initial deviation sqrt(2 / (9 outputs)), for ReLU."""
    layer = nn.Conv2d(inputs, outputs, kernel_size=3, stride=stride, padding=1, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer


class CharacterEmbedding(nn.Embedding):
    """A vector for each character."""

    def forward(self, x: Tensor) -> Tensor:
        # data sets hold their inputs as floats, which are exact for so few characters
        return super().forward(x.long())


class Recurrence(nn.LSTM):
    """An LSTM from `(batch, positions, width)` to its outputs at every position."""

    def __init__(self, width: int) -> None:
        super().__init__(width, width, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        outputs: Tensor
        outputs, _ = super().forward(x)  # without the last state
        return outputs


class Embedding(nn.Module):
    """The sum of a vector for each character and one for each position, of deviation 0.02."""

    def __init__(self, characters: int, positions: int, width: int) -> None:
        super().__init__()
        self.character = nn.Parameter(0.02 * torch.randn(characters, width))
        self.position = nn.Parameter(0.02 * torch.randn(positions, width))

    def forward(self, x: Tensor) -> Tensor:
        # Data sets hold their inputs as floats, which are exact for so few characters.
        outputs: Tensor = nn.functional.embedding(x.long(), self.character) + self.position
        return outputs


class Residual(nn.Module):
    """x + part(norm(x))."""

    def __init__(self, width: int, part: nn.Module) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.part = part

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = x + self.part(self.norm(x))
        return outputs


class Attention(nn.Module):
    """Causal self-attention: softmax(Q K^T / sqrt(width / heads)) V of every head."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.inputs = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.inputs(x).unflatten(-1, (3, self.heads, -1))
        by_head = parts.movedim(-3, 0).transpose(-3, -2)
        queries, keys, values = by_head.unbind(0)  # (batch, heads, positions, width / heads)
        scale = queries.shape[-1] ** 0.5
        scores = queries @ keys.transpose(-1, -2) / scale
        everywhere = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device)
        is_later = everywhere.triu(1)  # a position must not see the characters that it predicts
        probabilities = scores.masked_fill(is_later, float("-inf")).softmax(-1)
        heads = probabilities @ values
        outputs: Tensor = self.output(heads.transpose(-3, -2).flatten(-2))
        return outputs


class Draws:
    """The state of the dropout masks in one forward pass.

    Attributes:
        key: an integer of 64 bits, a tensor `()`; None in evaluations, which drop nothing.
        calls: calls of dropout so far in the pass.
    """

    def __init__(self) -> None:
        self.key: Tensor | None = None
        self.calls = 0


class Dropout(nn.Module):
    """Dropout with masks by a hash: y = x m / (1 - p), where m is 0 with probability p and else 1.

    The mask is a function of the mini-batch, so that a gradient can be computed at any time. The
    c-th call of a forward pass has a seed: entry c of the SplitMix64 sequence of the mini-batch's
    key. Its mask is made from the SplitMix64 sequence of that seed, one entry for each number.

    Args:
        p: the probability that a number, or a channel, is dropped.
        spatial: the number of last dimensions that share an entry of the mask, such as those of a
            channel.
        draws: the state of the masks, shared by all layers of a network.

    Source: Srivastava et al. (2014), JMLR 15; Tompson et al. (2015), arXiv:1411.4280, of channels;
    Steele, Lea, Flood (2014), Fast splittable pseudorandom number generators, figure 16.
    """

    def __init__(self, p: float, spatial: int, draws: Draws) -> None:
        super().__init__()
        self.p = p
        self.spatial = spatial
        self.draws = draws

    def forward(self, x: Tensor) -> Tensor:
        key = self.draws.key
        if key is None:
            return x
        self.draws.calls += 1
        if self.p == 1:
            return x * 0.0
        shape = x.shape[: x.dim() - self.spatial]
        seed = mix(key + signed(GAMMA * self.draws.calls))
        # Of the 2^64 signed numbers, the share p below this one is dropped.
        threshold = min(round(self.p * 2.0**64), (1 << 64) - 1) - (1 << 63)
        kept = split_mix(seed, math.prod(shape)) >= threshold
        mask = kept.view(*shape, *[1] * self.spatial).to(x.dtype)
        return x * (mask * (1 / (1 - self.p)))


class Keyed(nn.Module):
    """A network with `Dropout`, whose input in training is a pair: `x`, and the samples' draws.

    In evaluations the input is `x` alone.
    """

    def __init__(self, network: nn.Module, draws: Draws) -> None:
        super().__init__()
        self.network = network
        self.draws = draws

    def forward(self, inputs: Tensor | Sequence[Tensor]) -> Tensor:
        if isinstance(inputs, Tensor):
            outputs: Tensor = self.network(inputs)
            return outputs
        x, drawn = inputs
        self.draws.key = key_of(drawn)
        self.draws.calls = 0
        try:
            outputs = self.network(x)
        finally:
            self.draws.key = None
        return outputs


def replace_dropout(module: nn.Module) -> None:
    """Replace torch's dropout, of numbers or of channels, within `module` by `Dropout`.

    Layers that drop nothing, by their probability or in evaluation mode, stay.
    """
    draws = Draws()
    for parent in list(module.modules()):
        for name, layer in list(parent._modules.items()):
            if type(layer) not in SPATIAL or not isinstance(layer, _DropoutNd):
                continue
            if layer.training and layer.p > 0:
                setattr(parent, name, Dropout(layer.p, SPATIAL[type(layer)], draws))


def with_draws(module: nn.Module) -> nn.Module:
    """`module`, or `Keyed` of it where it has `Dropout`."""
    for layer in module.modules():
        if isinstance(layer, Dropout):
            return Keyed(module, layer.draws)
    return module


SPATIAL: dict[type[nn.Module], int] = {
    nn.Dropout: 0,
    nn.Dropout1d: 1,
    nn.Dropout2d: 2,
    nn.Dropout3d: 3,
}
"""Torch's layers -> the number of last dimensions that share an entry of the mask."""


def key_of(drawn: Tensor) -> Tensor:
    """The key `()` of a mini-batch from its samples' draws `(batch,)`, in their order."""
    return split_mix(drawn, len(drawn)).sum()


def split_mix(seed: Tensor, count: int) -> Tensor:
    """Entries 1 to `count` of the SplitMix64 sequence of a seed `()`.

    With `count` seeds `(count,)`, entry i comes from the sequence of the i-th seed.
    """
    steps = torch.arange(1, count + 1, device=seed.device)
    return mix(seed + signed(GAMMA) * steps)


def mix(numbers: Tensor) -> Tensor:
    """The finaliser of SplitMix64, on unsigned 64 bits in a signed tensor."""
    numbers = (numbers ^ _shift(numbers, 30)) * signed(FIRST)
    numbers = (numbers ^ _shift(numbers, 27)) * signed(SECOND)
    return numbers ^ _shift(numbers, 31)


def signed(number: int) -> int:
    """The low 64 bits of `number`, as a signed integer."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _shift(numbers: Tensor, by: int) -> Tensor:
    """`numbers` shifted to the right, with zeros from the left."""
    return (numbers >> by) & ((1 << (64 - by)) - 1)
