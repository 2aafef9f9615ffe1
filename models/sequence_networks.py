"""Networks that predict the next character of a text at every position: a small Transformer, an
LSTM.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from laggard.models.layers import Description, Layer, linear, merge, pointwise

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Transformer:
    """A decoder that predicts the next character at every position of a text: the loss is the mean
    over positions.

    Blocks of causal self-attention and a layer of 4 `width` units with GELU, each with layer
    normalisation before it and a residual connection around it; positions are learnt. Without
    dropout, so that a gradient is a function of weights and mini-batch.

    Source: Vaswani et al. (2017), arXiv:1706.03762; layer normalisation first: Xiong et al. (2020),
    arXiv:2002.04745.

    Attributes:
        width: numbers in the vector of a position.
        blocks: how many blocks there are.
        heads: of attention in a block; they divide `width`.

    Raises:
        ValueError: fewer than one block or head, or a width that is not divisible by the heads.
    """

    width: int = 64
    blocks: int = 2
    heads: int = 4

    def __post_init__(self) -> None:
        if min(self.blocks, self.heads) < 1 or self.blocks > 100:
            raise ValueError(
                f"blocks = {self.blocks}, heads = {self.heads}: expected at least 1 of "
                "each, at most 100"
            )
        if not 1 <= self.width <= 100_000 or self.width % self.heads:
            raise ValueError(
                f"width = {self.width}: expected a multiple of heads = {self.heads}, at most 100000"
            )

    def build(self, shape: tuple[int, ...], classes: int) -> "nn.Module":
        """A fresh network from characters `(batch, positions)` to logits `(batch, positions,
        classes)`.

        Raises:
            ValueError: an input is no sequence.
        """
        from torch import nn

        from laggard.models.modules import Attention, Embedding, Residual

        _check_sequences("transformer", shape)
        layers: OrderedDict[str, nn.Module] = OrderedDict(
            embedding=Embedding(classes, shape[0], self.width)
        )
        for number in range(1, self.blocks + 1):
            layers[f"attention{number}"] = Residual(self.width, Attention(self.width, self.heads))
            widen, narrow = (
                nn.Linear(self.width, 4 * self.width),
                nn.Linear(4 * self.width, self.width),
            )
            layers[f"feedforward{number}"] = Residual(
                self.width, nn.Sequential(widen, nn.GELU(), narrow)
            )
        return nn.Sequential(
            layers | {"norm": nn.LayerNorm(self.width), "logits": nn.Linear(self.width, classes)}
        )

    def describe(self, shape: tuple[int, ...], classes: int) -> Description:
        """The network of `build`, without torch.

        Raises:
            ValueError: an input is no sequence.
        """
        _check_sequences("transformer", shape)
        rows, width = shape[0], self.width
        norm = pointwise("norm", rows * width, params=2 * width)
        attention = [
            norm,
            linear("inputs", width, 3 * width, rows),
            linear("output", width, width, rows),
        ]
        widen, narrow = (
            linear("widen", width, 4 * width, rows),
            linear("narrow", 4 * width, width, rows),
        )
        feedforward = [norm, widen, pointwise("gelu", 4 * rows * width), narrow]
        found = [pointwise("embedding", rows * width, params=(classes + rows) * width)]
        for number in range(1, self.blocks + 1):
            found += [
                merge(f"attention{number}", attention),
                merge(f"feedforward{number}", feedforward),
            ]
        return Description(
            [*found, norm, linear("logits", width, classes, rows)], labels=shape, unfolds=False
        )


@dataclass(frozen=True)
class LSTM:
    """A recurrent network that predicts the next character at every position: the loss is the mean
    over positions.

    Characters are embedded as vectors of the `width`; each of the `depth` layers is an LSTM with as
    many units, whose outputs go into the next one, and the last one's into a linear layer. States
    are 0 at the start of a text.

    Attributes:
        width: units of a layer, and numbers that stand for a character.
        depth: layers.

    Source: Hochreiter, Schmidhuber (1997), Long short-term memory; forget gates: Gers, Schmidhuber,
    Cummins (2000).

    Raises:
        ValueError: a width or a depth below 1.
    """

    width: int = 64
    depth: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.width <= 10_000:
            raise ValueError(f"width = {self.width}: expected a number from 1 to 10000")
        if not 1 <= self.depth <= 100:
            raise ValueError(f"depth = {self.depth}: expected a number from 1 to 100")

    def build(self, shape: tuple[int, ...], classes: int) -> "nn.Module":
        """A fresh network from characters `(batch, positions)` to logits `(batch, positions,
        classes)`.

        Raises:
            ValueError: an input is no sequence.
        """
        from torch import nn

        from laggard.models.modules import CharacterEmbedding, Recurrence

        _check_sequences("lstm", shape)
        layers: OrderedDict[str, nn.Module] = OrderedDict(
            embedding=CharacterEmbedding(classes, self.width)
        )
        layers |= {f"lstm{number}": Recurrence(self.width) for number in range(1, self.depth + 1)}
        return nn.Sequential(layers | {"logits": nn.Linear(self.width, classes)})

    def describe(self, shape: tuple[int, ...], classes: int) -> Description:
        """The network of `build`, without torch.

        Raises:
            ValueError: an input is no sequence.
        """
        _check_sequences("lstm", shape)
        rows, width = shape[0], self.width
        matrices, biases = 8 * width**2, 8 * width
        recurrence = Layer("", matrices + biases, float(rows * width), float(rows * matrices))
        found = [pointwise("embedding", rows * width, params=classes * width)]
        found += [recurrence._replace(name=f"lstm{number}") for number in range(1, self.depth + 1)]
        return Description(
            [*found, linear("logits", width, classes, rows)], labels=shape, unfolds=False
        )


def _check_sequences(name: str, shape: tuple[int, ...]) -> None:
    if len(shape) != 1:
        raise ValueError(
            f"{name}: expected sequences of characters, got inputs of shape "
            f"{tuple(shape)}: use characters"
        )
