"""The interactive charts of a report: learning curves, and a timeline of the workers.

Bokeh draws them: it embeds arrays as they are in memory, and draws 100,000 bars in a browser.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from bokeh.embed import components
from bokeh.models import (
    CDSView,
    ColumnDataSource,
    CustomJS,
    CustomJSHover,
    FixedTicker,
    HoverTool,
    IndexFilter,
    LinearColorMapper,
    NumeralTickFormatter,
    Range1d,
    SingleIntervalTicker,
    WheelZoomTool,
)
from bokeh.models.annotations import Arrow, BoxAnnotation, NormalHead
from bokeh.plotting import figure
from bokeh.resources import Resources
from bokeh.transform import linear_cmap

from laggard.experiments.figures.grids import LOSSES
from laggard.experiments.figures.lines import Line, measures_in
from laggard.experiments.figures.style import AXIS_LABELS, PALETTE, axes_of
from laggard.experiments.results.measures import CURVES
from laggard.experiments.results.result import Result

COLOURS = (*PALETTE[:6], "#8c564b", "#999999")
"""The colours of lines: black would vanish in dark mode."""
BOKEH_DASHES: tuple[Any, ...] = ("solid", [8, 3], [2, 3], [8, 3, 2, 3])
TOOLS = "xpan,xbox_zoom,xzoom_in,xzoom_out,reset,save"
BAND_STYLE: dict[str, Any] = {"fill_color": "colour", "fill_alpha": 0.12, "line_color": None}
LINE_STYLE: dict[str, Any] = {
    "line_color": "colour",
    "line_dash": "dash",
    "line_width": 2,
    "hover_line_color": "colour",
    "hover_line_width": 5,
    "selection_line_width": 5,
    "nonselection_line_alpha": 0.15,
}
MARKED = "#d55e00"
"""The colour of what belongs to the gradient under the pointer."""
HOVERED_BAR: dict[str, Any] = {"hover_line_color": MARKED, "hover_line_width": 2}
ARROW_STYLE: dict[str, Any] = {
    "y_start": "worker",
    "y_end": "worker",
    "line_color": MARKED,
    "line_width": 2,
}
TOOLTIPS = [
    ("worker", "@worker"),
    ("staleness", "@staleness updates"),
    ("read version, updated", "@version_read, @version"),
    ("computed from, to", "@started{0.0000} s, @computed{0.0000} s"),
    ("", "@status{custom} at @ended{0.0000} s"),
]
"""The tooltip of a gradient in a timeline."""
MAX_HEIGHT = 700
"""The largest height of a timeline's rows, in pixels."""
FIRST_GRADIENTS = 30
"""Gradients of the fastest worker that a timeline shows at first."""
LOG_TICKS = [mantissa * 10.0**power for power in range(-6, 7) for mantissa in (1, 2, 5)]
STATUS_NAMES = ("applied", "dropped", "cancelled")
MAX_BARS, BINS = 5000, 2000
"""Bars that a browser draws in a tenth of a second, and the bins of time that stand for more."""


class Charts(NamedTuple):
    """The parts of a page that show the charts.

    Attributes:
        library: Bokeh itself, as inline scripts.
        script: the script that makes the charts.
        places: the HTML element of each chart.
    """

    library: str
    script: str
    places: Sequence[str]


def embed(charts: Sequence[Any]) -> Charts:
    """The charts as parts of a page that needs nothing else."""
    script, places = components(list(charts))
    library = Resources(mode="inline", components=["bokeh"], log_level="error").render()
    return Charts(library, script, places)


def draw_curves(lines: Sequence[Line], shown: Sequence[int]) -> list[Any]:
    """A chart for each measure that was learnt, with a line and a band per setting.

    The line under the pointer lights up with its values. The page's script chooses lines by the
    filter `lines`, and the horizontal axis by the columns `x ...` and `y ...`.

    Args:
        lines: the settings, in the order of the page's table.
        shown: the indices of the lines that are shown at first.
    """
    chosen = IndexFilter(indices=list(shown), name="lines")
    charts = []
    tables = [curve for line in lines for curve in line.curves]
    for measure in measures_in(tables):
        charts.append(_chart_of_curves(lines, measure, chosen))
    for chart in charts[1:]:
        chart.x_range = charts[0].x_range
    return charts


