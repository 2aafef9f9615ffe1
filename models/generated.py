"""Data sets that are generated from random numbers, one of them text of an invented language, and
their sizes.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from laggard.models.data import Dataset, channels_last

ALPHABET = " abcdefghijklmnopqrstuvwxyz"
VOWELS = "aeiou"
CONSONANTS = "".join(letter for letter in ALPHABET[1:] if letter not in VOWELS)
SUCCESSORS = 6
"""Words that often follow a given word."""
HABIT = 0.8
"""The probability that the next word is one of these."""
LONGEST = 9


def synthetic(
    samples: int = 1000,
    features: int = 20,
    classes: int = 4,
    separation: float = 2.0,
    seed: int = 0,
) -> Dataset:
    """Gaussian blobs: a unit cloud around each of `classes` random centres; a quarter as many
    samples to test.

    The centres lie, in root mean square, `separation` from the origin, whatever the number of
    features.

    Args:
        samples: to train.
        features: numbers in an input.
        classes: how many clouds there are.
        separation: of the centres, in deviations of a cloud.
        seed: of centres and samples.

    Raises:
        ValueError: a size outside its range in `RANGES`.
    """
    check_sizes(synthetic, samples=samples, features=features, classes=classes)
    import torch

    rng = np.random.default_rng(seed)
    centres = separation / np.sqrt(features) * rng.standard_normal((classes, features))
    labels = rng.integers(classes, size=samples + samples // 4)
    inputs = centres[labels] + rng.standard_normal((len(labels), features))
    x, y = torch.from_numpy(inputs).float(), torch.from_numpy(labels)
    return Dataset("synthetic", x[:samples], y[:samples], x[samples:], y[samples:], classes)


def synthetic_images(
    samples: int = 1000,
    classes: int = 10,
    channels: int = 3,
    size: int = 32,
    writers: int = 1,
    contrast: float = 0.1,
    seed: int = 0,
) -> Dataset:
    """Noisy images of coarse squares, a pattern a class: `(channels, size, size)`; a quarter as
    many samples to test.

    By default they have the shape of CIFAR-10; `classes: 100` has that of CIFAR-100, `channels: 1,
    size: 28, classes:
    62, writers: 100` that of FEMNIST. Patterns of 4 x 4 normal numbers, a number a square, for each
    class and each writer, moved together by up to two pixels, and a normal number a pixel as noise;
    writers take turns:

        x = (contrast class + contrast / 2 writer + noise) / sqrt(1 + 5 / 4 contrast^2)

    Args:
        samples: to train.
        classes: how many patterns there are.
        channels: numbers in a pixel.
        size: height and width of an image, in pixels.
        writers: how many there are, each with patterns of its own.
        contrast: deviation of the patterns over that of the noise.
        seed: of patterns and noise.

    Raises:
        ValueError: a size, or the contrast, outside its range in `RANGES`.
    """
    sizes = {
        "samples": samples,
        "classes": classes,
        "channels": channels,
        "size": size,
        "writers": writers,
    }
    check_sizes(synthetic_images, **sizes, contrast=contrast)
    import torch

    rng = np.random.default_rng(seed)
    total, shape = samples + samples // 4, (channels, size, size)
    of_class, of_writer = (
        contrast * rng.standard_normal((count, channels, 4, 4)) for count in (classes, writers)
    )
    labels, hands = rng.integers(classes, size=total), np.arange(total) % writers
    x, square = np.empty((total, *shape), dtype=np.float32), np.arange(size) * 4 // size
    for image, label, hand, moved in zip(
        x, labels, hands, rng.integers(-2, 3, size=(total, 2)), strict=True
    ):
        pattern = (of_class[label] + of_writer[hand] / 2)[:, square[:, None], square]
        image[:] = np.roll(pattern, moved, axis=(1, 2)) + rng.standard_normal(shape)
    images, y = (
        torch.from_numpy(x / np.float32(np.sqrt(1 + 1.25 * contrast**2))),
        torch.from_numpy(labels),
    )
    images = channels_last(images) if channels == 1 else images
    train, test = (images[:samples], y[:samples]), (images[samples:], y[samples:])
    return Dataset("synthetic_images", *train, *test, classes, hands[:samples])


@dataclass(frozen=True)
class Language:
    """A Markov chain of words of alternating consonants and vowels, with a space after each.

    Of all words, the i-th is drawn in proportion to 1 / i (Zipf's law), and common words are short.
    The next word is with probability 0.8 one of the six preferred successors of this word, in
    proportion to 1 / rank, else any word. Since spaces separate the words, the entropy per
    character follows from the stationary distribution p of the chain P and the words' lengths l,

        H = - sum_i p_i sum_j P_ij log P_ij / sum_i p_i (l_i + 1)   nats,

    a lower bound of the mean loss of any model. Real text has no known entropy, and would have to
    be downloaded.

    Source: Shannon (1948), A mathematical theory of communication, sections 2 to 7.

    Raises:
        ValueError: fewer than 2 words.
    """

    words: int = 200
    seed: int = 0

    def __post_init__(self) -> None:
        if self.words < 2:
            raise ValueError(f"words = {self.words}: expected at least 2")

    @cached_property
    def spellings(self) -> list[str]:
        """The words, the most common first."""
        rng = np.random.default_rng((self.seed, 0))
        found: dict[str, None] = {}
        while len(found) < self.words:
            # One more letter for each three times as many words, give or take one.
            length = 1 + int(np.log(1 + len(found)) / np.log(3)) + int(rng.integers(3))
            if rng.random() < 0.5:
                kinds = (VOWELS, CONSONANTS)
            else:
                kinds = (CONSONANTS, VOWELS)
            found[
                "".join(str(rng.choice(list(kinds[at % 2]))) for at in range(min(length, LONGEST)))
            ] = None
        return list(found)

    @cached_property
    def transitions(self) -> np.ndarray:
        """P, `(words, words)`: how likely the second word is to come after the first."""
        rng = np.random.default_rng((self.seed, 1))
        zipf = 1 / np.arange(1, self.words + 1)
        common = zipf / zipf.sum()
        habits = np.zeros((self.words, self.words))
        few = min(SUCCESSORS, self.words)
        for habit in habits:
            habit[rng.choice(self.words, size=few, replace=False, p=common)] = (
                zipf[:few] / zipf[:few].sum()
            )
        transitions: np.ndarray = HABIT * habits + (1 - HABIT) * common
        return transitions

    @cached_property
    def stationary(self) -> np.ndarray:
        """p, `(words,)`: how often each word occurs, p P = p."""
        balance = np.vstack([self.transitions.T - np.eye(self.words), np.ones(self.words)])
        p: np.ndarray = np.linalg.lstsq(balance, np.append(np.zeros(self.words), 1.0), rcond=None)[
            0
        ]
        return p

    @property
    def entropy(self) -> float:
        """H, nats a character."""
        of_words = -(self.transitions * np.log(self.transitions)).sum(axis=1)
        lengths = np.array([len(word) + 1 for word in self.spellings])
        return float(self.stationary @ of_words / (self.stationary @ lengths))

    def text(self, characters: int, rng: np.random.Generator) -> str:
        """A text of so many characters; the first word has the stationary distribution."""
        cumulated = self.transitions.cumsum(axis=1)
        word = int(rng.choice(self.words, p=self.stationary / self.stationary.sum()))
        written, length = [], 0
        while length < characters:
            written.append(self.spellings[word])
            length += len(self.spellings[word]) + 1
            word = min(
                int(cumulated[word].searchsorted(rng.random(), side="right")), self.words - 1
            )
        return (" ".join(written) + " ")[:characters]


def characters(
    samples: int = 20_000, positions: int = 32, words: int = 200, seed: int = 0
) -> Dataset:
    """Text of an invented language in pieces of `positions` characters; a label is the character
    that comes next.

    A tenth as many pieces to test; nothing to download. `Language(words, seed).entropy` is the
    least mean loss that any model can reach; the first characters of a piece, with little context,
    have a higher loss.

    Source: Shannon (1948), A mathematical theory of communication.

    Args:
        samples: pieces to train.
        positions: characters of a piece.
        words: of the language.
        seed: of language and text.

    Raises:
        ValueError: a size outside its range in `RANGES`.
    """
    check_sizes(characters, samples=samples, positions=positions, words=words)
    import torch

    pieces = samples + samples // 10
    text = Language(words, seed).text(pieces * positions + 1, np.random.default_rng((seed, 2)))
    codes = torch.tensor([ALPHABET.index(character) for character in text])
    x, y = codes[:-1].view(pieces, positions).float(), codes[1:].view(pieces, positions)
    return Dataset(
        "characters", x[:samples], y[:samples], x[samples:], y[samples:], classes=len(ALPHABET)
    )


RANGES: dict[Callable[..., Dataset], dict[str, tuple[float, float]]] = {
    synthetic: {"samples": (4, 10**6), "features": (1, 10**5), "classes": (2, 10**4)},
    synthetic_images: {
        "samples": (4, 10**6),
        "classes": (2, 10**4),
        "channels": (1, 100),
        "size": (4, 1000),
        "writers": (1, 10**4),
        "contrast": (1e-6, 100),
    },
    characters: {"samples": (10, 10**6), "positions": (2, 10**4), "words": (2, 2000)},
}
"""The least and the greatest of each size of the data sets that are made, and of numbers that could
be none.
"""
MOST_NUMBERS = 10**8


def check_sizes(make: Callable[..., Dataset], **given: float) -> None:
    """Check the sizes of a data set that is made, without making it.

    Raises:
        ValueError: one is out of its range, or there are too many numbers in all.
    """
    ranges = RANGES.get(make, {})
    for name, (least, most) in ranges.items():
        if not least <= given[name] <= most:
            raise ValueError(f"{name} = {given[name]}: expected a number from {least} to {most}")
    shape = (given.get(name, 1) for name in ("features", "positions", "channels", "size", "size"))
    numbers = math.prod((given.get("samples", 1), *shape))
    if ranges and numbers > MOST_NUMBERS:
        raise ValueError(
            f"samples = {given['samples']}: expected at most {MOST_NUMBERS} numbers in "
            f"all, got {numbers}"
        )
