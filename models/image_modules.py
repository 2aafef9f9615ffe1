"""The modules of networks for images."""

from torch import Tensor, nn
from torch.nn.functional import pad


class GrayToColour(nn.Module):
    """Images of one channel `(batch, 1, height, width)` as three equal channels."""

    def forward(self, x: Tensor) -> Tensor:
        return x.expand(-1, 3, -1, -1)


class BasicBlock(nn.Module):
    """relu(shortcut(x) + part(x)), where `part` are two convolutions of 3 x 3 with norms and a ReLU between them.

    The shortcut has no parameters: where `part` halves the image and adds maps, it takes every second pixel and has
    zeros for the added maps (option A).
    """

    def __init__(self, part: nn.Sequential, stride: int, added: int) -> None:
        super().__init__()
        self.part, self.stride, self.added = part, stride, added

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x[..., :: self.stride, :: self.stride]
        outputs: Tensor = (pad(shortcut, (0, 0, 0, 0, 0, self.added)) + self.part(x)).relu()
        return outputs


def convolution_of_3(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    """A convolution of 3 x 3 without a bias, initialised for ReLU: deviation sqrt(2 / (9 outputs))."""
    layer = nn.Conv2d(inputs, outputs, kernel_size=3, stride=stride, padding=1, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer
