"""What seeds say of each setting along a line, and how it is drawn: points, intervals, bands and references."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import NDArray
from scipy.stats import t as student

from experiments.figures.look import DASHES, LIGHT, MARKERS, PALETTE
from experiments.lines import CONFIDENCE

CURVE = 25  # a line of more settings than these is a curve
APART, BESIDE = 0.1, 0.035  # of a step from one name to the next: two lines, and a mean from its seeds
Numbers = NDArray[np.float64]


class Seeds(NamedTuple):
    """The seeds of one line.

    Attributes:
        at: where each setting lies on the axis, `(settings,)`.
        mean, low, high: of the values that are finite, with the mean's 95 % interval; of a single one itself.
        never: how many seeds of each setting have no finite value.
        seeds, values: of every setting and seed, where it lies on the axis and its value; NaN where that is not finite.
        named: whether settings are names, between which nothing lies.
    """

    at: Numbers
    mean: Numbers
    low: Numbers
    high: Numbers
    never: NDArray[np.int64]
    seeds: Numbers
    values: Numbers
    named: bool

    @property
    def is_curve(self) -> bool:
        """Whether it has too many settings for a point at each."""
        return len(self.at) > CURVE


def seeds(table: pd.DataFrame, x: str, names: list[Any] | None = None, aside: float = 0.0, log: bool = False) -> Seeds:
    """What the seeds of each setting `x` say.

    Args:
        table: a row per setting and seed, with its `value`.
        names: the settings in order, where they are names: they lie at 0, 1, ...
        aside: how many lines' widths this one lies beside the names.
        log: means and intervals are those of the logarithms, for values that are all above 0.
    """
    finite = table["value"].where(np.isfinite(table["value"]))
    given, back = (np.log, np.exp) if log else (np.asarray, np.asarray)
    by = pd.Series(given(finite), table.index).groupby(table[x], sort=names is None)
    mean, n = by.mean(), by.count()
    half = (student.ppf((1 + CONFIDENCE) / 2, np.maximum(n - 1, 1)) * by.std(ddof=1) / np.sqrt(n)).fillna(0)
    places = {name: place + APART * aside for place, name in enumerate(names)} if names else {}
    every, at = (np.array([places.get(each, each) for each in of], float) for of in (table[x], mean.index))
    return Seeds(
        at, *(back(each.to_numpy()) for each in (mean, mean - half, mean + half)), (by.size() - n).to_numpy(),
        every + (BESIDE if names else 0), finite.to_numpy(float), bool(names),
    )  # fmt: skip


def draw(axes: Axes, line: Seeds, number: int, label: str | None, lost: str = "never") -> None:
    """A curve in its band, or a point at each setting with its interval, and its seeds as light points.

    Seeds without a finite value are counted above the frame, with what is to be said of them.
    """
    look: dict[str, Any] = {"color": PALETTE[number % len(PALETTE)], "label": label}
    dash = DASHES[number % len(DASHES)]
    if line.is_curve:
        axes.plot(line.at, line.mean, linestyle=dash, **look)
        axes.fill_between(line.at, line.low, line.high, color=look["color"], alpha=0.18, lw=0)
        return
    look |= {"marker": MARKERS[number % len(MARKERS)], "linestyle": "none" if line.named else dash}
    half = [line.mean - line.low, line.high - line.mean]
    axes.errorbar(line.at, line.mean, half, markersize=4.5, elinewidth=1, capsize=2.5, **look)
    if len(line.values) > len(line.at):
        axes.scatter(line.seeds, line.values, s=13, color=look["color"], alpha=0.35, linewidths=0)
    for at, count in zip(line.at[line.never > 0], line.never[line.never > 0], strict=True):
        where = {"xy": (at, 1), "xycoords": axes.get_xaxis_transform(), "textcoords": "offset points"}
        above = 2 + 10 * number * (not line.named)  # names keep lines apart by themselves
        axes.annotate(f"{count} {lost}", xytext=(0, above), ha="center", fontsize="small", color=look["color"], **where)


def refer(axes: Axes, line: Seeds, label: str | None) -> None:
    """What others are held against, as theory: broad and light, beneath them."""
    axes.plot(line.at, line.mean, color=LIGHT, linewidth=6, zorder=1, label=label)


def reach(lines: list[Seeds], log: bool) -> tuple[float, float]:
    """From where to where the axis upwards goes: all seeds, and intervals as far as half of what the seeds span.

    The interval of a mean of few seeds can go where no value can, as below 0; there it ends at the frame.
    """
    values = np.concatenate([line.values[np.isfinite(line.values)] for line in lines] or [np.empty(0)])
    values = values[values > 0] if log else values
    if not len(values):
        return (0.1, 1.0) if log else (0.0, 1.0)
    given, back = (np.log, np.exp) if log else (np.asarray, float)
    low, high = given(values.min()), given(values.max())
    span = float(high - low) or abs(float(high)) / 10 or 1.0
    ends = np.concatenate([[line.low, line.high] for line in lines], axis=1)
    ends = given(np.maximum(ends, values.min() / 10)) if log else ends
    bottom = max(float(np.nanmin([low, *ends[0]])), low - span / 2)
    top = min(float(np.nanmax([high, *ends[1]])), high + span / 2)
    if not log and low >= 0 and bottom < span / 3:
        bottom = 0.0
    if not log and low >= 0 and high <= 1:  # shares and accuracies
        top = min(top, 1.0)
    margin = 0.04 * (top - bottom)
    return float(back(bottom - margin)), float(back(top + margin))
