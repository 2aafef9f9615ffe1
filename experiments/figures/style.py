"""The style of all figures: colours, dashes, axes, the legend above and the notes below, and
saving.
"""

import math
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.axis import Axis, Tick
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

from laggard.experiments.figures.lines import Line, shorten
from laggard.experiments.results.files import whole_file
from laggard.experiments.results.measures import CURVES
from laggard.experiments.results.result import Result
from laggard.experiments.results.statistics import half_width

Runs = Sequence[Result] | Result
File = str | Path | None
STYLE = Path(__file__).parents[1] / "laggard.mplstyle"
# Okabe and Ito
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1.2, 1.2)), (0, (4, 1.5, 1.2, 1.5)))
MARKERS = "osD^vP*X"
AXIS_LABELS = {
    "time": "virtual time (s)",
    "updates": "updates",
    "samples": "samples",
    "epoch": "epochs",
}
DIGIT = 0.075  # inches that a character of a tick's label takes
GREY, LIGHT = "#666666", "#bbbbbb"
PLAIN = FuncFormatter(lambda value, _: f"{value:g}")
SPARSE = FuncFormatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "25" else "")
PERCENT = FuncFormatter(lambda share, _: f"{100 * share:.6g}")
COUNT = FuncFormatter(
    lambda n, _: f"{n / 1e6:g}M" if n >= 1e6 else f"{n / 1e3:g}k" if n >= 1e4 else f"{n:,g}"
)
PREFIXES = {9: "G", 6: "M", 3: "k", 0: ""}


def as_sequence(results: Runs) -> Sequence[Result]:
    """The results; a run by itself is a sequence of one.

    Raises:
        ValueError: there is none.
    """
    given = results if isinstance(results, Sequence) else [results]
    if not given:
        raise ValueError("expected a result to draw, got none")
    return given


@contextmanager
def styled_figure(
    width: float,
    height: float,
    path: File = None,
    layout: Literal["constrained", "compressed"] = "constrained",
) -> Iterator[Figure]:
    """A figure of `width` by `height` inches, drawn in the project's style and in no other, then
    saved to `path`.
    """
    with style.context(STYLE):
        yield (figure := Figure(figsize=(width, height), layout=layout))
        numbers = {label for tick in figure.findobj(Tick) for label in (tick.label1, tick.label2)}
        for text in (
            set(figure.findobj(Text)) - numbers - {axis.offsetText for axis in figure.findobj(Axis)}
        ):
            text.set_parse_math(False)  # a label with two dollar signs is no formula
    if path:
        save(figure, path)


def name_ticks(axis: Axis, places: Any, names: Iterable[object], **options: Any) -> None:
    """Name these places of an axis, with dollar signs as they are."""
    axis.set_ticks(places, [str(name).replace("$", r"\$") for name in names], **options)


def tick_values(axis: Axis, values: Sequence[float], inches: float) -> None:
    """Ticks of a log axis of that length at these ascending values, and their names where they do
    not overlap.
    """
    values = [value for value in values if value > 0]
    scale = inches / max(math.log(values[-1] / values[0]), 1e-9) if values else 0.0
    named = values[:1]
    for value in values[1:]:
        wide = DIGIT * (len(f"{named[-1]:g}") + len(f"{value:g}") + 2) / 2
        if math.log(value / named[-1]) * scale >= wide:
            named.append(value)
    axis.set_major_locator(FixedLocator(named))
    axis.set_major_formatter(PLAIN)
    axis.set_minor_locator(FixedLocator([value for value in values if value not in named]))
    axis.set_minor_formatter(NullFormatter())


def panels_of(figure: Figure, count: int, columns: int, **options: Any) -> list[Axes]:
    """So many panels in rows of `columns`, with the options of `Figure.subplots`; the last row may
    not be full.
    """
    rows = math.ceil(count / columns)
    panels: list[Axes] = list(figure.subplots(rows, columns, squeeze=False, **options).flat)
    for empty in panels[count:]:
        empty.set_visible(False)
    return panels[:count]


def name_axes(
    panels: Sequence[Axes], columns: int, x: str, y: str, same: tuple[bool, bool] = (True, True)
) -> None:
    """Name x below the lowest panel of each column and y left of each row, and ticks where all have
    the same.
    """
    for number, axes in enumerate(panels):
        lowest, first = number + columns >= len(panels), number % columns == 0
        axes.set(xlabel=x if lowest else "", ylabel=y if first else "")
        axes.tick_params(
            which="both", labelbottom=lowest or not same[0], labelleft=first or not same[1]
        )


def span(counts: Iterable[int]) -> str:
    """`9`, or `9 to 12`."""
    every = list(counts)
    return f"{min(every)}" if min(every) == max(every) else f"{min(every)} to {max(every)}"


def omission_note(given: int, shown: int, what: str = "runs") -> str:
    """A note on the number of items that are not in the figure."""
    return f"{given - shown} more {what} are not shown" if given > shown else ""


def save(figure: Figure, path: str | Path) -> Figure:
    """Write `figure` at 150 dots per inch, as its suffix says (png, svg, pdf), whole or not at all;
    and return it.

    Raises:
        ValueError: a suffix that cannot be drawn.
        OSError: it cannot be written.
    """
    path = Path(path)
    suffixes = figure.canvas.get_supported_filetypes()
    if path.suffix[1:].lower() not in suffixes:
        raise ValueError(
            f"expected a name that ends in one of .{', .'.join(sorted(suffixes))}, got {path.name!r}"
        )
    metadata = {"Date": None} if path.suffix == ".svg" else None
    # an SVG without its date, and with the style's salt
    with whole_file(path) as part, style.context(STYLE):
        # same data, same bytes
        figure.savefig(part, dpi=150, format=path.suffix[1:].lower(), metadata=metadata)
    return figure


