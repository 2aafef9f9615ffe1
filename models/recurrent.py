"""The modules of a recurrent network on texts."""

from torch import Tensor, nn


class CharacterEmbedding(nn.Embedding):
    """A vector for each character."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.long())  # data sets hold their inputs as floats, which are exact for so few characters


class Recurrence(nn.LSTM):
    """An LSTM from `(batch, positions, width)` to its outputs at every position, without its last state."""

    def __init__(self, width: int) -> None:
        super().__init__(width, width, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        outputs: Tensor = super().forward(x)[0]
        return outputs
