"""Made-up tables of numbers, for tests of what decides a question."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

from laggard.experiments.questions.question import Answer
from laggard.experiments.questions.store import normalise
from laggard.experiments.questions.words import Word

CASES = pytest.mark.parametrize(
    ("value", "deviation", "seeds", "role", "word"),
    [
        ("right", 0.002, 10, "report", Word.AGREES),
        ("wrong", 0.002, 10, "report", Word.DIFFERS),
        ("right", 0.6, 10, "report", Word.CANNOT_TELL),
        ("right", 0.002, 5, "report", Word.CANNOT_TELL),
        ("right", 0.002, 10, "seen", Word.NOT_DECIDED),
    ],
)
"""Where the paper is right or wrong; with wide seeds, with few, with seeds that had been seen."""


def words(answers: Sequence[Answer]) -> list[Word]:
    """The word of each answer."""
    return [answer.judgement.word for answer in answers]


def rows(
    measure: str,
    values: Sequence[float],
    role: str = "report",
    study: str = "runs",
    **settings: Any,
) -> pd.DataFrame:
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


def table(*parts: pd.DataFrame) -> pd.DataFrame:
    """One table of several parts."""
    return normalise(pd.concat(parts, ignore_index=True))


def spread(mean: float, deviation: float, count: int) -> np.ndarray:
    """Numbers of a mean and a standard deviation that are exact, in a fixed order."""
    steps = np.linspace(-1, 1, count)
    steps = np.random.default_rng(count).permutation(steps)
    return mean + deviation * steps / steps.std(ddof=1)