def line_looks(lines: Sequence[Line]) -> list[tuple[str, int]]:
    """The colour of each line, and the index of its dashes in `BOKEH_DASHES`."""
    colours = list(dict.fromkeys(line.colour for line in lines))
    dashes = list(dict.fromkeys(line.dash for line in lines))
    looks = []
    for line in lines:
        colour = COLOURS[colours.index(line.colour) % len(COLOURS)]
        looks.append((colour, dashes.index(line.dash) % len(BOKEH_DASHES)))
    return looks


def _chart_of_curves(lines: Sequence[Line], measure: str, chosen: IndexFilter) -> Any:
    columns = _columns_of_curves(lines, measure)
    scale = "linear"
    if measure in LOSSES and _is_positive(columns["y time"]):
        scale = "log"
    title = CURVES.get(measure, measure)
    chart = _chart(340, title, y_axis_type=scale, tags=["curves"])
    data: dict[str, Any] = {"source": ColumnDataSource(columns), "view": CDSView(filter=chosen)}
    chart.patches("outline x time", "outline y time", name="band", **BAND_STYLE, **data)
    curves = chart.multi_line("x time", "y time", name="line", **LINE_STYLE, **data)
    chart.y_range.renderers = [curves]  # a band may be wider than all lines
    tooltips = [("", "@name"), (title, "$snap_y{0.[0000]}"), ("at", "$snap_x{0,0.[0000]}")]
    chart.add_tools(HoverTool(renderers=[curves], tooltips=tooltips, line_policy="nearest"))
    chart.xaxis.axis_label = AXIS_LABELS["time"]
    if scale == "log":
        # Bokeh's own ticks of less than two decades are evenly spaced: none below 1
        chart.yaxis.ticker = FixedTicker(ticks=LOG_TICKS)
        chart.yaxis.formatter = NumeralTickFormatter(format="0.[00000]")
    return chart


def _columns_of_curves(lines: Sequence[Line], measure: str) -> dict[str, list[Any]]:
    """The columns of the curves, a row per line: look, mean, and outline of the band along each
    axis.
    """
    looks = line_looks(lines)
    columns: dict[str, list[Any]] = {
        "name": [line.title for line in lines],
        "colour": [colour for colour, _ in looks],
        "dash": [BOKEH_DASHES[dash] for _, dash in looks],
    }
    unit = 1
    if measure == "test_accuracy":
        unit = 100
    for axis in axes_of(lines):
        bands = [line.band(axis, measure) for line in lines]
        columns[f"x {axis}"] = [at for at, _, _, _ in bands]
        columns[f"y {axis}"] = [unit * mean for _, mean, _, _ in bands]
        columns[f"outline x {axis}"] = [np.append(at, at[::-1]) for at, _, _, _ in bands]
        columns[f"outline y {axis}"] = [
            unit * np.append(high, low[::-1]) for _, _, low, high in bands
        ]
    return columns


def _is_positive(columns: Sequence[np.ndarray]) -> bool:
    values = np.concatenate(columns)
    return bool((values[np.isfinite(values)] > 0).all())


