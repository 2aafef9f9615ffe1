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
    span,
    styled_figure,
)
from laggard.experiments.results.statistics import half_width

if TYPE_CHECKING:
    from laggard.experiments.claims import Claim
    from laggard.experiments.claims.exhibits import Picture

SEED_KEY = "seed"
MAX_TICKS = 12
MIN_DISTANCE = 0.02  # of two named settings, as a share of the axis
MAX_POINTS = 25  # of a line; a longer one is a curve
# as a share of the distance between two names: between two lines, and from a mean to its seeds
LINE_OFFSET, SEED_OFFSET = 0.1, 0.035
REASONS = {"never": "never get there", "diverged": "diverged"}


class SeedPoints(NamedTuple):
    """The seeds of one line.

    Attributes:
        at: the place of each setting on the axis `(settings,)`.
        mean, low, high: of the finite values, with the 95 % interval of the mean; a single value
            is its own interval.
        never: the number of seeds of each setting without a finite value.
        seeds, values: the place on the axis and the value of each setting and seed; NaN where the
            value is not finite.
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
        return len(self.at) > MAX_POINTS


def picture(claim: "Claim", table: pd.DataFrame, path: File = None, answer: str = "") -> Figure:
    """A claim's statistic: means over seeds of the finite values, with their 95 % interval.

    On a logarithmic axis they are means of logarithms, if all values have one. Single seeds are
    pale points beside their mean; those without a finite value, as one that never reached a loss,
    are counted above the frame. Theory lies beneath its line.

    Args:
        table: a row per setting and seed, with the statistic as `value`.
        answer: the text of the caption; by default the claim's question.

    Raises:
        ValueError: the claim has no figure, or the table lacks a key of the figure.
    """
    drawn = claim.figure
    if drawn is None:
        raise ValueError(f"{claim.id} has no figure")
    for key in filter(None, (drawn.x, drawn.lines)):
        if key not in table:
            raise ValueError(f"{claim.id}: the statistic {drawn.of} has no key {key!r}")
    names = [None]
    if drawn.lines:
        names = list(dict.fromkeys(table[drawn.lines]))
    settings = None
    if not is_numeric_dtype(table[drawn.x]):
        settings = list(dict.fromkeys(table[drawn.x]))
    log = drawn.log_y and bool((table["value"] > 0).all())
    bar = _bar_height(table, drawn)
    with styled_figure(8, 4.2, path) as figure:
        axes = figure.subplots()
        lines = []
        for number, name in enumerate(names):
            rows = table
            if name is not None:
                rows = table[table[drawn.lines] == name]
            offset = number - (len(names) - 1) / 2
            line = seeds(rows, drawn.x, settings, offset, log)
            lines.append(line)
            if "theory" in rows:
                _draw_expected(axes, rows, drawn.x, settings)
            draw_seeds(axes, line, number, _claim_label(drawn, name), drawn.lost)
        if bar is not None:
            axes.axhline(bar, color=LIGHT, linestyle=":", linewidth=1.5, label="bar", zorder=1)
        if settings is None:
            _set_x_axis(axes, drawn, sorted(set(table[drawn.x])))
        else:
            name_ticks(axes.xaxis, range(len(settings)), settings)
            axes.set_xlim(-0.5, len(settings) - 0.5)
        axes.set_xlabel(drawn.xlabel or drawn.x)
        _set_y_axis(axes, drawn, lines, bar)
        caption = f"{claim.id}: {answer or claim.question}"
        legend(figure, axes, [caption + _note(table, lines, drawn, log)])
    return figure


def _draw_expected(axes: Axes, table: pd.DataFrame, x: str, names: list[Any] | None) -> None:
    """Theory's line, where it has values; the legend names the first one."""
    known = table.dropna(subset=["theory"]).drop_duplicates(x)
    if not len(known):
        return
    places = known[x]
    if names is not None:
        places = known[x].map(names.index)
    label: str | None = "theory"
    _, labels = axes.get_legend_handles_labels()
    if label in labels:
        label = None
    axes.plot(places, known["theory"], color=LIGHT, linewidth=6, zorder=1, label=label)


