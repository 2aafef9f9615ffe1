"""Answers as text: numbers with their intervals, and the lines that a terminal shows."""

import math
from collections.abc import Iterator

from laggard.experiments.questions.question import Answer, Question
from laggard.experiments.questions.words import (
    LEAST_SEEDS,
    Interval,
    SeedEstimate,
    Word,
    seeds_needed,
)


def number_text(number: SeedEstimate, unit: str = "") -> str:
    """A number with its 95 % interval and its lost runs: `0.75 (0.70, 0.82) times`."""
    shown = number.shown
    text = interval_text(shown)
    if number.missing and number.median is not None:
        text = f"median {text}"
    if unit:
        text = f"{text} {unit}"
    if number.missing:
        text = f"{text}; not within the budget in {number.missing} of {number.seeds}"
    if number.lost:
        text = f"{text}; lost {number.lost} of {number.seeds}"
    return text


def interval_text(shown: Interval) -> str:
    """A value with the ends of its interval, rounded to two digits of the interval's width.

    Example:
        >>> interval_text(Interval(-0.3, -57.2, 0.4))
        '0 (-57, 0)'
        >>> interval_text(Interval(44.07, 41.07, math.inf))  # the upper end is a run that missed
        '44.1 (41.1, –)'
    """
    if math.isnan(shown.value):
        return "no mean"
    if math.isinf(shown.value):
        return "not within the budget"
    width = shown.high - shown.low
    if math.isinf(shown.high) and math.isfinite(shown.low):
        return f"{shown.value:.3g} ({shown.low:.3g}, –)"
    if not math.isfinite(width):
        return f"{shown.value:.3g}"
    if width <= 1e-9 * abs(shown.value):
        return f"{shown.value:,.3g}"
    digits = max(0, 1 - math.floor(math.log10(width)))
    # z: a small negative number is 0, not -0
    value, low, high = (f"{number:z,.{digits}f}" for number in shown)
    return f"{value} ({low}, {high})"


def paper_text(answer: Answer) -> str:
    """The papers' claim in quotation marks; a dash if there is none."""
    if not answer.paper:
        return "–"
    return f"“{answer.paper}”"


def speaker(answer: Answer) -> str:
    """Whose claim it is: `papers`, or `theory` if it is derived here."""
    if answer.mark == "derived":
        return "theory"
    return "papers"


def word_text(answer: Answer) -> str:
    """The claim and the verdict, with the verdict of an earlier criterion if it was another."""
    text = paper_text(answer)
    judgement = answer.judgement
    if judgement.word is not Word.NONE:
        text = f"{text}: {judgement}"
    if answer.first_said and answer.first_said != judgement.word:
        text = f"{text} (first said: {answer.first_said})"
    return text


def seeds_text(answer: Answer) -> str:
    """The number of seeds of an answer, and whether they ran before its criterion was fixed."""
    if not answer.number.seeds:
        return ""
    text = f"{answer.number.seeds} seeds"
    if answer.seen:
        text = f"{text} of earlier runs"
    return text


def lines(question: Question, answers: list[Answer], changes: str = "") -> Iterator[str]:
    """The lines that a terminal shows of the answers to a question.

    Args:
        changes: the overrides of the question's setting, as text.
    """
    setting = question.setting
    if changes:
        setting = f"{changes}; else as in: {setting}"
    yield f"{question.name}: {question.asks} [{setting}]"
    for answer in answers:
        says = answer.says
        if 0 < answer.number.seeds < LEAST_SEEDS:
            says = f"too few seeds to tell; by these: {says}"
        yield f"  {answer.asks} {says}"
        parts = [number_text(answer.number, answer.unit), seeds_text(answer)]
        yield f"      {', '.join(filter(None, parts))}"
        if answer.number.median is not None and not answer.number.missing:
            yield f"      median {interval_text(answer.number.median)}"
        if answer.paper:
            yield f"      {speaker(answer)}: {word_text(answer)}"
        if answer.wants is not None:
            needed = seeds_needed(answer.number, answer.wants)
            if needed is not None:
                yield f"      for an interval of +-{answer.wants:g} about {needed} seeds"
        for says, number in answer.beside.items():
            yield f"      beside: {says}: {number_text(number)}"
