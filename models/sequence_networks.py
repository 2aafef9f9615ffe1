"""Networks that predict the next character of a text: a small Transformer, an LSTM."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from laggard.models.layers import Description, Layer, linear, merge, pointwise

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Transformer:
    """A decoder that predicts the next character at every position of a text.

    The loss is the mean over positions. A block has causal self-attention and a layer of 4 `width`
    units with GELU, each with layer normalisation before it and a residual connection around it;
    embeddings of positions are learnt. There is no dropout.

    Source: Vaswani et al. (2017), arXiv:1706.03762; layer normalisation first: Xiong et al. (2020),
    arXiv:2002.04745.

    Attributes:
        width: numbers in the vector of a position.
        blocks: number of blocks.
        heads: attention heads of a block, a divisor of `width`.

    Raises:
        ValueError: fewer than one block or head, or a width that is not divisible by the heads.
    """

    width: int = 64
    blocks: int = 2
    heads: int = 4

    def __post_init__(self) -> None:
        if min(self.blocks, self.heads) < 1 or self.blocks > 100:
            got = f"blocks = {self.blocks}, heads = {self.heads}"
            raise ValueError(f"{got}: expected at least 1 of each, at most 100")
        if not 1 <= self.width <= 100_000 or self.width % self.heads:
            expected = f"a multiple of heads = {self.heads}, at most 100000"
            raise ValueError(f"width = {self.width}: expected {expected}")

    def build(self, shape: tuple[int, ...], classes: int) -> "nn.Module":
        """A fresh network from characters `(batch, positions)` to logits `(batch, positions,
        classes)`.

        Raises:
            ValueError: an input is not a sequence.
        """
        from torch import nn

        from laggard.models.modules import Attention, Embedding, Residual

        _check_sequences("transformer", shape)
        width = self.width
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        # Layers draw their initial weights in this order: another order is another network.
        layers["embedding"] = Embedding(classes, shape[0], width)
        for number in range(1, self.blocks + 1):
            layers[f"attention{number}"] = Residual(width, Attention(width, self.heads))
            widen = nn.Linear(width, 4 * width)
            narrow = nn.Linear(4 * width, width)
            part = nn.Sequential(widen, nn.GELU(), narrow)
            layers[f"feedforward{number}"] = Residual(width, part)
        layers["norm"] = nn.LayerNorm(width)
        layers["logits"] = nn.Linear(width, classes)
        return nn.Sequential(layers)

    def describe(self, shape: tuple[int, ...], classes: int) -> Description:
        """The network of `build`, without torch.

        Raises:
            ValueError: an input is not a sequence.
        """
        _check_sequences("transformer", shape)
        rows, width = shape[0], self.width
        norm = pointwise("norm", rows * width, params=2 * width)
        inputs = linear("inputs", width, 3 * width, rows)
        output = linear("output", width, width, rows)
        widen = linear("widen", width, 4 * width, rows)
        gelu = pointwise("gelu", 4 * rows * width)
        narrow = linear("narrow", 4 * width, width, rows)
        layers = [pointwise("embedding", rows * width, params=(classes + rows) * width)]
        for number in range(1, self.blocks + 1):
            layers.append(merge(f"attention{number}", [norm, inputs, output]))
            layers.append(merge(f"feedforward{number}", [norm, widen, gelu, narrow]))
        layers.append(norm)
        layers.append(linear("logits", width, classes, rows))
        return Description(layers, labels=shape, unfolds=False)


@dataclass(frozen=True)
class LSTM:
    """A recurrent network that predicts the next character at every position.

    The loss is the mean over positions. Characters are embedded as vectors of `width` numbers; each
    of the `depth` layers is an LSTM with as many units, and a linear layer follows the last one.
    States are 0 at the start of a text.

    Attributes:
        width: units of a layer, and numbers in the embedding of a character.
        depth: number of layers.

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
            ValueError: an input is not a sequence.
        """
        from torch import nn

        from laggard.models.modules import CharacterEmbedding, Recurrence

        _check_sequences("lstm", shape)
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        layers["embedding"] = CharacterEmbedding(classes, self.width)
        for number in range(1, self.depth + 1):
            layers[f"lstm{number}"] = Recurrence(self.width)
        layers["logits"] = nn.Linear(self.width, classes)
        return nn.Sequential(layers)

    def describe(self, shape: tuple[int, ...], classes: int) -> Description:
        """The network of `build`, without torch.

        Raises:
            ValueError: an input is not a sequence.
        """
        _check_sequences("lstm", shape)
        rows, width = shape[0], self.width
        matrices, biases = 8 * width**2, 8 * width
        params = matrices + biases
        layers = [pointwise("embedding", rows * width, params=classes * width)]
        for number in range(1, self.depth + 1):
            layers.append(
                Layer(f"lstm{number}", params, float(rows * width), float(rows * matrices))
            )
        layers.append(linear("logits", width, classes, rows))
        return Description(layers, labels=shape, unfolds=False)


def _check_sequences(name: str, shape: tuple[int, ...]) -> None:
    if len(shape) != 1:
        got = f"inputs of shape {tuple(shape)}"
        raise ValueError(f"{name}: expected sequences of characters, got {got}: use characters")
