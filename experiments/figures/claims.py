"""The figure of a claim: a statistic against one of its keys, a line for each value of another."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from pandas.api.types import is_numeric_dtype

from laggard.experiments.figures.lines import label_text
from laggard.experiments.figures.style import (
    COUNT,
    DASHES,
    LIGHT,
    MARKERS,
    PALETTE,
    PLAIN,
    SPARSE,
    File,
    legend,
    name_ticks,
    styled_figure,
)
from laggard.experiments.results.statistics import half_width

if TYPE_CHECKING:
    from laggard.experiments.claims import Claim
    from laggard.experiments.claims.exhibits import Picture

SEED_KEY = "seed"
TICKS = 12
CLOSE = 0.02  # settings that lie closer than this, as a share of the axis, are not named each
CURVE = 25  # a line of more settings than these is a curve
# of a step from one name to the next: two lines, and a mean from its seeds
APART, BESIDE = 0.1, 0.035


class SeedPoints(NamedTuple):
    """The seeds of one line.

    Attributes:
        at: where each setting lies on the axis, `(settings,)`.
        mean, low, high: of the values that are finite, with the mean's 95 % interval; of a single
            one itself.
        never: how many seeds of each setting have no finite value.
        seeds, values: of every setting and seed, where it lies on the axis and its value; NaN where
            that is not finite.
        named: whether settings are names, between which nothing lies.
    """

    at: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    never: np.ndarray
    seeds: np.ndarray
    values: np.ndarray
    named: bool

    @property
    def is_curve(self) -> bool:
        """Whether it has too many settings for a point at each."""
        return len(self.at) > CURVE


def picture(claim: "Claim", table: pd.DataFrame, path: File = None, answer: str = "") -> Figure:
    """A claim's statistic: means over seeds with the 95 % interval of the mean, of the values that
    are finite.

    On a logarithmic axis they are means of logarithms, if all values have one. Single seeds are
    pale points beside their mean; those without a finite value, as one that never reached a loss,
    are counted above the frame. What theory has for a line lies beneath it.

    Args:
        table: a row per setting and seed, with the statistic as `value`.
        answer: what the caption says; by default the claim's question.

    Raises:
        ValueError: the claim has no figure, or the table not its keys.
    """
    drawn = claim.figure
    if drawn is None:
        raise ValueError(f"{claim.id} has no figure")
    for key in filter(None, (drawn.x, drawn.lines)):
        if key not in table:
            raise ValueError(f"{claim.id}: the statistic {drawn.of} has no key {key!r}")
    if drawn.lines:
        names = list(dict.fromkeys(table[drawn.lines]))
    else:
        names = [None]
    if is_numeric_dtype(table[drawn.x]):
        settings = None
    else:
        settings = list(dict.fromkeys(table[drawn.x]))
    log = drawn.log_y and bool((table["value"] > 0).all())
    with styled_figure(8, 4.2, path) as figure:
        axes = figure.subplots()
        lines = []
        for number, name in enumerate(names):
            if name is None:
                own = table
            else:
                own = table[table[drawn.lines] == name]
            lines.append(seeds(own, drawn.x, settings, number - (len(names) - 1) / 2, log))
            if "theory" in own:
                _draw_theory(axes, own, drawn.x, settings)
            draw_seeds(axes, lines[-1], number, _claim_label(drawn, name), drawn.lost)
        if (bar := _bar_height(table, drawn)) is not None:
            axes.axhline(bar, color=LIGHT, linestyle=":", linewidth=1.5, label="bar", zorder=1)
        _set_x_axis(axes, drawn, settings or sorted(set(table[drawn.x])), settings is not None)
        _set_y_axis(axes, drawn, lines, bar)
        legend(
            figure,
            axes,
            [f"{claim.id}: {answer or claim.question}{_note(table, lines, drawn, log)}"],
        )
    return figure


def _draw_theory(axes: Axes, table: pd.DataFrame, x: str, names: list[Any] | None) -> None:
    """What theory has for a line, where it says something, beneath it; the first of them is in the
    legend.
    """
    known = table.dropna(subset=["theory"]).drop_duplicates(x)
    if len(known):
        places = known[x].map(names.index) if names else known[x]
        if "theory" in axes.get_legend_handles_labels()[1]:
            label = None
        else:
            label = "theory"
        axes.plot(places, known["theory"], color=LIGHT, linewidth=6, zorder=1, label=label)


def _bar_height(table: pd.DataFrame, drawn: "Picture") -> float | None:
    """Where the bar lies, if there is one: a value, or so much above the mean of one setting."""
    if not isinstance(drawn.bar, tuple):
        return drawn.bar
    return (
        float(table.loc[table[drawn.x].astype(str) == drawn.bar[0], "value"].mean()) + drawn.bar[1]
    )


def _claim_label(drawn: "Picture", name: Any) -> str | None:
    """The label of a line: a name alone, a number with its key."""
    if name is None:
        return None
    if drawn.label is not None:
        return drawn.label.replace("{}", label_text(name))
    if isinstance(name, str):
        return name
    return label_text(name, str(drawn.lines))


def _set_x_axis(axes: Axes, drawn: "Picture", settings: list[Any], named: bool) -> None:
    """Set up the x axis, with the settings as ticks where they are few and well separated."""
    axes.set_xlabel(drawn.xlabel or drawn.x)
    if named:
        name_ticks(axes.xaxis, range(len(settings)), settings)
        axes.set_xlim(-0.5, len(settings) - 0.5)
        return
    places = np.array(settings, float)
    if drawn.log_x:
        positive = places[places > 0]
        if len(positive) < len(places):
            linear = {"linthresh": positive.min(), "linscale": 0.5}
        else:
            linear = {}
        axes.set_xscale("symlog" if linear else "log", **linear)
        places = np.log(np.maximum(places, positive.min() / 3))
    if len(settings) <= TICKS and np.all(np.diff(places) >= CLOSE * np.ptp(places)):
        axes.set_xticks(settings, [COUNT(setting) for setting in settings])
        axes.xaxis.set_minor_locator(NullLocator())


def _set_y_axis(axes: Axes, drawn: "Picture", lines: list[SeedPoints], bar: float | None) -> None:
    """Set up the y axis, with the bar; a logarithmic one of less than two decades has plain numbers
    as tick labels.
    """
    low, high = y_range(lines, drawn.log_y)
    if bar is not None and not drawn.log_y:
        beyond = 0.03 * (high - low)
        low, high = min(low, bar - beyond), max(high, bar + beyond)
    axes.set_ylabel(drawn.y)
    if drawn.log_y:
        axes.set_yscale("log")
        if high < 100 * low:
            axes.yaxis.set_minor_formatter(PLAIN if high < 3 * low else SPARSE)
        if low > 1e-4 and high < 1e4:
            axes.yaxis.set_major_formatter(PLAIN)
    axes.set_ylim(*(drawn.limits or (low, high)))


def _note(table: pd.DataFrame, lines: list[SeedPoints], drawn: "Picture", log: bool) -> str:
    """A note on the meaning of points and bars."""
    if SEED_KEY not in table or table[SEED_KEY].nunique() < 2:
        return ""
    least, most = (
        table.groupby([key for key in (drawn.x, drawn.lines) if key])[SEED_KEY].nunique()
    ).agg(["min", "max"])
    count = f"{most}" if least == most else f"{least} to {most}"
    if all(line.is_curve for line in lines):
        points = ""
    else:
        points = "; pale points are single seeds"
    points += ", some beyond the frame" * bool(points and drawn.limits)
    lost = {"never": "never get there", "diverged": "diverged"}[drawn.lost]
    if any(line.never.any() for line in lines):
        never = f", without those that {lost}"
    else:
        never = ""
    means = "Geometric means" if log else "Means"
    return f" {means} of {count} seeds{never}, 95 % intervals{points}."


def seeds(
    table: pd.DataFrame,
    x: str,
    names: list[Any] | None = None,
    aside: float = 0.0,
    log: bool = False,
) -> SeedPoints:
    """Statistics over the seeds of each setting `x`.

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
    half = half_width(by.std(ddof=1), n).fillna(0)
    if names:
        places = {name: place + APART * aside for place, name in enumerate(names)}
    else:
        places = {}
    every, at = (
        np.array([places.get(each, each) for each in of], float) for of in (table[x], mean.index)
    )
    middle, low, high = (
        np.asarray(back(each.to_numpy())) for each in (mean, mean - half, mean + half)
    )
    never, beside = (by.size() - n).to_numpy(), BESIDE if names else 0.0
    return SeedPoints(
        at, middle, low, high, never, every + beside, finite.to_numpy(float), bool(names)
    )


