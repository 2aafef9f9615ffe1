"""The answers of a question with another data set or network, and whether they are the same there."""

from pathlib import Path

from laggard.experiments.questions.question import Answer, Question
from laggard.experiments.questions.store import read_numbers
from laggard.experiments.questions.words import Word

FASHION = "fashion_mnist"
"""LeNet-5 on Fashion-MNIST."""
RESNET = "resnet8"
"""A ResNet-8 with batch normalisation on Fashion-MNIST, by few seeds: its answers get no verdict."""
TELLS = (Word.AGREES, Word.DIFFERS, Word.CANNOT_TELL)
"""The verdicts that rest on numbers alone, and not on what had been seen before."""


def answers_with(place: str, question: Question, folder: Path) -> list[Answer]:
    """The answers of a question with another data set or network; none where it was not run.

    Args:
        place: `FASHION` or `RESNET`, as in the name of the table of numbers.
        folder: the folder of the tables of numbers.

    Raises:
        ResultError: the file is no table of numbers.
    """
    table = read_numbers(f"{question.name}.{place}", folder)
    if table.empty:
        return []
    return question.decide(table)


def compare_answers(answer: Answer, other: Answer) -> str:
    """Compare the verdicts of two answers: `the same`, `other`, or `cannot tell there`. Where
    either has no verdict, compare the intervals: `not told apart` if they overlap, else `other`.
    """
    word, its_word = answer.judgement.word, other.judgement.word
    if word in TELLS and its_word in TELLS:
        if word is its_word:
            return "the same"
        return "cannot tell there" if its_word is Word.CANNOT_TELL else "other"
    shown, its = answer.number.shown, other.number.shown
    if shown.low <= its.high and its.low <= shown.high:
        return "not told apart"
    return "other"
