"""Figures of staleness: its distribution beside theory, each worker's over time, and its phases."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from laggard.experiments.figures.facets import facets
from laggard.experiments.figures.lines import (
    Label,
    Line,
    applied_gradients,
    pool_seeds,
    shorten,
    titles,
)
from laggard.experiments.figures.style import (
    AXIS_LABELS,
    DASHES,
    GREY,
    LIGHT,
    PALETTE,
    PERCENT,
    File,
    Look,
    Panels,
    Runs,
    as_sequence,
    check_count,
    legend,
    legend_height,
    line_styles,
    name_axes,
    name_ticks,
    omission_note,
    panels_of,
    styled_figure,
)
from laggard.experiments.figures.timelines import UNSPLIT, has_arrivals, phases, seconds, stack_bars
from laggard.experiments.results.result import Result
from laggard.experiments.theory.staleness import CONSTANT, Theory, staleness_theory

if TYPE_CHECKING:
    from laggard.experiments.real.comparison import Figures


MAX_BINS, MAX_PANELS, MAX_ROWS, MAX_BARS = 60, 24, 6, 24
ROLLING = 20  # gradients of a rolling mean
MIN_WINDOWS = 20  # a rolling mean covers at least this share of a worker's gradients
STALENESS_LABEL = "staleness (updates)"
ROW = 0.42  # inches of a row of a panel of distributions
MEAN_LINE: dict[str, Any] = {"color": "black", "linewidth": 1, "linestyle": DASHES[1]}
MEAN_MARKER: dict[str, Any] = {"marker": "v", "markevery": [1], "markersize": 5, "clip_on": False}
# rasterized: in an SVG, each of thousands of points would be an element
POINTS: dict[str, Any] = {"s": 4, "linewidth": 0, "rasterized": True}
NAMED_VALUE = "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}"
DASHED = "dashed: mean of the run"
PHASE_STYLES: dict[str, dict[str, Any]] = {
    "network down": {"color": PALETTE[5]},
    "compute": {"color": PALETTE[0]},
    "network up": {"color": PALETTE[4]},
    "barrier": {"facecolor": "white", "edgecolor": PALETTE[3], "hatch": "\\\\\\\\"},
    "queue": {"facecolor": "white", "edgecolor": PALETTE[1], "hatch": "////"},
    UNSPLIT: {"facecolor": "white", "edgecolor": PALETTE[4], "hatch": "...."},
}


def histograms(results: Runs, path: File = None, label: Label | None = None) -> Figure:
    """The distribution of the staleness of applied gradients, beside theory; a panel per setting.

    Theory is `staleness_theory` of the config, for the steady state: a curve where the whole
    distribution is known, else a triangle at the mean. A run begins with fresh gradients, which
    theory leaves out.
    """
    pools = pool_seeds(as_sequence(results), label)
    panels = Panels(pools, [name for name, _ in pools], MAX_PANELS)
    columns = _histogram_columns(len(panels))
    width = 5 if columns == 1 else 8
    height = 1 + 2.3 * math.ceil(len(panels) / columns)
    with panels.figure((width, height), path, columns) as figure:
        for number, (axes, (name, seeds)) in enumerate(panels):
            updates = pd.concat([result.updates for result in seeds])
            if len(seeds) > 1:
                name = f"{name} (n = {len(seeds)} seeds)"
            _histogram_beside_theory(axes, updates, seeds[0], name, 108 // columns)
            if number % columns:
                axes.set_ylabel("")
        panels.notes = _theory_notes(panels.axes)
    return figure


def _histogram_columns(panels: int) -> int:
    if panels == 4:
        return 2
    if panels > 6:
        return 4
    return min(panels, 3)


def staleness(results: Runs, path: File = None, label: Label | None = None) -> Figure:
    """The staleness of applied gradients: its distribution beside theory, and over time.

    A row per run; of more than six runs the distributions alone, in the panels of `facets`. Points
    are gradients, lines each worker's rolling mean; of more than eight workers only the stalest has
    a colour.
    """
    results = as_sequence(results)
    if len(results) > MAX_ROWS:
        return _distributions(results, path, label)
    names = titles(results, label)
    with styled_figure(8, 1.1 + 2.5 * len(results), path) as figure:
        rows = figure.subplots(len(results), 2, width_ratios=(2, 3), squeeze=False)
        grey_notes = []
        for (left, right), result, name in zip(rows, results, names, strict=True):
            _histogram_beside_theory(left, result.updates, result, name, 44)
            grey_notes.append(_draw_over_time(right, applied_gradients(result.updates)))
        panels = [*rows[:, 1], *rows[:, 0]]  # the legend names workers before theory
        rolling = f"lines: rolling mean of {ROLLING} gradients"
        notes = [f"{rolling}, or 1/{MIN_WINDOWS} of a worker's if that is more"]
        if len(results) == 1:
            notes.append(grey_notes[0])
        elif all(grey_notes):
            notes.append("colour: the stalest worker of each run; grey: the others")
        elif any(grey_notes):
            notes.append(f"grey: of more than {len(PALETTE)} workers, all but the stalest")
        legend(figure, panels, [*_theory_notes(panels), *notes])
    return figure


def _distributions(results: Sequence[Result], path: File, label: Label | None) -> Figure:
    """The distributions of many runs: lines and panels are those of `facets`."""
    shown = facets(results, label, of_runs=True)
    looks = line_styles(shown.lines)
    columns = min(len(shown.panels), 3)
    longest = max(len(shown.of_panel(name)) for name in shown.panels)
    height = 1 + (0.7 + ROW * longest) * math.ceil(len(shown.panels) / columns)
    notes = ["each row has its own scale; black line: mean", shown.note]
    with styled_figure(8, height + legend_height(shown.lines), path) as figure:
        panels = panels_of(figure, len(shown.panels), columns)
        for axes, name in zip(panels, shown.panels, strict=True):
            lines = shown.of_panel(name)
            draw_distributions(axes, lines, shown.results, looks)
            has_theory = _mark_theory(axes, lines, shown.results)
            if has_theory:
                notes.insert(1, "triangle: mean by theory, steady state")
            axes.set_title(shorten(name, 100 // columns))
        name_axes(panels, columns, STALENESS_LABEL, "share of gradients", (False, True))
        legend(figure, panels, [*dict.fromkeys(notes)], shown.title)
    return figure


def draw_distributions(
    axes: Axes, lines: Sequence[Line], results: Sequence[Result], looks: Mapping[str, Look]
) -> None:
    """Draw the distributions of the staleness of applied gradients, the first line's at the top."""
    for row, line in enumerate(lines):
        look = looks[line.name]
        updates = pd.concat([results[run].updates for run in line.results])
        applied = applied_gradients(updates)["staleness"].to_numpy()
        style: dict[str, Any] = {"color": look.colour, "linestyle": look.dash, "linewidth": 1}
        axes.axhline(-row, color=LIGHT, linewidth=0.5)
        # a legend names the line even where no gradient was applied
        axes.plot([], [], label=_name_with_runs(line), **style)
        if not len(applied):
            continue
        width = math.ceil((applied.max() + 1) / MAX_BINS)
        edges = np.arange(-0.5, applied.max() + width, width)
        counts, _ = np.histogram(applied, edges)
        heights = 0.8 * counts / counts.max() - row
        axes.stairs(heights, edges, baseline=-row, fill=True, color=look.colour, alpha=0.3)
        axes.stairs(heights, edges, baseline=-row, **style)
        axes.plot([applied.mean()] * 2, [-row, 0.8 - row], color="black", linewidth=1)
    axes.set(xlabel=STALENESS_LABEL, ylim=(-len(lines) + 0.75, 1))
    # the only tick of fresh gradients is 0: with two or more, they would be -0.5 and so on
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))
    axes.grid(visible=False)
    name_ticks(axes.yaxis, [-row for row in range(len(lines))], [line.best for line in lines])