def draw_timelines(results: Sequence[Result], most: int) -> Any:
    """The workers' time: a row per worker, a bar per gradient, coloured by its staleness.

    A thick bar is computed, the thin one after it is on its way to its update. While the pointer is
    on a gradient, an arrow leads from its read to its update, and a grey area marks that time in
    the rows of all workers.

    Args:
        results: a run for each choice of the page; the first is shown.
        most: the largest number of gradients of a run in the chart, from the start.
    """
    updates = [result.updates.sort_values("started").head(most) for result in results]
    stalest = [int(rows["staleness"].max()) for rows in updates if len(rows)]
    top = max([1, *stalest])
    chart = _chart(0, "worker", tags=["timeline"])
    chart.x_range = Range1d(bounds=(0, None))
    bars = []
    for index, rows in enumerate(updates):
        bar = _draw_gradients(chart, rows, f"run {index}", top)
        bars.append(bar)
    ends = [_end_of_first_view(rows) for rows in updates]
    workers = [len(result.workers) for result in results]
    for renderer in chart.renderers:
        # the renderer without a name is the overview in bins, which may be hidden already
        renderer.visible = renderer.visible and renderer.name in (None, "run 0")
    chart.tags.append([[end, number] for end, number in zip(ends, workers, strict=True)])
    chart.x_range.update(start=0, end=ends[0])
    chart.y_range = Range1d(start=workers[0] - 0.4, end=-0.6)
    chart.height = 130 + min(22 * max(workers), MAX_HEIGHT)
    chart.yaxis.ticker = SingleIntervalTicker(interval=math.ceil(workers[0] / 16))
    chart.xaxis.axis_label = AXIS_LABELS["time"]
    scale = bars[0].construct_color_bar(title="staleness (updates)", width=12)
    chart.add_layout(scale, "right")
    _show_gradient_under_pointer(chart, bars)
    return chart


def _draw_gradients(chart: Any, rows: pd.DataFrame, name: str, top: int) -> Any:
    """Draw the bars of a run; return the bars of computing.

    Args:
        rows: gradients in the order of their starts.
        top: the staleness at the end of the scale of colours.
    """
    source = ColumnDataSource(_gradients(rows))
    view = CDSView()
    data: dict[str, Any] = {"source": source, "view": view, "name": name, "line_color": None}
    chart.hbar("worker", 0.16, left="computed", right="ended", fill_color="#999999", **data)
    colour = linear_cmap("staleness", "Viridis256", 0, top)
    bar = chart.hbar(
        "worker", 0.7, left="started", right="computed", fill_color=colour, **data, **HOVERED_BAR
    )
    if len(rows) > MAX_BARS:  # only in the report of a single run
        _show_bins_from_afar(chart, rows, source, view, top)
    return bar


def _show_gradient_under_pointer(chart: Any, bars: Sequence[Any]) -> None:
    area = BoxAnnotation(fill_color="#888888", fill_alpha=0.25, line_color=None, visible=False)
    chart.add_layout(area)
    ends = ColumnDataSource({"read": [], "ended": [], "worker": []})
    head = NormalHead(size=12, fill_color=MARKED, line_color=MARKED)
    arrow = Arrow(source=ends, x_start="read", x_end="ended", end=head, **ARROW_STYLE)
    chart.add_layout(arrow)
    status = CustomJSHover(args={"names": list(STATUS_NAMES)}, code="return names[value]")
    # the text stands above or below the pointer, where it does not cover the arrow
    hover = HoverTool(
        renderers=list(bars),
        tooltips=TOOLTIPS,
        formatters={"@status": status},
        attachment="vertical",
    )
    marks = {"area": area, "ends": ends, "bars": list(bars)}
    hover.callback = CustomJS(args=marks, code=MARK_READ_TO_UPDATE)
    chart.add_tools(hover)


def _show_bins_from_afar(
    chart: Any, rows: pd.DataFrame, source: ColumnDataSource, view: CDSView, top: int
) -> None:
    """Draw the mean staleness in bins of time while more bars are in view than a browser can draw.

    Args:
        rows: gradients in the order of their starts.
        view: the bars that are drawn.
    """
    workers = int(rows["worker"].max()) + 1
    end = float(rows["time"].max())
    bins = np.minimum((rows["started"] / end * BINS).astype(int), BINS - 1)
    means = rows["staleness"].groupby([rows["worker"], bins]).mean().unstack()
    means = means.reindex(index=range(workers), columns=range(BINS))
    # a gradient that lasts for several bins stands in the first of them
    image = means.ffill(axis="columns").to_numpy(np.float32)
    colours = LinearColorMapper(palette="Viridis256", low=0, high=top, nan_color=(0, 0, 0, 0))
    place = {"x": 0, "y": -0.5, "dw": end, "dh": workers}
    overview = chart.image([image], color_mapper=colours, level="underlay", **place)
    tooltips = [("mean staleness", "@image{0.00} updates"), ("", "zoom in to see gradients")]
    chart.add_tools(HoverTool(renderers=[overview], tooltips=tooltips))
    count = int((rows["started"] < _end_of_first_view(rows)).sum())
    overview.visible = count > MAX_BARS
    chosen = IndexFilter(indices=list(range(min(count, MAX_BARS))))
    view.filter = chosen
    longest = float((rows["time"] - rows["started"]).max())
    parts = {"x": chart.x_range, "source": source, "chosen": chosen, "overview": overview}
    show = CustomJS(args={**parts, "longest": longest, "most": MAX_BARS}, code=SHOW_BARS_IN_VIEW)
    for end_of_range in ("start", "end"):
        chart.x_range.js_on_change(end_of_range, show)


