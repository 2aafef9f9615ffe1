"""A question that users ask: its studies, their measures, and the function that decides it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from laggard.experiments.questions.words import Judgement, SeedEstimate, Word, judge

if TYPE_CHECKING:
    import pandas as pd

Mark = Literal["read", "notes", "recalled", "derived", ""]


@dataclass(frozen=True)
class Study:
    """A sweep whose runs answer a question.

    Attributes:
        config: the name of its file in `configs/studies`, which `laggard sweep` can run too.
        measures: the measures of each run, by the names of `measures.py`.
        probe: the name of a probe, which computes numbers during the runs; in place of `measures`.
    """

    config: str
    measures: tuple[str, ...] = ()
    probe: str = ""


@dataclass(frozen=True)
class LeagueStudy:
    """A league, in which each method chooses its own settings within one budget of gradients.

    Attributes:
        cluster: the name of a file in `configs/clusters`.
        task: the name of a file in `configs/league`.
        methods: the methods that play, besides the opponents of every league.
        overrides: changes of the cluster and of the task, as `key=value`.
        budget, seeds: the options of `laggard league`.
    """

    cluster: str
    task: str
    methods: tuple[str, ...]
    overrides: tuple[str, ...] = ()
    budget: float = 25
    seeds: int = 12


@dataclass(frozen=True)
class Answer:
    """An answer to a question, which rests on one number.

    Attributes:
        asks: the question, or the part of it that this number answers.
        says: the answer in a few words.
        number: the estimate.
        unit: the text after the number, such as "points" or "times".
        paper: the claim of the papers in a few words; empty if they make none.
        source: the key of the paper with the claim; `notes` if no paper is known for it.
        mark: how the claim is known: read in the source, from notes on it, recalled (never with a
            bar), or derived from theory.
        at_least, at_most: the bar: the claim holds if the number lies between them.
        bar_of: whose bar it is.
        seen: whether the seeds had been seen before the bar, the rates or the statistic was fixed.
        opponent: the number of lost runs of the method compared with, and the number of its runs.
        first_said: the verdict of an earlier criterion, if it was another.
        wants: the wanted half-width of the 95 % interval, in the unit of the number.
        why: the reason why the numbers cannot give a verdict, such as a ceiling; else empty.
        beside: further numbers without a verdict, by description.
        case: the case of which this answer speaks, such as an optimiser, where several answers
            have the same `asks`.
    """

    asks: str
    says: str
    number: SeedEstimate
    unit: str = ""
    paper: str = ""
    source: str = ""
    mark: Mark = ""
    at_least: float = -np.inf
    at_most: float = np.inf
    bar_of: Literal["paper", "theory", "ours", ""] = ""
    seen: bool = False
    opponent: tuple[int, int] = (0, 0)
    first_said: str = ""
    wants: float | None = None
    why: str = ""
    beside: Mapping[str, SeedEstimate] = field(default_factory=dict)
    case: str = ""

    @property
    def judgement(self) -> Judgement:
        """The verdict on the papers' claim; none if there is no claim or no bar."""
        if not self.paper or (np.isinf(self.at_least) and np.isinf(self.at_most) and not self.why):
            return Judgement(Word.NONE)
        if self.why:
            return Judgement(Word.CANNOT_TELL, self.why)
        return judge(self.number, self.at_least, self.at_most, self.seen, self.opponent)


@dataclass(frozen=True)
class Picture:
    """The figure of a question: a measure against a setting, a line for each value of another.

    Attributes:
        measure: the measure, one of the table's; or `error`, 1 minus the accuracy, in %.
        x: the setting on the axis.
        lines: the setting that has a line for each value; empty for one line.
        panels: the setting that has a panel for each value; empty for one panel.
        where: settings that all shown rows have.
        order: names of settings on the axis from left to right; others follow.
    """

    measure: str
    x: str
    lines: str = ""
    panels: str = ""
    ylabel: str = ""
    xlabel: str = ""
    log_x: bool = False
    log_y: bool = False
    where: Mapping[str, object] = field(default_factory=dict)
    order: tuple[str, ...] = ()


@dataclass(frozen=True)
class Question:
    """A question, its studies, and the function that answers it.

    Attributes:
        name: the name of the question on the command line, of its card and of its table of numbers.
        asks: the question in one line.
        topic: the topic under which it is listed.
        setting: the training of the runs, in a few words.
        papers: the keys of the papers with claims on it.
        studies: the studies by name.
        decide: a function from the table of numbers to the answers. The first answers the question.
        fixed: keys that no override may set, with the reason: with a constant delay, for example,
            the number of workers has no effect.
        drawing: the figure of the question.
        tabulate: a function from the table of numbers to the rows of a table on the first page. The
            first row is the heading.
    """

    name: str
    asks: str
    topic: Literal["delay", "compensation", "networks", "waiting", "quadratic", "methods"]
    setting: str
    papers: tuple[str, ...]
    studies: Mapping[str, Study | LeagueStudy]
    decide: "Callable[[pd.DataFrame], list[Answer]]"
    fixed: Mapping[str, str] = field(default_factory=dict)
    drawing: Picture | None = None
    tabulate: "Callable[[pd.DataFrame], Iterable[list[str]]] | None" = None
