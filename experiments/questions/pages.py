"""The generated pages: the first page, and the blocks of numbers in the cards and papers' pages."""

import os
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from types import MappingProxyType

import jinja2

from laggard.experiments.questions.catalogue import QUESTIONS
from laggard.experiments.questions.delay import RATE, SPEEDUP
from laggard.experiments.questions.elsewhere import (
    BY_FEW_SEEDS,
    FASHION,
    answers_with,
    compare_answers,
    counterpart,
)
from laggard.experiments.questions.numbers import reporting
from laggard.experiments.questions.papers import PAPERS, Paper
from laggard.experiments.questions.pictures import (
    describe_rates,
    has_picture,
    measure_picture,
    question_picture,
)
from laggard.experiments.questions.presentation import (
    interval_text,
    number_text,
    paper_text,
    seeds_text,
    speaker,
    word_text,
)
from laggard.experiments.questions.question import Answer, Question
from laggard.experiments.questions.store import read_numbers
from laggard.experiments.questions.words import Word, seeds_needed
from laggard.experiments.references import works
from laggard.experiments.results.files import whole_file

CARDS = Path("docs") / "questions"
PAPER_CARDS = Path("docs") / "papers"
BEGIN, END = "<!-- numbers -->", "<!-- /numbers -->"
FIRST = "first.md.jinja"


def write_pages(first: Path, folder: Path) -> list[Path]:
    """Draw the figures and write the first page, the cards and the papers' pages; return all paths.

    Args:
        first: the path of the first page; cards and papers' pages are in `docs` beside it.
        folder: the folder of the tables of numbers and of the figures.
    """
    written = []
    for name, question in QUESTIONS.items():
        table = read_numbers(name, folder)
        if not table.empty and has_picture(question, table):
            question_picture(question, table, folder / f"{name}.png")
            written.append(folder / f"{name}.png")
    for paper in PAPERS:
        points, _ = reporting(paper.points(read_numbers(paper.question, folder)))
        path = folder / f"{paper.key}.png"
        measure_picture(points, paper.drawing, paper.caption, paper.reported, path)
        written.append(path)
    for path, text in page_texts(first, folder).items():
        with whole_file(path) as part:
            part.write_text(text, encoding="utf-8")
        written.append(path)
    return written


def page_texts(first: Path, folder: Path) -> dict[Path, str]:
    """The texts of the first page, the cards and the papers' pages, by path, from stored numbers.

    Args:
        first, folder: the arguments of `write_pages`.
    """
    answers = {}
    fashion = {}
    by_few: dict[str, dict[str, list[Answer]]] = {}
    tables = {}
    texts = {}
    for name, question in QUESTIONS.items():
        table = read_numbers(name, folder)
        answers[name] = [] if table.empty else question.decide(table)
        fashion[name] = answers_with(FASHION, question, folder)
        by_few[name] = {
            says: answers_with(place, question, folder) for place, says in BY_FEW_SEEDS.items()
        }
        block = numbers_block(question, answers[name], fashion[name], by_few[name])
        if not table.empty and has_picture(question, table):
            picture = _seen_from(folder / f"{name}.png", first.parent)
            block = f"![{question.asks}](../../{picture})\n\n{block}"
        if not table.empty and question.tabulate is not None:
            tables[name] = table_block(question.tabulate(table))
            block = f"{tables[name]}\n\n{block}"
        card = first.parent / CARDS / f"{name}.md"
        texts[card] = with_numbers(card.read_text(encoding="utf-8"), block)
    rows = [(QUESTIONS[name], answer) for name, own in answers.items() for answer in own]
    for paper in PAPERS:
        picture = _seen_from(folder / f"{paper.key}.png", first.parent)
        block = f"![{paper.caption}](../../{picture})\n\n{paper_block(paper, rows)}"
        card = first.parent / PAPER_CARDS / f"{paper.key}.md"
        texts[card] = with_numbers(card.read_text(encoding="utf-8"), block)
    hero = _seen_from(folder / f"{RATE.name}.png", first.parent)
    caption = describe_rates(read_numbers(RATE.name, folder))
    speedup = ""
    if answers[SPEEDUP.name]:
        speedup = _seen_from(folder / f"{SPEEDUP.name}.png", first.parent)
    page = _first_page(answers, fashion, by_few, tables, hero, caption, speedup)
    return {first: page, **texts}