def _name_with_runs(line: Line) -> str:
    if len(line.results) > 1:
        return f"{line.name} (n = {len(line.results)} runs)"
    return line.name


def _mark_theory(axes: Axes, lines: Sequence[Line], results: Sequence[Result]) -> bool:
    """Draw a triangle at the predicted mean of each row; return whether there is one."""
    has_theory = False
    for row, line in enumerate(lines):
        theory = staleness_theory(results[line.results[0]].config)
        if theory is not None:
            has_theory = True
            axes.plot(theory.mean, -row, "^", color=PALETTE[1], markersize=5, zorder=3)
    return has_theory


def _histogram_beside_theory(
    axes: Axes, updates: pd.DataFrame, result: Result, title: str, wrap: int
) -> None:
    theory = staleness_theory(result.config)
    histogram(axes, updates, _end_of_axis(updates), PALETTE[0], title, wrap, theory)


def histogram(
    axes: Axes,
    updates: pd.DataFrame,
    top: float,
    colour: str,
    title: str,
    wrap: int = 50,
    theory: Theory | None = None,
) -> None:
    """Draw the distribution of the staleness of the applied gradients.

    Args:
        updates: rows as of `Result.updates`.
        top: the largest staleness on the axis; NaN counts as 0.
        wrap: characters in a line of the title.
        theory: drawn beside the bars.
    """
    applied = applied_gradients(updates)["staleness"]
    top = np.nan_to_num(top)
    if theory is not None:
        top = max(top, math.ceil(theory.mean))
    width = math.ceil((top + 1) / MAX_BINS)
    edges = np.arange(-0.5, top + width, width)
    counts, _ = np.histogram(applied, edges)
    shares = counts / max(1, len(applied))
    axes.bar(edges[:-1], shares, 0.94 * width, align="edge", color=colour)
    if len(applied):
        axes.axvline(applied.mean(), zorder=0.9, **MEAN_LINE, **MEAN_MARKER)  # behind the bars
    lines = [title, _describe(applied), _describe_rest(updates, edges, width)]
    if theory is not None:
        lines.append(f"theory: {theory.law}, mean {theory.mean:.2f}")
        _draw_theory(axes, theory, edges, width)
    # no line breaks within `n = 12`
    unbroken = [line.replace(" = ", NAMED_VALUE) for line in lines if line]
    wrapped = [textwrap.fill(line, wrap) for line in unbroken]
    heading = "\n".join(wrapped).replace(NAMED_VALUE, " = ")
    axes.set_title(heading, fontsize="small", pad=8)
    axes.set(xlabel="staleness (updates)", ylabel="share of gradients (%)")
    axes.yaxis.set_major_formatter(PERCENT)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    margin = 0.02 * (top + 1)
    # up to 1: an axis of fresh gradients alone would have ticks at -0.5 and 0.5
    axes.set_xlim(-0.5 - margin, max(edges[-1], 1.5) + margin)


