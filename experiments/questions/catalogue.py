"""The table of all questions, in the order in which pages and commands list them."""

from collections.abc import Sequence
from itertools import chain

from laggard.experiments.config.errors import ConfigError, suggest
from laggard.experiments.questions import (
    compensation,
    delay,
    gossip,
    leagues,
    quadratics,
    schedules,
    staleness_rates,
    waiting,
)
from laggard.experiments.questions.question import Question

TOPICS = (
    delay.QUESTIONS,
    schedules.QUESTIONS,
    staleness_rates.QUESTIONS,
    compensation.QUESTIONS,
    gossip.QUESTIONS,
    waiting.QUESTIONS,
    quadratics.QUESTIONS,
    leagues.QUESTIONS,
)
QUESTIONS = {question.name: question for question in chain(*TOPICS)}


def questions(names: Sequence[str] = ()) -> list[Question]:
    """The questions with these names; all questions if there are no names.

    Raises:
        ConfigError: a question is unknown.
    """
    for name in names:
        if name not in QUESTIONS:
            hint = suggest(name, QUESTIONS) or f"expected one of {', '.join(QUESTIONS)}"
            raise ConfigError("", f"unknown question; {hint}", name)
    return [QUESTIONS[name] for name in names or QUESTIONS]
