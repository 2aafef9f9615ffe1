"""Synthetic data sets, among them text of an invented language, and the ranges of their sizes."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from laggard.models.data import Dataset, channels_last

if TYPE_CHECKING:
    from torch import Tensor

ALPHABET = " abcdefghijklmnopqrstuvwxyz"
VOWELS = "aeiou"
CONSONANTS = "".join(letter for letter in ALPHABET[1:] if letter not in VOWELS)
SUCCESSORS = 6
"""Words that often follow a given word."""
HABIT = 0.8
"""The probability that the next word is one of these."""
MAX_LETTERS = 9


def synthetic(
    samples: int = 1000,
    features: int = 20,
    classes: int = 4,
    separation: float = 2.0,
    seed: int = 0,
) -> Dataset:
    """Gaussian blobs: a unit cloud around each of `classes` random centres.

    The centres lie, in root mean square, `separation` from the origin, whatever the number of
    features. The test set has a quarter as many samples as the training set.

    Args:
        samples: size of the training set.
        features: numbers in an input.
        classes: number of clouds.
        separation: the root mean square distance of a centre from the origin, in standard
            deviations of a cloud.
        seed: the seed of centres and samples.

    Raises:
        ValueError: a size outside its range in `RANGES`.
    """
    check_sizes(synthetic, samples=samples, features=features, classes=classes)
    import torch

    rng = np.random.default_rng(seed)
    centres = separation / np.sqrt(features) * rng.standard_normal((classes, features))
    labels = rng.integers(classes, size=samples + samples // 4)
    inputs = centres[labels] + rng.standard_normal((len(labels), features))
    x = torch.from_numpy(inputs).float()
    return _split_off_test("synthetic", x, torch.from_numpy(labels), samples, classes)


def _split_off_test(
    name: str, x: "Tensor", y: "Tensor", samples: int, classes: int, writers: Any = None
) -> Dataset:
    """A data set whose first `samples` are its training set."""
    test_x, test_y = x[samples:], y[samples:]
    return Dataset(name, x[:samples], y[:samples], test_x, test_y, classes, writers)


def synthetic_images(
    samples: int = 1000,
    classes: int = 10,
    channels: int = 3,
    size: int = 32,
    writers: int = 1,
    contrast: float = 0.1,
    seed: int = 0,
) -> Dataset:
    """Noisy images `(channels, size, size)` with a pattern of coarse squares for each class.

        x = (contrast class + contrast / 2 writer + noise) / sqrt(1 + 5 / 4 contrast^2)

    Each class and each writer has a pattern of 4 x 4 squares with normal numbers. In an image the
    two are moved together by up to two pixels, and every pixel has normal noise. Writers take
    turns. The test set has a quarter as many samples as the training set. By default images have
    the shape of CIFAR-10; with `classes: 100` that of CIFAR-100, and with `channels: 1, size: 28,
    classes: 62, writers: 100` that of FEMNIST.

    Args:
        samples: size of the training set.
        classes: number of classes.
        channels: numbers in a pixel.
        size: height and width of an image, in pixels.
        writers: number of writers.
        contrast: standard deviation of the patterns over that of the noise.
        seed: the seed of patterns and noise.

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
    total = samples + samples // 4
    shape = channels, size, size
    # The order of the draws is part of the data set: another order gives other images.
    class_patterns = contrast * rng.standard_normal((classes, channels, 4, 4))
    writer_patterns = contrast * rng.standard_normal((writers, channels, 4, 4))
    labels = rng.integers(classes, size=total)
    writer = np.arange(total) % writers
    moves = rng.integers(-2, 3, size=(total, 2))
    square = np.arange(size) * 4 // size  # the square of each row and column of pixels
    x = np.empty((total, *shape), dtype=np.float32)
    for index in range(total):
        pattern = class_patterns[labels[index]] + writer_patterns[writer[index]] / 2
        pixels = pattern[:, square[:, None], square]
        x[index] = np.roll(pixels, moves[index], axis=(1, 2)) + rng.standard_normal(shape)
    deviation = np.float32(np.sqrt(1 + 1.25 * contrast**2))
    images = torch.from_numpy(x / deviation)
    if channels == 1:
        images = channels_last(images)
    y = torch.from_numpy(labels)
    return _split_off_test("synthetic_images", images, y, samples, classes, writer[:samples])


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
        words: dict[str, None] = {}
        while len(words) < self.words:
            # One more letter for each three times as many words, give or take one.
            length = 1 + int(np.log(1 + len(words)) / np.log(3)) + int(rng.integers(3))
            kinds = CONSONANTS, VOWELS
            if rng.random() < 0.5:
                kinds = VOWELS, CONSONANTS
            word = ""
            for place in range(min(length, MAX_LETTERS)):
                word += str(rng.choice(list(kinds[place % 2])))
            words[word] = None  # a word that exists is drawn again
        return list(words)

    @cached_property
    def transitions(self) -> np.ndarray:
        """P, `(words, words)`: the probability that the second word follows the first."""
        rng = np.random.default_rng((self.seed, 1))
        zipf = 1 / np.arange(1, self.words + 1)
        common = zipf / zipf.sum()
        habits = np.zeros((self.words, self.words))
        few = min(SUCCESSORS, self.words)
        by_rank = zipf[:few] / zipf[:few].sum()
        for habit in habits:
            successors = rng.choice(self.words, size=few, replace=False, p=common)
            habit[successors] = by_rank
        transitions: np.ndarray = HABIT * habits + (1 - HABIT) * common
        return transitions

    @cached_property
    def stationary(self) -> np.ndarray:
        """p, `(words,)`: the frequency of each word, p P = p."""
        balance = np.vstack([self.transitions.T - np.eye(self.words), np.ones(self.words)])
        right_side = np.append(np.zeros(self.words), 1.0)
        p: np.ndarray
        p, *_ = np.linalg.lstsq(balance, right_side, rcond=None)
        return p

    @property
    def entropy(self) -> float:
        """H, nats per character."""
        of_words = -(self.transitions * np.log(self.transitions)).sum(axis=1)
        lengths = np.array([len(word) + 1 for word in self.spellings])
        return float(self.stationary @ of_words / (self.stationary @ lengths))

    def text(self, characters: int, rng: np.random.Generator) -> str:
        """A text with this number of characters; the first word is drawn from p."""
        cumulated = self.transitions.cumsum(axis=1)
        word = int(rng.choice(self.words, p=self.stationary / self.stationary.sum()))
        text, length = [], 0
        while length < characters:
            spelling = self.spellings[word]
            text.append(spelling + " ")
            length += len(spelling) + 1
            following = int(cumulated[word].searchsorted(rng.random(), side="right"))
            word = min(following, self.words - 1)  # a row may sum to less than 1 by rounding
        return "".join(text)[:characters]


