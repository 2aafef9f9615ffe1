"""The figure of a claim: a statistic against one of its keys, a line for each value of another."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from pandas.api.types import is_numeric_dtype

from experiments.figures.look import COUNT, PLAIN, SPARSE, drawing, legend, saved
from experiments.figures.seeds import Seeds, draw, reach, refer, seeds
from experiments.lines import CONFIDENCE, said

if TYPE_CHECKING:
    import pandas as pd

    from experiments.claims import Claim
    from experiments.claims.claim import Picture, Scale

SEED = "seed"
TICKS = 12
CLOSE = 0.02  # settings that lie closer than this, as a share of the axis, are not named each
REFERENCES = ("theory", "bound")


def stored(name: str, folder: str | Path = "results/claims", scale: "Scale" = "cpu") -> Figure:
    """The figure of the claim called `name`, from the numbers that its row was stored with.

    Raises:
        ValueError: no such row, or it has no figure.
    """
    from experiments.claims import claims
    from experiments.claims.ledger import figure_table, ledger

    rows = ledger(Path(folder), scale)
    table = figure_table(rows[name], Path(folder)) if name in rows else None
    if table is None:
        raise ValueError(f"{name}: expected a stored row with a figure; there are {', '.join(rows) or 'none'}")
    return picture(claims([name])[0], table)


def picture(claim: "Claim", table: "pd.DataFrame", path: str | Path | None = None) -> Figure:
    """A claim's statistic: means over seeds with the 95 % interval of the mean, of the values that are finite.

    On a logarithmic axis they are means of logarithms, if all values have one. Seeds are light points beside their
    mean; those without a finite value, as one that never reached a loss, are counted above the frame. Curves that
    `together` calls theory or bound lie beneath the others.

    Args:
        table: a row per setting and seed, with the statistic as `value`.

    Raises:
        ValueError: the claim has no figure, or the table not its keys.
    """
    drawn = claim.figure
    if drawn is None:
        raise ValueError(f"{claim.id} has no figure")
    for key in filter(None, (drawn.x, drawn.lines)):
        if key not in table:
            raise ValueError(f"{claim.id}: the statistic {drawn.of} has no key {key!r}")
    names = list(dict.fromkeys(table[drawn.lines])) if drawn.lines else [None]
    settings = None if is_numeric_dtype(table[drawn.x]) else list(dict.fromkeys(table[drawn.x]))
    log = drawn.log_y and bool((table["value"] > 0).all())
    with drawing(8, 4.2) as figure:
        axes = figure.subplots()
        lines = []
        for number, name in enumerate(names):
            own = table if name is None else table[table[drawn.lines] == name]
            lines.append(seeds(own, drawn.x, settings, number - (len(names) - 1) / 2, log))
            if drawn.lines == "of" and name in REFERENCES:
                refer(axes, lines[-1], name)
            else:
                draw(axes, lines[-1], number, _label(drawn, name), drawn.lost)
        _across(axes, drawn, settings or sorted(set(table[drawn.x])), settings is not None)
        _upwards(axes, drawn, lines)
        legend(figure, axes, [f"{claim.id}: {claim.question}{_note(table, lines, drawn, log)}"])
    return saved(figure, path)


def _label(drawn: "Picture", name: Any) -> str | None:
    """What a line is called: names speak for themselves, numbers with their key."""
    if name is None:
        return None
    if drawn.label is not None:
        return drawn.label.replace("{}", said(name))
    return name if isinstance(name, str) else said(name, str(drawn.lines))


def _across(axes: Axes, drawn: "Picture", settings: list[Any], named: bool) -> None:
    """The axis across, with the settings as its ticks where they are few and lie apart."""
    axes.set_xlabel(drawn.xlabel or drawn.x)
    if named:
        axes.set_xticks(range(len(settings)), list(map(str, settings)))
        axes.set_xlim(-0.5, len(settings) - 0.5)
        return
    places = np.array(settings, float)
    if drawn.log_x:
        positive = places[places > 0]
        linear = {"linthresh": positive.min(), "linscale": 0.5} if len(positive) < len(places) else {}
        axes.set_xscale("symlog" if linear else "log", **linear)
        places = np.log(np.maximum(places, positive.min() / 3))
    if len(settings) <= TICKS and np.all(np.diff(places) >= CLOSE * np.ptp(places)):
        axes.set_xticks(settings, [COUNT(setting) for setting in settings])
        axes.xaxis.set_minor_locator(NullLocator())


def _upwards(axes: Axes, drawn: "Picture", lines: list[Seeds]) -> None:
    """The axis upwards; a logarithmic one of less than two decades is named by plain numbers."""
    low, high = reach(lines, drawn.log_y)
    axes.set_ylabel(drawn.y)
    if drawn.log_y:
        axes.set_yscale("log")
        if high < 100 * low:
            axes.yaxis.set_minor_formatter(PLAIN if high < 3 * low else SPARSE)
        if low > 1e-4 and high < 1e4:
            axes.yaxis.set_major_formatter(PLAIN)
    axes.set_ylim(low, high)


def _note(table: "pd.DataFrame", lines: list[Seeds], drawn: "Picture", log: bool) -> str:
    """What points and bars are."""
    count = table[SEED].nunique() if SEED in table else 0
    if count < 2:
        return ""
    points = "" if all(line.is_curve for line in lines) else "; seeds are light"
    lost = {"never": "never get there", "diverged": "diverged"}[drawn.lost]
    never = f", without those that {lost}" if any(line.never.any() for line in lines) else ""
    means = "Geometric means" if log else "Means"
    return f" {means} of {count} seeds{never}, {100 * CONFIDENCE:.0f} % intervals{points}."