def draw_seeds(
    axes: Axes, line: SeedPoints, number: int, label: str | None, lost: str = "never"
) -> None:
    """A curve in its band, or a point at each setting with its interval, and its seeds as light
    points.

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
        above = 2 + 10 * number * (not line.named)  # names of lines already separate them
        axes.annotate(f"{count} {lost}", (at, 1), (0, above), axes.get_xaxis_transform(), "offset points", ha="center",
                      fontsize="small", color=look["color"])  # fmt: skip


def y_range(lines: list[SeedPoints], log: bool) -> tuple[float, float]:
    """The limits of the y axis: all seeds, and intervals up to half the range of the seeds beyond
    them.

    The interval of a mean of few seeds can go where no value can, as below 0; there it ends at the
    frame.
    """
    values = np.concatenate(
        [line.values[np.isfinite(line.values)] for line in lines] or [np.empty(0)]
    )
    values = values[values > 0] if log else values
    if not len(values):
        if log:
            return (0.1, 1.0)
        return (0.0, 1.0)
    given, back = (np.log, np.exp) if log else (np.asarray, float)
    low, high = given(values.min()), given(values.max())
    span = float(high - low) or abs(float(high)) / 10 or 1.0
    ends = np.concatenate([[line.low, line.high] for line in lines], axis=1)
    if log:
        ends = given(np.maximum(ends, values.min() / 10))
    else:
        ends = ends
    bottom = max(float(np.nanmin([low, *ends[0]])), low - span / 2)
    top = min(float(np.nanmax([high, *ends[1]])), high + span / 2)
    if not log and low >= 0 and bottom < span / 3:
        bottom = 0.0
    if not log and low >= 0 and high <= 1:  # shares and accuracies
        top = min(top, 1.0)
    margin = 0.04 * (top - bottom)
    return float(back(bottom - margin)), float(back(top + margin))
