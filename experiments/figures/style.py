"""The style of all figures: colours, dashes, axes, panels, legend and notes, and saving."""

import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import matplotlib
import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.axis import Axis, Tick
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

from laggard.experiments.figures.lines import Line, shorten
from laggard.experiments.results.files import whole_file
from laggard.experiments.results.formats import format_quantity
from laggard.experiments.results.measures import CURVES, NO_BYTES
from laggard.experiments.results.result import Result

Runs = Sequence[Result] | Result
File = str | Path | None
Layout = Literal["constrained", "compressed"]
PanelGroup = TypeVar("PanelGroup")
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
    "bytes": "bytes sent",
}
DIGIT = 0.075  # inches that a digit of a tick's label takes, at 8 pt
MAX_MARKED_POINTS = 25
MAX_OMITTED_NAMES = 4
GREY, LIGHT = "#666666", "#bbbbbb"


def _two_or_five(value: float, _: object) -> str:
    """The label of a tick: the number if its first digit is 2 or 5, else empty."""
    if f"{value:e}"[0] in "25":
        return f"{value:g}"
    return ""


def _count(number: float, _: object = None) -> str:
    if number >= 1e6:
        return f"{number / 1e6:g}M"
    if number >= 1e4:
        return f"{number / 1e3:g}k"
    return f"{number:,g}"


PLAIN = FuncFormatter(lambda value, _: f"{value:g}")
SPARSE = FuncFormatter(_two_or_five)
PERCENT = FuncFormatter(lambda share, _: f"{100 * share:.6g}")
COUNT = FuncFormatter(_count)
BYTES = FuncFormatter(lambda value, _: format_quantity(value, "B"))


def as_sequence(results: Runs) -> Sequence[Result]:
    """The results as a sequence; a single run becomes a sequence of one.

    Raises:
        ValueError: the sequence is empty.
    """
    if not isinstance(results, Sequence):
        return [results]
    if not results:
        raise ValueError("expected a result to draw, got none")
    return results


@contextmanager
def styled_figure(
    width: float, height: float, path: File = None, layout: Layout = "constrained"
) -> Iterator[Figure]:
    """A figure of `width` by `height` inches in the project's style, saved to `path` at the end."""
    with style.context(STYLE):
        figure = Figure(figsize=(width, height), layout=layout)
        yield figure
        _show_dollar_signs(figure)
    if path:
        save(figure, path)


def _show_dollar_signs(figure: Figure) -> None:
    """Treat texts as plain text: a label with two dollar signs is not a formula."""
    # matplotlib writes these as formulas: the ticks of log axes, and powers of ten beside an axis
    formulas = {axis.offsetText for axis in figure.findobj(Axis)}
    for tick in figure.findobj(Tick):
        formulas |= {tick.label1, tick.label2}
    for text in set(figure.findobj(Text)) - formulas:
        text.set_parse_math(False)


class Look(NamedTuple):
    """The look of a line: its colour, its dashes and its marker."""

    colour: Any
    dash: Any
    marker: str


class Panels(Generic[PanelGroup]):
    """The panels of a figure: a panel for each group.

    Args:
        names: the names of the groups, for the error of too many; titles are the caller's.

    Attributes:
        groups: the groups, in the order of the panels.
        axes: the panels whose lines the legend names.
        notes: the notes for the reader.

    Raises:
        ValueError: there are more than `limit` groups.
    """

    def __init__(self, groups: Iterable[PanelGroup], names: Iterable[str], limit: int) -> None:
        check_count(list(names), limit, "panels")
        self.groups = list(groups)
        self.axes: list[Axes] = []
        self.notes: list[str] = []

    @contextmanager
    def figure(
        self,
        size: tuple[float, float],
        path: File,
        columns: int = 1,
        layout: Layout = "constrained",
        **options: Any,
    ) -> Iterator[Figure]:
        """The figure with its panels; the legend and the notes are written at the end.

        Args:
            size: width and height in inches.
            columns: the panels in one row.
            options: the options of `Figure.subplots`.
        """
        with styled_figure(*size, path, layout) as figure:
            self.axes = panels_of(figure, len(self.groups), columns, **options)
            yield figure
            legend(figure, self.axes, self.notes)

    def __iter__(self) -> Iterator[tuple[Axes, PanelGroup]]:
        return zip(self.axes, self.groups, strict=True)

    def __len__(self) -> int:
        return len(self.groups)