def _bar_height(table: pd.DataFrame, drawn: "Picture") -> float | None:
    """The height of the criterion's bar: a value, or an excess over the mean of one setting."""
    if not isinstance(drawn.bar, tuple):
        return drawn.bar
    setting, excess = drawn.bar
    values = table.loc[table[drawn.x].astype(str) == setting, "value"]
    return float(values.mean()) + excess


def _claim_label(drawn: "Picture", name: Any) -> str | None:
    """The label of a line: a name alone, a number with its key."""
    if name is None:
        return None
    if drawn.label is not None:
        return drawn.label.replace("{}", label_text(name))
    return label_text(name, str(drawn.lines))


def _set_x_axis(axes: Axes, drawn: "Picture", settings: list[float]) -> None:
    """Scale the x axis; its ticks are the settings, where these are few and well separated."""
    places = np.array(settings, float)
    if drawn.log_x:
        positive = places[places > 0]
        if len(positive) < len(places):
            axes.set_xscale("symlog", linthresh=positive.min(), linscale=0.5)
        else:
            axes.set_xscale("log")
        places = np.log(np.maximum(places, positive.min() / 3))
    separated = np.diff(places) >= MIN_DISTANCE * np.ptp(places)
    if len(settings) <= MAX_TICKS and separated.all():
        axes.set_xticks(settings, [COUNT(setting) for setting in settings])
        axes.xaxis.set_minor_locator(NullLocator())


def _set_y_axis(axes: Axes, drawn: "Picture", lines: list[SeedPoints], bar: float | None) -> None:
    """Scale the y axis; a logarithmic one of less than two decades has plain numbers as ticks."""
    low, high = y_range(lines, drawn.log_y)
    axes.set_ylabel(drawn.y)
    if drawn.log_y:
        _set_log_ticks(axes, low, high)
    elif bar is not None:
        margin = 0.03 * (high - low)
        low = min(low, bar - margin)
        high = max(high, bar + margin)
    axes.set_ylim(*(drawn.limits or (low, high)))


def _set_log_ticks(axes: Axes, low: float, high: float) -> None:
    axes.set_yscale("log")
    if high < 3 * low:
        axes.yaxis.set_minor_formatter(PLAIN)
    elif high < 100 * low:
        axes.yaxis.set_minor_formatter(SPARSE)
    if low > 1e-4 and high < 1e4:
        axes.yaxis.set_major_formatter(PLAIN)


