"""An invented language of known entropy, whose text is learnt a character at a time."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

ALPHABET = " abcdefghijklmnopqrstuvwxyz"
VOWELS = "aeiou"
CONSONANTS = "".join(letter for letter in ALPHABET[1:] if letter not in VOWELS)
SUCCESSORS = 6
"""Words that often follow a given word."""
HABIT = 0.8
"""The probability that the next word is one of these."""
LONGEST = 9


@dataclass(frozen=True)
class Language:
    """A Markov chain of words of alternating consonants and vowels, with a space after each.

    Of all words, the i-th is drawn in proportion to 1 / i (Zipf's law), and common words are short. The next word is
    with probability 0.8 one of the six preferred successors of this word, in proportion to 1 / rank, else any word.
    Since spaces separate the words, the entropy per character follows from the stationary distribution p of the chain P
    and the words' lengths l,

        H = - sum_i p_i sum_j P_ij log P_ij / sum_i p_i (l_i + 1)   nats,

    a lower bound of the mean loss of any model. Real text has no known entropy, and would have to be downloaded.

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
            kinds = (VOWELS, CONSONANTS) if rng.random() < 0.5 else (CONSONANTS, VOWELS)
            found["".join(str(rng.choice(list(kinds[at % 2]))) for at in range(min(length, LONGEST)))] = None
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
            habit[rng.choice(self.words, size=few, replace=False, p=common)] = zipf[:few] / zipf[:few].sum()
        transitions: np.ndarray = HABIT * habits + (1 - HABIT) * common
        return transitions

    @cached_property
    def stationary(self) -> np.ndarray:
        """p, `(words,)`: how often each word occurs, p P = p."""
        balance = np.vstack([self.transitions.T - np.eye(self.words), np.ones(self.words)])
        p: np.ndarray = np.linalg.lstsq(balance, np.append(np.zeros(self.words), 1.0), rcond=None)[0]
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
            word = min(int(cumulated[word].searchsorted(rng.random(), side="right")), self.words - 1)
        return (" ".join(written) + " ")[:characters]
