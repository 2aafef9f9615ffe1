"""A live view of a run in the terminal: curves, staleness, and waiting workers.

The view is drawn inside the process that simulates: nothing is written for it, so that nothing can
be torn, and it sees what no file has yet. It is drawn at most twice a second, and so seldom that it
takes a sixtieth of the time at most.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from time import perf_counter
from typing import TYPE_CHECKING, TextIO

import numpy as np

from laggard.experiments.config.config import Config
from laggard.experiments.config.grid import RunSpec
from laggard.experiments.results.measures import CURVES
from laggard.experiments.running.progress import Observer, describe_progress
from laggard.simulator import RunProgress

if TYPE_CHECKING:
    from laggard.simulator.engine.simulation import Simulation

PERIOD, PLAIN_PERIOD, SHARE = 0.5, 5.0, 60
"""Seconds of wall time between two views, on a terminal and as plain lines; and how often a
drawing's own time.
"""
RECENT, WAITERS = 500, 5


class View(Observer):
    """Called with the progress after every update; draws from time to time."""

    def __init__(self, config: Config, file: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        super().__init__(config)
        self._name = config.name
        self._console = Console(file=file, highlight=False)
        self.plain = not self._console.is_terminal
        self.live = None if self.plain else Live(console=self._console, auto_refresh=False)
        self._next = perf_counter() + PERIOD
        self.spent = 0.0  # seconds of drawing

    def __call__(self, progress: RunProgress) -> None:
        """Draw if the last drawing is old enough."""
        if (now := perf_counter()) >= self._next:
            self.draw(progress)
            cost = perf_counter() - now
            self.spent += cost
            self._next = now + max(PLAIN_PERIOD if self.plain else PERIOD, SHARE * cost)

    def draw(self, progress: RunProgress) -> None:
        """Draw now."""
        assert self._simulation is not None
        lines = describe_state(self._simulation, progress, perf_counter() - self._began)
        if advance := self.advance():
            lines[0] = f"{advance.share:.0%}{advance.time_left}, {lines[0]}"
        if self.live is None:
            self._console.print(f"{self._name}: {'; '.join(lines)}", soft_wrap=True, markup=False)
            return
        from rich.text import Text

        curve = plot_lines(
            self._simulation, self._console.width, max(8, self._console.height - len(lines) - 4)
        )
        self.live.update(Text.from_ansi("\n".join([self._name, *curve, *lines])), refresh=True)


@contextmanager
def live_view(spec: RunSpec) -> Iterator[View]:
    """Around a simulation; the view stays on the terminal after it, and the cursor is back after
    Ctrl-C.
    """
    view = View(spec.config, sys.stderr)
    with view.live or nullcontext():
        yield view


def describe_state(simulation: "Simulation", progress: RunProgress, seconds: float) -> list[str]:
    """Lines on the progress, the last metrics, the last gradients' staleness, and the longest
    waits.
    """
    lines = [describe_progress(progress, seconds)]
    curves = simulation.evaluations()
    last = {
        name: curves[name][-1]
        for name in CURVES
        if name in curves and np.isfinite(curves[name][-1])
    }
    if last:
        lines.append(
            ", ".join(
                f"{CURVES[name].split(' (')[0]} {_value(name, value)}"
                for name, value in last.items()
            )
        )
    updates = simulation.trace.columns()
    stale = updates["staleness"][updates["status"] == "applied"][-RECENT:]
    if len(stale):
        lines.append(
            f"staleness {stale.mean():.2f} on average, {stale.max()} at most, of the last {len(stale)} gradients"
        )
    return [*lines, describe_waiting(simulation, progress.time)]


def describe_waiting(simulation: "Simulation", now: float) -> str:
    """Which workers wait, and for how many virtual seconds; the longest first."""
    since = {
        rank: node.mailbox.waiting()
        for rank, node in simulation.nodes.items()
        if rank >= 0 and node.idle
    }
    longest = sorted(
        (min(receive.since for receive in of), rank) for rank, of in since.items() if of
    )
    if not longest:
        return "no worker waits"
    shown = ", ".join(f"{rank} for {now - moment:.3g} s" for moment, rank in longest[:WAITERS])
    more = f" and {len(longest) - WAITERS} more" * (len(longest) > WAITERS)
    return f"{len(longest)} of {sum(rank >= 0 for rank in simulation.nodes)} workers wait: {shown}{more}"


def plot_lines(simulation: "Simulation", width: int, height: int) -> list[str]:
    """The lines of a plot of the metric against virtual time, a curve per member, six at most."""
    curves = simulation.evaluations()
    measure = next(
        (name for name in CURVES if name in curves and np.isfinite(curves[name]).sum() > 1), None
    )
    if measure is None:
        return []
    import plotext

    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plot_size(max(40, min(width, 100)), min(height, 16))
    for member in sorted(set(curves["member"].tolist()))[:6]:
        of = (curves["member"] == member) & np.isfinite(curves[measure])
        scale = 100 if measure == "test_accuracy" else 1
        plotext.plot(
            curves["time"][of].tolist(), (scale * curves[measure][of]).tolist(), marker="braille"
        )
    plotext.title(f"{CURVES[measure]} against virtual time (s)")
    return plotext.build().rstrip("\n").split("\n")  # type: ignore[no-any-return]


def _value(name: str, value: float) -> str:
    return f"{value:.2%}" if name == "test_accuracy" else f"{value:.4g}"