def _note(table: pd.DataFrame, lines: list[SeedPoints], drawn: "Picture", log: bool) -> str:
    """A note on the meaning of points and bars."""
    if SEED_KEY not in table or table[SEED_KEY].nunique() < 2:
        return ""
    keys = [key for key in (drawn.x, drawn.lines) if key]
    note = f" Means of {span(table.groupby(keys)[SEED_KEY].nunique())} seeds"
    if log:
        note = note.replace("Means", "Geometric means")
    if any(line.never.any() for line in lines):
        note += f", without those that {REASONS[drawn.lost]}"
    note += ", 95 % intervals"
    if not all(line.is_curve for line in lines):
        note += "; pale points are single seeds"
        if drawn.limits:
            note += ", some beyond the frame"
    return f"{note}."


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
        aside: the offset of the line beside the names, in lines.
        log: means and intervals are those of the logarithms, for values that are all above 0.
    """
    finite = table["value"].where(np.isfinite(table["value"]))
    scaled = finite
    if log:
        scaled = np.log(finite)
    groups = scaled.groupby(table[x], sort=names is None)
    mean, n = groups.mean(), groups.count()
    half = half_width(groups.std(ddof=1), n).fillna(0)
    middle, low, high = mean.to_numpy(), (mean - half).to_numpy(), (mean + half).to_numpy()
    if log:
        middle, low, high = np.exp(middle), np.exp(low), np.exp(high)
    at, places = mean.index.to_numpy(), table[x].to_numpy()
    if names:
        offset = LINE_OFFSET * aside
        at = np.array([names.index(name) + offset for name in at])
        places = np.array([names.index(name) + offset + SEED_OFFSET for name in places])
    at, places = at.astype(float), places.astype(float)
    never = (groups.size() - n).to_numpy()
    values = finite.to_numpy(float)
    return SeedPoints(at, middle, low, high, never, places, values, bool(names))


def draw_seeds(
    axes: Axes, line: SeedPoints, number: int, label: str | None, lost: str = "never"
) -> None:
    """A curve in its band, or a point with its interval at each setting, and its seeds.

    Args:
        number: of the line, which chooses its colour, dash and marker.
        lost: the word for seeds without a finite value, which are counted above the frame.
    """
    colour = PALETTE[number % len(PALETTE)]
    dash = DASHES[number % len(DASHES)]
    style: dict[str, Any] = {"color": colour, "label": label, "linestyle": dash}
    if line.is_curve:
        axes.plot(line.at, line.mean, **style)
        axes.fill_between(line.at, line.low, line.high, color=colour, alpha=0.18, lw=0)
        return
    above = 2 + 10 * number
    if line.named:  # the offsets of the lines already separate their counts
        style["linestyle"] = "none"
        above = 2
    style["marker"] = MARKERS[number % len(MARKERS)]
    half = [line.mean - line.low, line.high - line.mean]
    axes.errorbar(line.at, line.mean, half, markersize=4.5, elinewidth=1, capsize=2.5, **style)
    if len(line.values) > len(line.at):
        axes.scatter(line.seeds, line.values, s=13, color=colour, alpha=0.35, linewidths=0)
    text: dict[str, Any] = {"ha": "center", "fontsize": "small", "color": colour}
    top = axes.get_xaxis_transform()
    for at, count in zip(line.at, line.never, strict=True):
        if count:
            axes.annotate(f"{count} {lost}", (at, 1), (0, above), top, "offset points", **text)


def y_range(lines: list[SeedPoints], log: bool) -> tuple[float, float]:
    """The limits of the y axis: all seeds, and up to half their range of the intervals beyond them.

    The interval of a mean of few seeds can exceed all possible values, as below 0; it ends there
    at the frame.
    """
    values = np.array([value for line in lines for value in line.values], float)
    values = values[np.isfinite(values)]
    if log:
        return _log_range(lines, values[values > 0])
    if not len(values):
        return 0.0, 1.0
    lows, highs = _intervals(lines)
    low, high = float(values.min()), float(values.max())
    bottom, top = _widen(low, high, lows, highs)
    if low >= 0 and bottom < _extent(low, high) / 3:
        bottom = 0.0
    if low >= 0 and high <= 1:  # shares and accuracies
        top = min(top, 1.0)
    margin = 0.04 * (top - bottom)
    return bottom - margin, top + margin


def _log_range(lines: list[SeedPoints], values: np.ndarray) -> tuple[float, float]:
    if not len(values):
        return 0.1, 1.0
    lows, highs = np.log(np.maximum(_intervals(lines), values.min() / 10))
    low, high = float(np.log(values.min())), float(np.log(values.max()))
    bottom, top = _widen(low, high, lows, highs)
    margin = 0.04 * (top - bottom)
    return float(np.exp(bottom - margin)), float(np.exp(top + margin))


def _intervals(lines: list[SeedPoints]) -> np.ndarray:
    """The ends of all intervals `(2, settings)`."""
    return np.concatenate([[line.low, line.high] for line in lines], axis=1)


def _extent(low: float, high: float) -> float:
    """The range of the seeds; of equal seeds a tenth of their value."""
    return high - low or abs(high) / 10 or 1.0


def _widen(low: float, high: float, lows: np.ndarray, highs: np.ndarray) -> tuple[float, float]:
    """The range of seeds and intervals, at most twice that of the seeds."""
    half = _extent(low, high) / 2
    bottom = max(float(np.nanmin([low, *lows])), low - half)
    top = min(float(np.nanmax([high, *highs])), high + half)
    return bottom, top
