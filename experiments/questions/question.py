"""A question that users ask: the studies that answer it, what is taken from their runs, and what
decides.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from laggard.experiments.questions.words import Judgement, SeedEstimate, Word, judge

if TYPE_CHECKING:
    import pandas as pd

Mark = Literal["read", "notes", "recalled", "derived", ""]


@dataclass(frozen=True)
class Study:
    """Runs of a question.

    Attributes:
        config: the name of its file in `configs/studies`, which `laggard sweep` runs by itself.
        measures: what is taken from each run, by the names of `measures.py`.
        probe: what is computed along the runs instead, by the name of one of `probes`.
    """

    config: str
    measures: tuple[str, ...] = ()
    probe: str = ""


@dataclass(frozen=True)
class Answer:
    """An answer to a question, by one number.

    Attributes:
        asks: the question, or the part of it that this number answers.
        says: the answer in a few words.
        number: what it rests on.
        unit: what stands behind the number, as "points" or "times".
        paper: what papers say, in a few words; empty where they say nothing.
        source: the key of the paper that says so; `notes` where no paper is known for it.
        mark: how that is known: read in the source, from notes on it, recalled (never with a bar),
            or derived from theory.
        at_least, at_most: the bar that the paper's sentence sets.
        bar_of: whose the bar is.
        seen: whether the seeds had been seen before the bar, the rates or the statistic was fixed.
        opponent: runs lost by what it is compared with, and how many that had.
        first_said: the word of an earlier criterion, where it was another.
        wants: the half-width of the interval that is wanted, in the unit of the number.
        why: why no word can be said whatever the numbers are, as a ceiling; empty where it can.
        beside: further numbers, each under what it is; they carry no word.
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

    @property
    def judgement(self) -> Judgement:
        """The word about the paper's sentence; none where the papers say nothing or set no bar."""
        if not self.paper or (np.isinf(self.at_least) and np.isinf(self.at_most) and not self.why):
            return Judgement(Word.NONE)
        if self.why:
            return Judgement(Word.CANNOT_TELL, self.why)
        return judge(self.number, self.at_least, self.at_most, self.seen, self.opponent)


@dataclass(frozen=True)
class Picture:
    """The figure of a question: a measure against a setting, a line for each value of another.

    Attributes:
        measure: the measure, one of the table's.
        x: the setting on the axis.
        lines: the setting that has a line for each value; empty for one line.
        panels: the setting that has a panel for each value; empty for one panel.
        where: settings that are held.
        order: the settings on the axis from left to right, where they are names.
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
    """A question.

    Attributes:
        name: on the command line, of its card and of its table of numbers.
        asks: the question in one line.
        topic: the part of the page that it stands in.
        setting: what the runs train, in a few words.
        papers: keys of the papers that speak of it.
        studies: by name.
        decide: from the table of numbers to the answers, the first of which is the question's.
        fixed: keys that no override may set, each with the reason, as the number of workers where
            delays are constant.
        drawing: its figure.
    """

    name: str
    asks: str
    topic: Literal["delay", "compensation", "networks", "waiting", "quadratic"]
    setting: str
    papers: tuple[str, ...]
    studies: Mapping[str, Study]
    decide: "Callable[[pd.DataFrame], list[Answer]]"
    fixed: Mapping[str, str] = field(default_factory=dict)
    drawing: Picture | None = None