def characters(
    samples: int = 20_000, positions: int = 32, words: int = 200, seed: int = 0
) -> Dataset:
    """Text of an invented language in pieces of `positions` characters; labels are next characters.

    The test set has a tenth as many pieces as the training set. `Language(words, seed).entropy` is
    a lower bound of the mean loss; the first characters of a piece, with little context, have a
    higher loss.

    Source: Shannon (1948), A mathematical theory of communication.

    Args:
        samples: pieces of the training set.
        positions: characters of a piece.
        words: number of words of the language.
        seed: the seed of language and text.

    Raises:
        ValueError: a size outside its range in `RANGES`.
    """
    check_sizes(characters, samples=samples, positions=positions, words=words)
    import torch

    pieces = samples + samples // 10
    text = Language(words, seed).text(pieces * positions + 1, np.random.default_rng((seed, 2)))
    codes = torch.tensor([ALPHABET.index(character) for character in text])
    x = codes[:-1].view(pieces, positions).float()
    y = codes[1:].view(pieces, positions)
    return _split_off_test("characters", x, y, samples, len(ALPHABET))


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
"""The smallest and the largest value of each size of the synthetic data sets."""
MAX_NUMBERS = 10**8


def check_sizes(make: Callable[..., Dataset], **sizes: float) -> None:
    """Check the sizes of a synthetic data set without making it.

    Raises:
        ValueError: a size is out of its range, or the data set has too many numbers.
    """
    ranges = RANGES.get(make)
    if ranges is None:
        return
    for name, (smallest, largest) in ranges.items():
        if not smallest <= sizes[name] <= largest:
            expected = f"a number from {smallest} to {largest}"
            raise ValueError(f"{name} = {sizes[name]}: expected {expected}")
    numbers = sizes["samples"]
    for name in ("features", "positions", "channels", "size", "size"):
        numbers *= sizes.get(name, 1)
    if numbers > MAX_NUMBERS:
        expected = f"at most {MAX_NUMBERS} numbers in all, got {numbers}"
        raise ValueError(f"samples = {sizes['samples']}: expected {expected}")
