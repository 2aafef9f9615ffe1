"""A claim's figure and its table: which of its numbers they show, and how."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Picture:
    """The claim's figure: a statistic against one of its keys, a line for each value of another.

    Attributes:
        of: its name among the numbers of `decide`.
        x: its key along the axis; `log_x` where that is logarithmic.
        y: what the axis upwards is called.
        lines: its key that tells lines apart.
        label: what a line is called, with its value for `{}`; by default a name by itself, and a
            number with its key.
        lost: what is said of seeds whose value is infinite: that they never got there, or diverged.
        bar: a criterion's bar, where it is a value of this axis; or so much above the mean of one
            of its settings.
        limits: of the axis upwards, where single seeds lie so far away that the means would not be
            seen.
        theory: the name, among the numbers of `decide`, of what theory has for the lines or for
            some of them.
    """

    of: str
    x: str
    y: str
    lines: str | None = None
    label: str | None = None
    xlabel: str | None = None
    log_x: bool = False
    log_y: bool = False
    lost: Literal["never", "diverged"] = "never"
    bar: float | tuple[str, float] | None = None
    limits: tuple[float, float] | None = None
    theory: str = ""


@dataclass(frozen=True)
class ClaimTable:
    """The claim's table, with the paper's numbers, where they are known, beside those measured
    here.

    Attributes:
        of: its name among the numbers of `decide`.
        rows, columns: its keys that make them.
        percent: whether numbers are shown times 100.
        paper: what the paper has, by row and column.
        source: of which experiment that is, and what of it is recalled.
        lost: as in `Picture`.
    """

    of: str
    title: str
    rows: str
    columns: str
    paper: Mapping[str, Mapping[Any, str]] = field(default_factory=dict)
    source: str = ""
    percent: bool = False
    lost: Literal["never", "diverged"] = "never"