def check_count(names: Sequence[str], limit: int, items: str) -> None:
    """Refuse to draw a part of the results.

    Raises:
        ValueError: there are more than `limit` names.
    """
    if len(names) > limit:
        expected = f"expected at most {limit} {items}, got {len(names)}"
        listed = ", ".join(shorten(name, 40) for name in names[:MAX_OMITTED_NAMES])
        raise ValueError(f"{expected} ({listed}, ...): choose some of the runs by `where`")


def omission_note(names: Sequence[str], items: str = "") -> str:
    """A note that names what the figure omits; empty if it omits nothing."""
    if not names:
        return ""
    listed = [shorten(name, 40) for name in names[:MAX_OMITTED_NAMES]]
    rest = len(names) - len(listed)
    if rest:
        listed.append(f"and {rest} more")
    return f"not shown: {items}{', '.join(listed)}"


def name_ticks(axis: Axis, places: Any, names: Iterable[object], **options: Any) -> None:
    """Name these places of an axis; dollar signs are plain text."""
    # escaped, since `_show_dollar_signs` leaves the labels of ticks formulas
    axis.set_ticks(places, [str(name).replace("$", r"\$") for name in names], **options)


def tick_values(axis: Axis, values: Sequence[float], inches: float) -> None:
    """Ticks of a log axis at these ascending values, named where the names do not overlap.

    Args:
        inches: the length of the axis.
    """
    values = [value for value in values if value > 0]
    named = values[:1]
    scale = 0.0
    if values:
        scale = inches / max(math.log(values[-1] / values[0]), 1e-9)
    for value in values[1:]:
        characters = len(f"{named[-1]:g}") + len(f"{value:g}") + 2
        distance = math.log(value / named[-1]) * scale
        # names are centred on their ticks: half of each lies between the two
        if distance >= DIGIT * characters / 2:
            named.append(value)
    unnamed = [value for value in values if value not in named]
    axis.set_major_locator(FixedLocator(named))
    axis.set_major_formatter(PLAIN)
    axis.set_minor_locator(FixedLocator(unnamed))
    axis.set_minor_formatter(NullFormatter())


def panels_of(figure: Figure, count: int, columns: int, **options: Any) -> list[Axes]:
    """`count` panels in rows of `columns`; the last row may not be full.

    Args:
        options: the options of `Figure.subplots`.
    """
    rows = math.ceil(count / columns)
    panels: list[Axes] = list(figure.subplots(rows, columns, squeeze=False, **options).flat)
    for empty in panels[count:]:
        empty.set_visible(False)
    return panels[:count]


def name_axes(
    panels: Sequence[Axes], columns: int, x: str, y: str, same: tuple[bool, bool] = (True, True)
) -> None:
    """Name x below the lowest panel of each column, and y left of each row.

    Args:
        same: whether all panels have the same ticks along x and along y, so that only the outer
            panels need them.
    """
    same_x, same_y = same
    for number, axes in enumerate(panels):
        lowest = number + columns >= len(panels)
        first = number % columns == 0
        if lowest:
            axes.set_xlabel(x)
        if first:
            axes.set_ylabel(y)
        bottom = lowest or not same_x
        left = first or not same_y
        axes.tick_params(which="both", labelbottom=bottom, labelleft=left)


def span(counts: Iterable[int]) -> str:
    """`9`, or `9 to 12`."""
    values = list(counts)
    low, high = min(values), max(values)
    if low == high:
        return f"{low}"
    return f"{low} to {high}"