def _describe(applied: pd.Series) -> str:
    number = f"n = {len(applied):,}"
    if not len(applied):
        return number
    return f"mean {applied.mean():.2f}, max {applied.max()}, {number}"


def _describe_rest(updates: pd.DataFrame, edges: np.ndarray, width: int) -> str:
    """A note on the gradients that a histogram omits, and on the width of its bins."""
    texts = []
    for status in ("dropped", "cancelled"):
        count = (updates["status"] == status).sum()
        if count:
            texts.append(f"{count:,} {status}")
    if width > 1:
        texts.append(f"bins of {width}")
    beyond = (applied_gradients(updates)["staleness"] > edges[-1]).sum()
    if beyond:
        texts.append(f"{beyond:,} beyond the axis")
    return ", ".join(texts)


def _end_of_axis(updates: pd.DataFrame) -> float:
    """The largest staleness, or the 99.8 % quantile where a few gradients lie far beyond it."""
    applied = applied_gradients(updates)["staleness"]
    if not len(applied):
        return 0.0
    quantile = float(np.quantile(applied, 0.998, method="higher"))
    # + 1: of fresh gradients the quantile is 0, and a staleness of 1 is not far beyond
    if applied.max() > 1.5 * quantile + 1:
        return quantile
    return float(applied.max())