SHOW_BARS_IN_VIEW = """
const {started} = source.data;
const place = (time) => {  // of the first bar that starts then or later
  let [low, high] = [0, started.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (started[middle] < time) low = middle + 1;
    else high = middle;
  }
  return low;
};
const first = place(x.start - longest);
const count = place(x.end) - first;
overview.visible = count > most;
chosen.indices = Array.from({length: overview.visible ? 0 : count}, (_, index) => first + index);
"""
MARK_READ_TO_UPDATE = """
const bar = bars.find((bar) => bar.visible);
const [index] = bar.data_source.inspected.indices;
area.visible = index !== undefined;
const {read, ended, worker} = bar.data_source.data;
const marked = area.visible ? [index] : [];
ends.data = {
  read: marked.map((at) => read[at]),
  ended: marked.map((at) => ended[at]),
  worker: marked.map((at) => worker[at]),
};
if (area.visible) {
  area.left = read[index];
  area.right = ended[index];
}
"""


def _gradients(rows: pd.DataFrame) -> Mapping[str, Any]:
    """The columns of a timeline, in the smallest types that suffice for a screen."""
    ended = rows["time"].to_numpy(np.float32)
    applied = rows[rows["status"] == "applied"]
    # the update that made the read version old is the first after the read
    update_times = applied.groupby(["target", "version"])["time"].min()
    versions = pd.MultiIndex.from_frame(rows[["target", "version_read"]])
    following = update_times.reindex(versions).fillna(math.inf).to_numpy()
    read = np.minimum(rows["started"].to_numpy(), following)
    return {
        "worker": rows["worker"].to_numpy(np.int32),
        "read": read.astype(np.float32),
        "started": rows["started"].to_numpy(np.float32),
        "computed": rows["computed"].fillna(rows["time"]).to_numpy(np.float32),
        "ended": ended,
        "staleness": rows["staleness"].to_numpy(np.int32),
        "version_read": rows["version_read"].to_numpy(np.int32),
        "version": rows["version"].to_numpy(np.int32),
        "status": pd.Categorical(rows["status"], STATUS_NAMES).codes.astype(np.uint8),
    }


def _end_of_first_view(rows: pd.DataFrame) -> float:
    """The moment at which the fastest worker's 30th gradient ends, or the last of fewer."""
    if not len(rows):
        return 1.0
    ends = rows.groupby("worker")["time"].nth(FIRST_GRADIENTS - 1)
    if len(ends):
        return float(ends.min())
    return float(rows["time"].max())


def _chart(height: int, title: str, **options: Any) -> Any:
    """An empty chart as wide as the page, which the wheel zooms along x."""
    if height:
        options["height"] = height
    chart = figure(
        sizing_mode="stretch_width", tools=TOOLS, toolbar_location="above",
        y_axis_label=title, background_fill_color=None, border_fill_color=None, **options,
    )  # fmt: skip
    wheel = WheelZoomTool(dimensions="width", modifiers={"ctrl": True})
    chart.add_tools(wheel)
    chart.toolbar.logo = None
    chart.toolbar.active_scroll = wheel
    chart.outline_line_color = None
    return chart