def save(figure: Figure, path: str | Path) -> Figure:
    """Write `figure` at 150 dots per inch in the format of the suffix, and return it.

    Raises:
        ValueError: the suffix is not a format of figures.
        OSError: the file cannot be written; an older file is left as it was.
    """
    path = Path(path)
    suffix = path.suffix[1:].lower()
    suffixes = figure.canvas.get_supported_filetypes()
    if suffix not in suffixes:
        expected = ", .".join(sorted(suffixes))
        raise ValueError(f"expected a name that ends in one of .{expected}, got {path.name!r}")
    metadata = None
    if suffix == "svg":  # without the date, the same data give the same bytes
        metadata = {"Date": None}
    # `part` has another suffix. matplotlib reads the style's `svg.hashsalt` only when it saves.
    with whole_file(path) as part, style.context(STYLE):
        figure.savefig(part, dpi=150, format=suffix, metadata=metadata)
    return figure


def line_styles(lines: Sequence[Line]) -> dict[str, Look]:
    """The look of each line, by its name: a colour and a dash for the settings that have them.

    More than eight settings have colours of a scale; without settings that have dashes, dashes tell
    lines apart too.
    """
    colours = list(dict.fromkeys(line.colour for line in lines))
    dashes = list(dict.fromkeys(line.dash for line in lines))
    palette: Any = PALETTE
    if len(colours) > len(PALETTE):
        # up to 0.92: the yellow end is hardly visible on white
        palette = matplotlib.colormaps["viridis"](np.linspace(0, 0.92, len(colours)))
    looks: dict[str, Look] = {}
    for line in lines:
        place = colours.index(line.colour)
        dash = place
        if len(dashes) > 1:
            dash = dashes.index(line.dash)
        marker = MARKERS[len(looks) % len(MARKERS)]
        if len(dashes) > 1:  # markers would hide the dashes
            marker = "none"
        looks.setdefault(line.name, Look(palette[place], DASHES[dash % len(DASHES)], marker))
    return looks


def axes_of(lines: Sequence[Line]) -> dict[str, str]:
    """The axes that all curves have, with their labels: runs of earlier versions lack `bytes`."""
    shared = {}
    for name, label in AXIS_LABELS.items():
        if all(name in curve for line in lines for curve in line.curves):
            shared[name] = label
    return shared


def draw(
    axes: Axes,
    lines: Sequence[Line],
    x: str,
    measure: str,
    target: float | None = None,
    looks: Mapping[str, Look] | None = None,
) -> None:
    """Draw each line: the mean of its curves, and its `Line.band`.

    The y axis of an accuracy leaves out a steep ascent at the start.

    Args:
        looks: the looks of the lines of all panels, by name; by default those of `lines` alone.

    Raises:
        ValueError: `x` is not an axis, or a run has no column of it.
    """
    if x not in AXIS_LABELS:
        raise ValueError(f"x: expected one of {', '.join(AXIS_LABELS)}, got {x!r}")
    if x not in axes_of(lines):
        raise ValueError(f"x: {NO_BYTES}")
    if looks is None:
        looks = line_styles(lines)
    levels: list[float] = []
    for line in lines:
        if measure in line.curves[0]:
            levels += _draw_line(axes, line, (x, measure), looks[line.name])
    axes.set(xlabel=AXIS_LABELS[x], ylabel=CURVES.get(measure, measure))
    if x in ("updates", "samples"):
        axes.xaxis.set_major_formatter(COUNT)
    elif x == "bytes":
        axes.xaxis.set_major_formatter(BYTES)
    if target is not None:
        levels.append(target)
        label = f"target {100 * target:.6g} %"
        axes.axhline(target, color="black", linewidth=1, linestyle=DASHES[2], label=label)
    if measure == "test_accuracy":
        axes.yaxis.set_major_formatter(PERCENT)
        _zoom(axes, levels)
    elif measure in CURVES:
        logarithmic(axes, levels)


