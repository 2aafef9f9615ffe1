"""The figure of accuracy over learning rate and delay, with a quadratic's stability line."""

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from laggard.experiments.figures.grids import draw_cells, draw_steps
from laggard.experiments.figures.lines import label_text
from laggard.experiments.figures.style import PERCENT, File, legend, name_ticks, span, styled_figure

if TYPE_CHECKING:
    from xarray import DataArray

TITLES = {"momentum": "SGD, momentum 0.9", "adam": "Adam"}
LINE = "stability line of a quadratic, one curvature fitted to delays from 8"


def accuracy_grid(
    accuracy: "DataArray", line: "DataArray | None" = None, path: File = None
) -> Figure:
    """Final accuracy over learning rate and delay: a cell is the mean over the seeds that ran.

    Args:
        accuracy: over `delay`, `optimiser`, `lr` and `seed`, a panel an optimiser; NaN where a run
            is missing, which leaves its cell hatched. Over `batch` too, it has a row of panels for
            each.
        line: the stability limit over `delay` for SGD with momentum.
    """
    colours = ScalarMappable(Normalize(0.1, 1.0), "viridis")
    names = [str(name) for name in accuracy["optimiser"].values]
    batches: list[Any] = [None]
    if "batch" in accuracy.dims:
        batches = accuracy["batch"].values.tolist()
    height = 1.4 + len(batches) * 0.3 * accuracy.sizes["delay"]
    with styled_figure(8, height, path) as figure:
        panels = figure.subplots(len(batches), len(names), sharex=True, sharey=True, squeeze=False)
        for row, batch in zip(panels, batches, strict=True):
            for axes, name in zip(row, names, strict=True):
                cells = accuracy.sel(optimiser=name)
                title = TITLES.get(name, name)
                if batch is not None:
                    cells = cells.sel(batch=batch)
                    title += f", batch {batch:,}"
                _draw_cells(axes, cells.mean("seed"), colours)
                axes.set_title(title, fontsize="small")
                if line is not None and name == "momentum":
                    _draw_limits(axes, line, accuracy["lr"].values)
        for axes in panels[-1]:
            axes.set_xlabel("learning rate")
        panels[len(batches) // 2, 0].set_ylabel("delay D (updates)")
        bar = figure.colorbar(colours, ax=list(panels.flat), label="final test accuracy", pad=0.02)
        bar.formatter = PERCENT
        caption = "Cells: mean final accuracy in %, of a run that diverged 0; "
        caption += f"{_describe_seeds(accuracy)}.{_describe_line(line, accuracy)}"
        legend(figure, panels.flat, [caption])
    return figure


def _describe_seeds(accuracy: "DataArray") -> str:
    """The number of seeds of a setting, and whether some settings have none."""
    seeds = accuracy.notnull().any("lr").sum("seed").values.ravel()
    text = f"n = {span(seeds)} seed"
    if seeds.max() != 1 or seeds.min() != 1:
        text += "s"
    if seeds.min() == 0:
        text += "; hatched: not run yet"
    return text


def _describe_line(line: "DataArray | None", accuracy: "DataArray") -> str:
    """The values of the line beyond the grid, where it is drawn at the edge."""
    if line is None:
        return ""
    rates = accuracy["lr"]
    outside = line[(line > rates.max()) | (line < rates.min())]
    values = []
    for delay, rate in zip(outside["delay"].values, outside.values, strict=True):
        values.append(f"{rate:.2g} at delay {delay}")
    if not values:
        return ""
    return f" The line is drawn at the end of the grid where it lies beyond: {', '.join(values)}."


def _draw_cells(axes: Axes, accuracy: "DataArray", colours: ScalarMappable) -> None:
    values = accuracy.transpose("delay", "lr").values
    names = np.full(values.shape, "", object)
    for place, value in np.ndenumerate(values):
        digits = 1 if value >= 0.2 else 0
        names[place] = f"{100 * value:.{digits}f}"
    draw_cells(axes, values, ~np.isfinite(values), names, colours, 6.5)
    rates = [label_text(rate) for rate in accuracy["lr"].values]
    delays = [label_text(delay) for delay in accuracy["delay"].values]
    name_ticks(axes.xaxis, np.arange(len(rates)) + 0.5, rates, rotation=45)
    name_ticks(axes.yaxis, np.arange(len(delays)) + 0.5, delays)


def _draw_limits(axes: Axes, line: "DataArray", rates: np.ndarray) -> None:
    """The line as a step a row, between cells by the logarithm of the rate."""
    logs = np.log(rates)
    before = 2 * logs[0] - logs[1]
    after = 2 * logs[-1] - logs[-2]
    columns = [-0.5, *(np.arange(len(rates)) + 0.5), len(rates) + 0.5]
    places = np.interp(np.log(line.values), [before, *logs, after], columns)
    draw_steps(axes, places.clip(0, len(rates)), LINE)
