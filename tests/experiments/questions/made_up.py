"""Made-up tables of numbers, for tests of what decides a question."""

import numpy as np
import pandas as pd
import pytest

from laggard.experiments.questions.store import normalise
from laggard.experiments.questions.words import Word

CASES = pytest.mark.parametrize(
    ("right", "role", "word"),
    [
        (True, "report", Word.AGREES),
        (False, "report", Word.DIFFERS),
        (True, "seen", Word.NOT_DECIDED),
    ],
)
"""Where the paper is right or wrong, and with seeds that had been seen. What wide or few seeds mean
for a word, `test_words` says for all questions.
"""


def words(answers):
    """The word of each answer."""
    return [answer.judgement.word for answer in answers]


def mean_is(estimate, expected, **tolerance):
    """Assert the mean of an estimate."""
    assert estimate.mean.value == pytest.approx(expected, **tolerance), estimate


def rows(
    measure,
    values,
    role="report",
    study="runs",
    **settings,
):
    """A row a seed: a value that is NaN is a lost run. Seeds of another role are other seeds."""
    first = {"tune": 100, "report": 0, "seen": 200}[role]
    return pd.DataFrame(
        {
            **{name: [value] * len(values) for name, value in settings.items()},
            "study": study,
            "role": role,
            "seed": np.arange(first, first + len(values)),
            "measure": measure,
            "value": np.asarray(values, float),
            "lost": np.isnan(np.asarray(values, float)),
            "dataset": "digits",
            "model": "logistic",
            "device": "cpu",
            "run": "",
        }
    )


def table(*parts):
    """One table of several parts."""
    return normalise(pd.concat(parts, ignore_index=True))


def spread(mean, deviation, count):
    """Numbers of a mean and a standard deviation that are exact, in a fixed order."""
    steps = np.linspace(-1, 1, count)
    steps = np.random.default_rng(count).permutation(steps)
    return mean + deviation * steps / steps.std(ddof=1)
