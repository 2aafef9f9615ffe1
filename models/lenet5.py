"""LeNet-5."""

from collections import OrderedDict
from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class LeNet5:
    """LeNet-5 for images of 28 x 28 pixels: two convolutions and three full layers, 61,706 parameters.

    The usual modern variant. Against the original: padding stands for the 32 x 32 frame, pooling takes the
    maximum, every second-layer map sees every first-layer map, units are ReLU, and the outputs are logits of a
    cross entropy. ReLU stands after pooling: the two commute, max(relu(a), relu(b)) = relu(max(a, b)), and there
    it has a quarter of the work.

    Source: LeCun, Bottou, Bengio, Haffner (1998), Gradient-based learning applied to document recognition.
    """

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """A fresh network from images `(batch, 1, 28, 28)` to logits `(batch, classes)`.

        Raises:
            ValueError: another shape.
        """
        if tuple(shape) != (1, 28, 28):
            raise ValueError(f"lenet5: expected inputs of shape (1, 28, 28), got {tuple(shape)}: use mlp or logistic")
        return nn.Sequential(
            OrderedDict(
                conv1=nn.Conv2d(1, 6, kernel_size=5, padding=2),
                pool1=nn.MaxPool2d(2),
                relu1=nn.ReLU(),
                conv2=nn.Conv2d(6, 16, kernel_size=5),
                pool2=nn.MaxPool2d(2),
                relu2=nn.ReLU(),
                flatten=nn.Flatten(),
                full1=nn.Linear(16 * 5 * 5, 120),
                relu3=nn.ReLU(),
                full2=nn.Linear(120, 84),
                relu4=nn.ReLU(),
                full3=nn.Linear(84, classes),
            )
        )
