"""Small colour images of a few classes, which a network can learn in some updates."""

from itertools import islice

import numpy as np
import torch

from laggard.models.data import Dataset


def images(samples=256, classes=4, shape=(3, 8, 8), noise=0.5, seed=0):
    """A random picture for each class, and noise on it; a quarter as many images to test."""
    rng = np.random.default_rng(seed)
    pictures = rng.standard_normal((classes, *shape))
    labels = rng.integers(classes, size=samples + samples // 4)
    x = pictures[labels] + noise * rng.standard_normal((len(labels), *shape))
    x, y = torch.from_numpy(x).float(), torch.from_numpy(labels)
    return Dataset("images", x[:samples], y[:samples], x[samples:], y[samples:], classes)


def crops(x, numbers, crop):
    """The images of a mini-batch under augmentation, padded, cut and reflected one by one."""
    height, width = x.shape[2:]
    pictures = []
    for number in numbers.tolist():
        variant, sample = divmod(number, len(x))
        rest, column = divmod(variant, 2 * crop + 1)
        flip, row = divmod(rest, 2 * crop + 1)
        padded = np.pad(x[sample].numpy(), ((0, 0), (crop, crop), (crop, crop)))
        picture = padded[:, row : row + height, column : column + width]
        pictures.append(picture[:, :, ::-1].copy() if flip else picture)
    return torch.from_numpy(np.stack(pictures))


def drawn(task, seeds, count):
    """The first mini-batches of worker 0, from a stream of each seed."""
    streams = [np.random.default_rng(seed) for seed in seeds]
    return list(islice(task.batches(0, streams), count))