def line_styles(lines: Sequence[Line]) -> list[tuple[str, Any]]:
    """A colour and a dash for each line: the colour is its run's if runs have several, and dashes
    enough for those.
    """
    runs = [line.run for line in lines]
    names = list(dict.fromkeys(runs))
    if len(names) in (1, len(runs)) or max(map(runs.count, names)) > len(DASHES):
        return [(colour, DASHES[index % len(DASHES)]) for index, colour in enumerate(PALETTE)]
    return [
        (PALETTE[names.index(run)], DASHES[runs[:index].count(run)])
        for index, run in enumerate(runs)
    ]


def draw(
    axes: Axes, lines: Sequence[Line], x: str, measure: str, target: float | None = None
) -> None:
    """Each line, the mean of its curves in the 95 % interval of that mean; no first steep ascent of
    an accuracy.
    """
    if x not in AXIS_LABELS:
        raise ValueError(f"x: expected one of {', '.join(AXIS_LABELS)}, got {x!r}")
    levels = [] if target is None else [target]
    for number, (line, (colour, dash)) in enumerate(zip(lines, line_styles(lines), strict=False)):
        if measure not in line.curves[0]:
            continue
        at, values = line.points(x, measure)
        mean, n = values.mean(0), len(values)
        half = half_width(values.std(0, ddof=1), n) if n > 1 else 0
        mark = MARKERS[number % len(MARKERS)] if len(at) <= 25 else "none"
        axes.plot(at, mean, color=colour, linestyle=dash, label=line.title, marker=mark)
        low, high = mean - half, mean + half
        if measure == "test_accuracy":
            low, high = np.clip(low, 0, 1), np.clip(high, 0, 1)
        elif np.nanmax(mean, initial=0) > 0:  # a log axis has no 0
            low = np.maximum(low, 1e-6 * np.nanmin(mean[mean > 0]))
        axes.fill_between(at, low, high, color=colour, alpha=0.18, linewidth=0)
        late = slice(min(len(at) // 8 + 1, len(at) - 1), None)
        levels += [*low[late], *high[late]]
    axes.set(xlabel=AXIS_LABELS[x], ylabel=CURVES.get(measure, measure))
    if x in ("updates", "samples"):
        axes.xaxis.set_major_formatter(COUNT)
    if target is not None:
        axes.axhline(
            target,
            color="black",
            linewidth=1,
            linestyle=DASHES[2],
            label=f"target {100 * target:.6g} %",
        )
    if measure == "test_accuracy":
        axes.yaxis.set_major_formatter(PERCENT)
        heights = np.array(levels)[np.isfinite(levels)]
        # the range of the values, where all exceed one half
        if len(heights) and heights.min() > 0.5:
            margin = 0.06 * (heights.max() - heights.min()) or 0.01
            axes.set_ylim(heights.min() - margin, heights.max() + margin)
    elif measure in CURVES:
        logarithmic(axes, levels)


def logarithmic(axes: Axes, levels: Sequence[float] = ()) -> None:
    """A log axis upwards, named by plain numbers where it has hardly a decade; linear where nothing
    is positive.

    Args:
        levels: that it should reach, up to three times the highest line, and down to a third of the
            lowest.
    """
    values = _positive([line.get_ydata() for line in axes.lines])
    if not len(values):
        return
    axes.set_yscale("log", nonpositive="mask")
    beside = np.append(_positive([levels]), values)
    low, high = max(beside.min(), values.min() / 3), min(beside.max(), values.max() * 3)
    margin = max((high / low) ** 0.05, 1.02)
    # bands may reach down to 0, where a log axis does not
    axes.set_ylim(low / margin, high * margin)
    if high < 100 * low:
        axes.yaxis.set_major_formatter(PLAIN)
        axes.yaxis.set_minor_formatter(PLAIN if high < 3 * low else SPARSE)


def _positive(columns: Iterable[Any]) -> np.ndarray:
    """The finite positive numbers of all `columns`."""
    values = np.concatenate([np.asarray(column, float) for column in columns] or [np.empty(0)])
    return np.asarray(values[np.isfinite(values) & (values > 0)])


def legend(figure: Figure, axes: Axes | Iterable[Axes], notes: Sequence[str]) -> None:
    """One legend above all panels, where it hides no data, and below them what else the reader must
    know.

    Args:
        axes: the panels whose lines it names, each name once.
    """
    panels = [axes] if isinstance(axes, Axes) else list(axes)
    found = {
        name: handle
        for of in panels
        for handle, name in zip(*of.get_legend_handles_labels(), strict=True)
    }
    per_inch = figure.get_size_inches()[0] / 8
    if found:
        names = [shorten(name, 90) for name in found]
        fitting = max(1, int(100 * per_inch) // (max(map(len, names)) + 6))
        figure.legend(
            list(found.values()), names, loc="outside upper left", ncols=min(fitting, len(names))
        )
    figure.align_ylabels()
    note = "\n".join(textwrap.wrap("; ".join(filter(None, notes)), int(128 * per_inch)))
    figure.supxlabel(note, x=0.01, ha="left", fontsize="small", color=GREY)


def quantity(value: float, unit: str) -> str:
    """A number with its unit and a prefix: 125 MB/s; inf is `unlimited`."""
    if math.isinf(value):
        return "unlimited"
    power = max((power for power in PREFIXES if value >= 10**power), default=0)
    return f"{value / 10**power:.4g} {PREFIXES[power]}{unit}"
