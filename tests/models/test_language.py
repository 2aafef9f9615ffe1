"""The invented language is the Markov chain it says it is, and its entropy what the text's own
probability says.
"""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch

from laggard.models import Language, characters
from laggard.models.generated import ALPHABET, CONSONANTS, VOWELS

CHARACTERS = 400_000


@pytest.fixture(scope="module")
def language():
    return Language(words=60, seed=3)


@pytest.fixture(scope="module")
def written(language):
    """The numbers of the words of a long text, which may be cut off in the last."""
    number = {word: index for index, word in enumerate(language.spellings)}
    text = language.text(CHARACTERS, np.random.default_rng(0))
    assert len(text) == CHARACTERS
    return np.array([number[word] for word in text.split(" ")[:-1]])


def test_words_alternate_vowels_and_consonants(language):
    assert len(set(language.spellings)) == 60
    for word in language.spellings:
        kinds = [letter in VOWELS for letter in word]
        assert all(one != other for one, other in pairwise(kinds))
        assert set(word) <= set(VOWELS) | set(CONSONANTS)
    assert len(ALPHABET) == len(set(ALPHABET)) == 27


def test_words_have_stationary_distribution(language, written):
    assert language.transitions.sum(axis=1) == pytest.approx(np.ones(60))
    assert language.stationary @ language.transitions == pytest.approx(language.stationary)
    counts = np.bincount(written, minlength=60) / len(written)
    # Successive words depend on each other; four independent deviations leave room for that.
    deviation = np.sqrt(language.stationary / len(written))
    assert np.abs(counts - language.stationary).max() < 6 * deviation.max()


def test_entropy_matches_long_text(language, written):
    """Shannon, McMillan, Breiman: -log p(text) / characters converges to the entropy."""
    pairs = Counter(pairwise(written))
    log = sum(count * np.log(language.transitions[pair]) for pair, count in pairs.items())
    length = sum(len(language.spellings[word]) + 1 for word in written[1:])
    assert -log / length == pytest.approx(language.entropy, rel=0.01)


def test_label_is_next_character_across_pieces():
    data = characters(samples=50, positions=8, words=20, seed=1)
    x, y = torch.cat([data.train_x, data.test_x]), torch.cat([data.train_y, data.test_y])
    assert (data.shape, data.labels, data.classes, len(data.test_y)) == ((8,), (8,), 27, 5)
    assert torch.equal(x.flatten()[1:].long(), y.flatten()[:-1])
    text = "".join(ALPHABET[code] for code in x.flatten().long())
    spelt = set(Language(words=20, seed=1).spellings)
    assert set(text.split(" ")[:-1]) <= spelt
    assert torch.equal(characters(samples=50, positions=8, words=20, seed=1).train_x, data.train_x)
