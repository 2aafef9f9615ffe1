"""The answers of a question on another data set or network, compared with the first ones."""

from collections.abc import Sequence
from pathlib import Path

from laggard.experiments.questions.question import Answer, Question
from laggard.experiments.questions.store import read_numbers
from laggard.experiments.questions.words import Word

FASHION = "fashion_mnist"
"""LeNet-5 on Fashion-MNIST."""
BY_FEW_SEEDS = {"resnet8": "with a ResNet-8 with batch normalisation on Fashion-MNIST"}
"""Places where too few seeds ran for a verdict, with the words that pages use."""
VERDICTS = (Word.AGREES, Word.DIFFERS, Word.CANNOT_TELL)
"""The words of new seeds about a paper's claim."""


def answers_with(place: str, question: Question, folder: Path) -> list[Answer]:
    """The answers of a question on another data set or network; none if it was not run there.

    Args:
        place: `FASHION` or one of `BY_FEW_SEEDS`, as in the name of the table of numbers.
        folder: the folder of the tables of numbers.

    Raises:
        ResultError: the file is no table of numbers.
    """
    table = read_numbers(f"{question.name}.{place}", folder)
    if table.empty:
        return []
    return question.decide(table)


def counterpart(answer: Answer, others: Sequence[Answer]) -> Answer | None:
    """The answer among `others` to the same part of a question; None if it was not run there.

    Some parts of a question have not run with each data set or network, so that their places
    differ.
    """
    for other in others:
        if (other.asks, other.case) == (answer.asks, answer.case):
            return other
    return None


def compare_answers(answer: Answer, other: Answer) -> str:
    """Compare an answer with that on another data set or network.

    If both have a verdict: `the same`, `other`, or `cannot tell there`. If one has none, or neither
    can tell, their 95 % intervals decide: `not told apart` if they overlap, else `other`.
    """
    word = answer.judgement.word
    other_word = other.judgement.word
    neither_tells = word is other_word is Word.CANNOT_TELL
    if word in VERDICTS and other_word in VERDICTS and not neither_tells:
        if word is other_word:
            return "the same"
        if other_word is Word.CANNOT_TELL:
            return "cannot tell there"
        return "other"
    shown = answer.number.shown
    other_shown = other.number.shown
    if shown.low <= other_shown.high and other_shown.low <= shown.high:
        return "not told apart"
    return "other"
