"""A real run beside its simulation."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from laggard.experiments.figures.style import GREY, PALETTE, PERCENT, File, legend, styled_figure

if TYPE_CHECKING:
    from laggard.experiments.real.comparison import Figures


def agreement(real: "Figures", simulated: "Figures", missing: pd.DataFrame, path: File = None) -> Figure:
    """The staleness of a real run and of its simulation, and the error in its rate that each missing time makes.

    Args:
        missing: as `what_is_missing` gives it.
    """
    with styled_figure(8, 3.2, path) as figure:
        left, right = figure.subplots(1, 2, width_ratios=(1, 1))
        for figures, place, colour, name in (
            (real, -0.2, PALETTE[0], "real processes"),
            (simulated, 0.2, PALETTE[1], "simulated"),
        ):
            shares = figures.staleness
            left.bar(np.arange(len(shares)) + place, shares, 0.38, color=colour, label=name)
        left.set(xlabel="staleness (updates)", ylabel="gradients (%)", title="Staleness")
        left.yaxis.set_major_formatter(PERCENT)
        left.xaxis.get_major_locator().set_params(integer=True)
        errors = missing["error"].to_numpy()
        places = np.arange(len(errors))[::-1]
        right.barh(places, errors, 0.6, color=[PALETTE[2], *[GREY] * (len(errors) - 1)])
        right.axvline(0, color="black", linewidth=0.8)
        right.set_yticks(places, missing["missing"])
        right.set(xlabel="simulated rate above the real one (%)", title="Without one of the times")
        right.xaxis.set_major_formatter(PERCENT)
        legend(figure, left, ["right: the simulated cluster without that time"])
    return figure