def _draw_line(axes: Axes, line: Line, keys: tuple[str, str], look: Look) -> list[float]:
    """Draw one line and its band; return the heights of the band after the first eighth."""
    at, mean, low, high = line.band(*keys)
    marker = look.marker
    if len(at) > MAX_MARKED_POINTS:
        marker = "none"
    style: dict[str, Any] = {"color": look.colour, "linestyle": look.dash, "marker": marker}
    axes.plot(at, mean, label=line.title, **style)
    axes.fill_between(at, low, high, color=look.colour, alpha=0.18, linewidth=0)
    # the start of training, at chance, would keep `_zoom` from limiting the axis
    late = min(len(at) // 8 + 1, len(at) - 1)
    return [*low[late:], *high[late:]]


def _zoom(axes: Axes, levels: Sequence[float]) -> None:
    """Limit the y axis to the range of `levels`, where all of them exceed one half."""
    heights = np.array(levels)[np.isfinite(levels)]
    if not len(heights) or heights.min() <= 0.5:
        return
    margin = 0.06 * (heights.max() - heights.min())
    if margin == 0:
        margin = 0.01
    axes.set_ylim(heights.min() - margin, heights.max() + margin)


def logarithmic(axes: Axes, levels: Sequence[float] = ()) -> None:
    """Make the y axis logarithmic; it stays linear where no value is positive.

    An axis of less than two decades is labelled with plain numbers.

    Args:
        levels: values that the axis should include, up to three times the highest line, and down
            to a third of the lowest.
    """
    values = _positive([line.get_ydata() for line in axes.lines])
    if not len(values):
        return
    # by default ("clip") a line would fall through the axis at a zero: here it has a gap
    axes.set_yscale("log", nonpositive="mask")
    wanted = np.append(_positive([levels]), values)
    # bands may reach down to 0, where a log axis does not
    low = max(wanted.min(), values.min() / 3)
    high = min(wanted.max(), values.max() * 3)
    margin = max((high / low) ** 0.05, 1.02)
    axes.set_ylim(low / margin, high * margin)
    if high >= 100 * low:
        return
    axes.yaxis.set_major_formatter(PLAIN)
    minor = SPARSE
    if high < 3 * low:  # a range below a factor of 2.5 may have no 2, 5 or power of ten
        minor = PLAIN
    axes.yaxis.set_minor_formatter(minor)


def _positive(columns: Iterable[Any]) -> np.ndarray:
    """The finite positive numbers of all `columns`."""
    values = np.array([value for column in columns for value in column], float)
    return np.asarray(values[np.isfinite(values) & (values > 0)])


def legend_height(lines: Sequence[Line]) -> float:
    """The inches that a figure needs for a legend of more lines than usual."""
    names = dict.fromkeys(line.name for line in lines)
    return 0.05 * max(0, len(names) - 8)


def legend(
    figure: Figure, axes: Axes | Iterable[Axes], notes: Sequence[str], title: str = ""
) -> None:
    """One legend above all panels, where it hides no data, and the notes below them.

    Args:
        axes: the panels whose lines the legend names, each name once.
        title: the part of a sweep that the figure shows; empty if it shows all.
    """
    panels = [axes] if isinstance(axes, Axes) else list(axes)
    handles: dict[str, Any] = {}
    for panel in panels:
        items, names = panel.get_legend_handles_labels()
        handles.update(zip(names, items, strict=True))
    scale = figure.get_size_inches()[0] / 8
    if handles:
        names = [shorten(name, 90) for name in handles]
        longest = max(map(len, names))
        columns = max(1, int(100 * scale) // (longest + 6))
        columns = min(columns, len(names))
        named = list(handles.values()), names
        heading = "\n".join(textwrap.wrap(title, int(100 * scale)))
        place: dict[str, Any] = {"loc": "outside upper left", "alignment": "left"}
        figure.legend(*named, ncols=columns, title=heading or None, **place)
    figure.align_ylabels()
    text = "; ".join(filter(None, notes))
    note = "\n".join(textwrap.wrap(text, int(128 * scale)))
    # matplotlib's constrained layout keeps room for `supxlabel`, but not for `figure.text`
    figure.supxlabel(note, x=0.01, ha="left", fontsize="small", color=GREY)