def _draw_theory(axes: Axes, theory: Theory, edges: np.ndarray, width: int) -> None:
    """Draw the predicted share of each bin; a triangle on the axis where only the mean is known."""
    style: dict[str, Any] = {"color": PALETTE[1]}
    if theory.probabilities is None:
        style |= {"markersize": 8, "clip_on": False, "zorder": 3}
        axes.plot(theory.mean, 0, "^", label="theory: mean", **style)
        return
    values = (edges[:-1, None] + 0.5 + np.arange(width)).round()
    shares = theory.probabilities(values.ravel()).reshape(values.shape).sum(1)
    style |= {"markersize": 3, "linestyle": "-"}
    if theory.law == CONSTANT:  # a single point
        style |= {"markersize": 6, "linestyle": ""}
        shares = np.where(shares == 0, np.nan, shares)
    axes.plot(edges[:-1] + width / 2, shares, "o", linewidth=1.2, label="theory", **style)


def _draw_over_time(axes: Axes, applied: pd.DataFrame) -> str:
    """Draw each worker's staleness over time; return a note on the workers without a colour."""
    means = applied.groupby("worker")["staleness"].mean()
    only_stalest = len(means) > len(PALETTE)
    coloured = list(means.index)
    if only_stalest:
        coloured = [means.idxmax()]
    alpha = max(0.05, min(0.3, 600 / max(1, len(applied))))
    for worker, gradients in applied.groupby("worker"):
        line: dict[str, Any] = {"color": LIGHT, "zorder": 2, "linestyle": "-"}
        if worker in coloured:
            index = coloured.index(worker)
            dash = DASHES[index % len(DASHES)]
            line = {"color": PALETTE[index], "zorder": 3, "linestyle": dash}
            line["label"] = "stalest worker" if only_stalest else f"worker {worker}"
        time, delays = gradients["time"], gradients["staleness"]
        points = {"color": line["color"], "zorder": line["zorder"]}
        axes.scatter(time, delays, alpha=alpha, **POINTS, **points)
        window = max(ROLLING, len(delays) // MIN_WINDOWS)
        axes.plot(time, delays.rolling(window, min_periods=1).mean(), linewidth=1.2, **line)
    if len(applied):
        axes.axhline(applied["staleness"].mean(), label="mean", **MEAN_LINE)
    axes.set(xlabel=AXIS_LABELS["time"], ylabel="staleness (updates)")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    if not applied["staleness"].any():
        axes.set_ylim(-0.1, 1.1)
    if not only_stalest:
        return ""
    return f"colour: the stalest worker, {coloured[0]}; grey: the other {len(means) - 1}"


def _theory_notes(panels: list[Axes]) -> list[str]:
    """Notes on the meaning of dashes and of theory's curves, where they are drawn."""
    for axes in panels:
        _, names = axes.get_legend_handles_labels()
        if any(name.startswith("theory") for name in names):
            return [DASHED, "theory: steady state"]
    return [DASHED]


def split(results: Runs, path: File = None, label: Label | None = None) -> Figure:
    """The updates and the seconds that fall into each phase of a gradient's life.

    One run has a bar per worker, several runs a bar per run, many runs a bar per setting. Bars are
    means over the applied gradients. See `phases`.
    """
    results = as_sequence(results)
    pools = [(name, [run]) for name, run in zip(titles(results, label), results, strict=True)]
    if len(results) > MAX_BARS:
        pools = pool_seeds(results, label)
        check_count([name for name, _ in pools], MAX_BARS, "bars")
    names = [name for name, _ in pools]
    tables = []
    for _, runs in pools:
        counts = pd.concat([phases(run.updates) for run in runs])
        spent = pd.concat([seconds(run.updates) for run in runs])
        tables.append((counts, spent))
    if len(results) == 1:
        names = ["all workers"]
        ranks = sorted(results[0].updates["worker"].unique())
        names += [f"worker {rank}" for rank in ranks]
        (whole,) = tables
        tables += [_rows_of_worker(whole, rank) for rank in ranks]
    shown = tables[:MAX_BARS]
    updates = [counts.drop(columns=["worker", "staleness"]).mean() for counts, _ in shown]
    times = [spent.drop(columns="worker").mean() for _, spent in shown]
    bars = []
    for name, (counts, _) in zip(names[:MAX_BARS], shown, strict=True):
        bars.append(f"{shorten(name, 48)} (n = {len(counts):,})")
    with styled_figure(8, 1.3 + 0.25 * max(3, len(shown)), path) as figure:
        left, right = figure.subplots(1, 2, sharey=True)
        _stack(left, updates, "{:.2f}")
        _stack(right, times, "{:.3g}")
        left.set_xlabel("mean staleness (updates)")
        right.set_xlabel("mean time from its start (s)")
        name_ticks(left.yaxis, range(len(bars)), bars)
        omitted = omission_note(names[MAX_BARS:])
        notes = ["n: applied gradients", omitted, _describe_missing_phases(results)]
        legend(figure, [left, right], notes)
    return figure


def _rows_of_worker(
    tables: tuple[pd.DataFrame, pd.DataFrame], rank: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    counts, spent = tables
    return counts[counts["worker"] == rank], spent[spent["worker"] == rank]


def _describe_missing_phases(results: Runs) -> str:
    """Why the last three phases are drawn as one, if they are."""
    results = as_sequence(results)
    if all(has_arrivals(result.updates) for result in results):
        return ""
    reason = "arrivals were not recorded (record.messages: true)"
    if all(result.config.record.messages for result in results):
        reason = "gradients are not messages here"
    return f"{reason}: the last three phases are one"


def _stack(axes: Axes, means: list[pd.Series], form: str) -> None:
    """Draw stacked bars with their sums beside them."""
    table = pd.DataFrame(means).fillna(0.0)
    stack_bars(axes, table, PHASE_STYLES)
    totals = table.sum(axis=1).to_numpy()
    style: dict[str, Any] = {"va": "center", "size": "small", "color": GREY}
    for row, total in enumerate(totals):
        text = form.format(total)
        axes.annotate(text, (total, row), (3, 0), textcoords="offset points", **style)
    longest = totals.max(initial=0.0)
    if longest == 0:  # no bar has a length; a tiny axis would have powers of ten for nothing
        longest = 1.0
    axes.set_xlim(0, 1.15 * longest)
    axes.grid(visible=False, axis="y")


def agreement(
    real: "Figures", simulated: "Figures", missing: pd.DataFrame, path: File = None
) -> Figure:
    """The staleness of a real run and of its simulation, and the error without each of the times.

    Args:
        missing: the error of the simulated rate without each time, as of `what_is_missing`.
    """
    with styled_figure(8, 3.2, path) as figure:
        left, right = figure.subplots(1, 2, width_ratios=(1, 1))
        _side_bars(left, real, -0.2, PALETTE[0], "real processes")
        _side_bars(left, simulated, 0.2, PALETTE[1], "simulated")
        left.set(xlabel="staleness (updates)", ylabel="gradients (%)", title="Staleness")
        left.yaxis.set_major_formatter(PERCENT)
        left.xaxis.get_major_locator().set_params(integer=True)
        errors = missing["error"].to_numpy()
        places = np.arange(len(errors))[::-1]
        colours = [PALETTE[2]] + [GREY] * (len(errors) - 1)
        right.barh(places, errors, 0.6, color=colours)
        right.axvline(0, color="black", linewidth=0.8)
        right.set_yticks(places, missing["missing"])
        right.set(xlabel="simulated rate above the real one (%)", title="Without one of the times")
        right.xaxis.set_major_formatter(PERCENT)
        legend(figure, left, ["right: the simulated cluster without that time"])
    return figure


def _side_bars(axes: Axes, figures: "Figures", offset: float, colour: str, name: str) -> None:
    places = np.arange(len(figures.staleness)) + offset
    axes.bar(places, figures.staleness, 0.38, color=colour, label=name)
