"""The figure of accuracy over learning rate and delay, a panel an optimiser, with the stability
line of a quadratic.
"""

from typing import TYPE_CHECKING

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke

from laggard.experiments.figures.lines import label_text
from laggard.experiments.figures.style import (
    LIGHT,
    PERCENT,
    File,
    legend,
    name_ticks,
    styled_figure,
)

if TYPE_CHECKING:
    from xarray import DataArray

TITLES = {"momentum": "SGD, momentum 0.9", "adam": "Adam"}


def accuracy_grid(
    accuracy: "DataArray", line: "DataArray | None" = None, path: File = None
) -> Figure:
    """Final accuracy over learning rate and delay: a cell is the mean over the seeds that there
    are.

    Args:
        accuracy: over `delay`, `optimiser`, `lr` and `seed`; NaN where a run is missing, which
            leaves its cell hatched. Over `batch` too, it has a row of panels for each.
        line: the stability limit over `delay` for SGD with momentum.
    """
    colours = ScalarMappable(Normalize(0.1, 1.0), "viridis")
    names = [str(name) for name in accuracy["optimiser"].values]
    if "batch" in accuracy.dims:
        batches = accuracy["batch"].values.tolist()
    else:
        batches = [None]
    with styled_figure(8, 1.4 + len(batches) * 0.3 * accuracy.sizes["delay"], path) as figure:
        panels = figure.subplots(len(batches), len(names), sharex=True, sharey=True, squeeze=False)
        for row, batch in zip(panels, batches, strict=True):
            for axes, name in zip(row, names, strict=True):
                if batch is None:
                    cells = accuracy.sel(optimiser=name)
                else:
                    cells = accuracy.sel(optimiser=name, batch=batch)
                _draw_cells(axes, cells.mean("seed"), colours)
                title = TITLES.get(name, name) + ("" if batch is None else f", batch {batch:,}")
                axes.set_title(title, fontsize="small")
                if line is not None and name == "momentum":
                    _draw_line(axes, line, accuracy["lr"].values)
        for axes in panels[-1]:
            axes.set_xlabel("learning rate")
        panels[len(batches) // 2, 0].set_ylabel("delay D (updates)")
        bar = figure.colorbar(colours, ax=list(panels.flat), label="final test accuracy", pad=0.02)
        bar.formatter = PERCENT
        caption = f"Cells: mean final accuracy in %, of a run that diverged 0; {_describe_seeds(accuracy)}."
        legend(figure, list(panels.flat), [caption + _describe_line(line, accuracy)])
    return figure


def _describe_seeds(accuracy: "DataArray") -> str:
    """How many seeds a setting has, and whether some settings have none."""
    count = accuracy.notnull().any("lr").sum("seed")
    low, high = int(count.min()), int(count.max())
    if low == high:
        seeds = f"n = {high} seed{'s' * (high != 1)}"
    else:
        seeds = f"n = {low} to {high} seeds"
    return seeds + "; hatched: not run yet" * (low == 0)


def _describe_line(line: "DataArray | None", accuracy: "DataArray") -> str:
    """Where the line lies outside of the rates, and is drawn at their end."""
    if line is None:
        return ""
    outside = line[(line > accuracy["lr"].max()) | (line < accuracy["lr"].min())]
    where = [
        f"{float(rate):.2g} at delay {delay}"
        for delay, rate in zip(outside["delay"].values, outside, strict=True)
    ]
    if where:
        return (
            f" The line is drawn at the end of the grid where it lies beyond: {', '.join(where)}."
        )
    return ""


def _draw_cells(axes: Axes, accuracy: "DataArray", colours: ScalarMappable) -> None:
    values = accuracy.transpose("delay", "lr").values
    axes.pcolormesh(np.ma.masked_invalid(values), cmap=colours.cmap, norm=colours.norm)  # type: ignore[arg-type]
    for (row, column), value in np.ndenumerate(values):
        if not np.isfinite(value):
            axes.add_patch(
                Rectangle((column, row), 1, 1, hatch="////", facecolor="white", edgecolor=LIGHT)
            )
            continue
        colour = colours.to_rgba(value)
        dark = matplotlib.colors.rgb_to_hsv(colour[:3])[2] < 0.65
        halo = [withStroke(linewidth=2.5, foreground=colour)]  # the line may pass below
        if value >= 0.2:
            text = f"{100 * value:.1f}"
        else:
            text = f"{100 * value:.0f}"
        axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=6.5, zorder=4,
                  color="white" if dark else "black", path_effects=halo)  # fmt: skip
    name_ticks(
        axes.xaxis,
        np.arange(values.shape[1]) + 0.5,
        map(label_text, accuracy["lr"].values),
        rotation=45,
    )
    name_ticks(
        axes.yaxis, np.arange(values.shape[0]) + 0.5, map(label_text, accuracy["delay"].values)
    )
    axes.grid(visible=False)


def _draw_line(axes: Axes, line: "DataArray", rates: np.ndarray) -> None:
    """The line as a step a row, between cells by the logarithm of the rate."""
    centres = np.arange(len(rates)) + 0.5
    first, last = (np.log(pair[1] / pair[0]) for pair in (rates[:2], rates[-2:]))
    logs = np.array([np.log(rates[0]) - first, *np.log(rates), np.log(rates[-1]) + last])
    places = np.interp(np.log(line.values), logs, [-0.5, *centres, len(rates) + 0.5]).clip(
        0, len(rates)
    )
    rows = np.arange(len(places) + 1)
    for colour, width in (("white", 4), ("black", 2)):
        if colour == "black":
            label = "stability line of a quadratic, one curvature fitted to delays from 8"
        else:
            label = None
        axes.stairs(places, rows, orientation="horizontal", baseline=None, color=colour, linewidth=width,
                    clip_on=False, label=label)  # fmt: skip
