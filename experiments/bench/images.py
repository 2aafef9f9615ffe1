"""What is learnt in a bench: MNIST where it lies on this machine, else images of its shape."""

from dataclasses import replace

import numpy as np
import torch

from models import DATASETS, Dataset
from models.idx import FILES, data_root

SYNTHETIC = "synthetic images of MNIST's shape"


def mnist_is_here() -> bool:
    """Whether MNIST's files lie where laggard looks for them; nothing is downloaded."""
    return all((data_root() / "MNIST" / "raw" / file).is_file() for file in FILES)


def mnist_shaped(samples: int = 60_000, tested: int = 10_000) -> Dataset:
    """Ten random images under noise, as many and as large as MNIST's: they take as long, and mean nothing."""
    rng = np.random.default_rng(0)
    labels = rng.integers(10, size=samples + tested)
    noise = rng.standard_normal((len(labels), 28, 28, 1), dtype=np.float32)
    prototypes = rng.standard_normal((10, 28, 28, 1), dtype=np.float32)
    x = torch.from_numpy(noise + prototypes[labels]).movedim(-1, 1)  # the strides of our MNIST
    y = torch.from_numpy(labels)
    return Dataset("synthetic", x[:samples], y[:samples], x[samples:], y[samples:], classes=10)


def images(evaluated: int = 250) -> Dataset:
    """The images to learn, with no more than `evaluated` of those to test, since evaluations are not timed."""
    data = DATASETS["mnist"]() if mnist_is_here() else mnist_shaped()
    return replace(data, test_x=data.test_x[:evaluated], test_y=data.test_y[:evaluated])


def said() -> str:
    """What the images are called in a report."""
    return "MNIST" if mnist_is_here() else f"{SYNTHETIC}, since MNIST is not here"