def _seen_from(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()


def numbers_block(
    question: Question,
    answers: Sequence[Answer],
    fashion: Sequence[Answer] = (),
    by_few: Mapping[str, Sequence[Answer]] = MappingProxyType({}),
) -> str:
    """The generated block of a card: a list of the answers, each with its further numbers.

    Args:
        fashion: the answers on Fashion-MNIST, perhaps to a part of the question only.
        by_few: likewise, the answers by few seeds, by the place where they ran.
    """
    if not answers:
        return f"Not run yet: `laggard reproduce {question.name} --dry-run` says what it takes."
    lines = []
    for answer in answers:
        lines.append(f"- **{answer.says}.** {_measured_text(answer)}.")
        on_fashion = counterpart(answer, fashion)
        if on_fashion is not None:
            lines.append(f"  - on Fashion-MNIST {elsewhere_text(answer, on_fashion)}")
        for place, others in by_few.items():
            there = counterpart(answer, others)
            if there is not None:
                lines.append(f"  - {place}: {_measured_text(there)}")
        middle = answer.number.median
        if middle is not None and not answer.number.missing:
            lines.append(f"  - median: {interval_text(middle)}")
        if answer.paper:
            verb = "says" if speaker(answer) == "theory" else "say"
            lines.append(f"  - {speaker(answer)} {verb} {word_text(answer)}")
        if answer.paper and answer.bar_of:
            lines.append(f"  - {_bar_text(answer)}")
        if answer.opponent[1]:
            lost, of = answer.opponent
            lines.append(f"  - the method that it is compared with loses {lost} of {of} runs")
        needed = None if answer.wants is None else seeds_needed(answer.number, answer.wants)
        if needed is not None:
            lines.append(f"  - an interval of ± {answer.wants:.2g} takes about {needed} seeds")
        for says, number in answer.beside.items():
            lines.append(f"  - {says}: {number_text(number)}")
    return "\n".join(lines)


def _measured_text(answer: Answer) -> str:
    """An estimate with its seeds, as in `0.75 (0.70, 0.82) times, 10 seeds`."""
    parts = [number_text(answer.number, answer.unit), seeds_text(answer)]
    return ", ".join(filter(None, parts))


def elsewhere_text(answer: Answer, other: Answer) -> str:
    """The comparison with another data set or network: `the same: 0.75 (0.70, 0.82) times`."""
    return f"{compare_answers(answer, other)}: {number_text(other.number, other.unit)}"


def table_block(rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown; the first row is its heading."""
    heading, *others = rows
    rule = ["---"] * len(heading)
    return "\n".join(f"| {' | '.join(row)} |" for row in (heading, rule, *others))


def paper_block(paper: Paper, rows: "Sequence[PageRow]") -> str:
    """The table of a paper's claims: a row per claim, with our number and the verdict."""
    lines = ["| the paper says | here | the same? |", "| --- | --- | --- |"]
    for question, answer in rows:
        if answer.source != paper.key or not answer.paper:
            continue
        here = f"[{answer.says}](../questions/{question.name}.md)"
        said = f"{paper_text(answer)} [{answer.mark}]"
        judgement = str(answer.judgement) or "–"
        lines.append(f"| {said} | {here}: {_measured_text(answer)} | {judgement} |")
    return "\n".join(lines)


def with_numbers(text: str, block: str) -> str:
    """A card with `block` between its two marks.

    Raises:
        ValueError: the card has no marks.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"expected {BEGIN} and {END} in the card")
    return f"{before}{BEGIN}\n{block}\n{END}{after}"


def _bar_text(answer: Answer) -> str:
    low, high = answer.at_least, answer.at_most
    sides = []
    if low > float("-inf"):
        sides.append(f"at least {low:g}")
    if high < float("inf"):
        sides.append(f"at most {high:g}")
    return f"bar, {_OWNERS[answer.bar_of]}: {' and '.join(sides)}"


_OWNERS = {"paper": "the paper's", "theory": "of theory", "ours": "ours"}


PageRow = tuple[Question, Answer]
"""A row of the first page."""


def _named(paper: Paper) -> str:
    """The authors and the year of a paper, as in `Lian et al. 2018`."""
    fields = works()[paper.key].fields
    authors = [author.split(",")[0] for author in fields["author"].split(" and ")]
    named = authors[0] if len(authors) == 1 else f"{authors[0]} et al."
    if len(authors) == 2:
        named = " and ".join(authors)
    return f"{named} {fields['year']}"


def _with_word(rows: Sequence[PageRow], *words: Word) -> list[PageRow]:
    """The rows whose answers have one of these verdicts."""
    return [(question, answer) for question, answer in rows if answer.judgement.word in words]


def _first_page(
    answers: dict[str, list[Answer]],
    fashion: dict[str, list[Answer]],
    by_few: dict[str, dict[str, list[Answer]]],
    tables: dict[str, str],
    hero: str,
    caption: str,
    speedup: str,
) -> str:
    first = [(QUESTIONS[name], own[0]) for name, own in answers.items() if own]
    every = [(QUESTIONS[name], answer) for name, own in answers.items() for answer in own]
    counts = dict.fromkeys(Word, 0)
    for _, answer in every:
        counts[answer.judgement.word] += 1
    differ = _with_word(every, Word.DIFFERS)
    agree = _with_word(first, Word.AGREES)
    cannot_tell = _with_word(first, Word.CANNOT_TELL)
    untested = _with_word(first, Word.NOT_DECIDED, Word.NONE)
    on_fashion = {}
    for name, others in fashion.items():
        for answer in answers[name]:
            other = counterpart(answer, others)
            if other is not None:
                on_fashion[answer.asks, answer.says] = elsewhere_text(answer, other)
    by_place: dict[str, list[PageRow]] = {}
    for name, places in by_few.items():
        for place, others in places.items():
            if others:
                by_place.setdefault(place, []).append((QUESTIONS[name], others[0]))
    template = resources.files("laggard") / "experiments" / "questions" / FIRST
    page = jinja2.Template(template.read_text(encoding="utf-8"), keep_trailing_newline=True)
    missing = [QUESTIONS[name] for name, own in answers.items() if not own]
    rendered: str = page.render(
        tested=[*differ, *agree, *cannot_tell],
        untested=untested,
        tables=[(QUESTIONS[name], text) for name, text in tables.items()],
        missing=missing,
        counts=counts,
        judged=sum(number for word, number in counts.items() if word is not Word.NONE),
        derived=sum(speaker(answer) == "theory" for _, answer in every if answer.judgement.word),
        hero=hero,
        caption=caption,
        speedup=speedup,
        Word=Word,
        fashion=on_fashion,
        by_place=by_place,
        cards=CARDS.as_posix(),
        papers={_named(paper): (PAPER_CARDS / f"{paper.key}.md").as_posix() for paper in PAPERS},
        read=sum(answer.mark == "read" for _, answer in every if answer.judgement.word),
        measured_text=_measured_text,
        number_text=number_text,
        paper_text=paper_text,
    )
    return rendered
