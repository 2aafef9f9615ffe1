"""A playground in a notebook: a cluster under sliders, its timeline, staleness and speed.

The clock alone is simulated, without gradients, so that every change is drawn at once.
"""

from html import escape
from io import BytesIO
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from laggard.experiments.config.config import parse
from laggard.experiments.config.document import find_config, read, text_of
from laggard.experiments.config.errors import ConfigError
from laggard.experiments.figures.style import AXIS_LABELS, LIGHT, PALETTE, PLAIN, STYLE
from laggard.experiments.results.measures import shares
from laggard.experiments.results.result import Result
from laggard.experiments.running.run import run
from laggard.experiments.theory.iteration_time import seconds_theory
from laggard.experiments.theory.staleness import staleness_theory
from laggard.limits import CpuBudget
from laggard.models.optional import import_optional
from laggard.simulator import Deadlock
from laggard.simulator.algorithms import ALGORITHMS

MEAN_SECONDS = 0.01
MESSAGE_BYTES = 246_824
"""The size of a message: LeNet-5's parameters in single precision."""
GRADIENTS_PER_WORKER = 40
"""The length of a simulation, in gradients of each worker."""
MOST_SECONDS = 5.0
"""The CPU time that a simulation may take (s)."""
SHOWN_GRADIENTS = 30
"""Gradients of each worker in the timeline, from the start."""
TOPOLOGY_KEYS = ("topology", "graph", "arguments")


class Knobs(NamedTuple):
    """The settings of the sliders.

    Attributes:
        method: the method's name in a config.
        slow_factor: the time of worker 0's mini-batch over that of the others.
        cv: standard deviation over mean, of the times of mini-batches.
        latency: the latency of a message (s).
        bandwidth: the bandwidth of each node's card (bytes/s).
    """

    method: str = "async_ps"
    workers: int = 8
    slow_factor: float = 3.0
    cv: float = 0.2
    latency: float = 1e-3
    bandwidth: float = 1e8

    def document(self) -> dict[str, Any]:
        """The config of a run of the clock alone."""
        compute = {"law": "gamma", "mean": MEAN_SECONDS, "cv": self.cv}
        if self.cv == 0:
            compute = {"law": "constant", "mean": MEAN_SECONDS}
        algorithm, topology = example_of(self.method)
        links = {"bandwidth": self.bandwidth, "latency": self.latency}
        return {
            "name": "playground",
            "cluster": {
                "workers": self.workers,
                "compute": compute,
                "slowdowns": [{"worker": 0, "factor": self.slow_factor}],
                "network": {**topology, **links, "message_bytes": MESSAGE_BYTES},
            },
            "algorithm": algorithm,
            "task": {"model": "timing"},
            "stop": {"gradients": GRADIENTS_PER_WORKER * self.workers},
        }

    def text(self) -> str:
        """The config as YAML, for `laggard run`."""
        question = f"# What does this cluster do to {self.method}? The clock alone is simulated.\n"
        learning = "# To learn as well: task: {model: lenet5, dataset: digits}\n"
        return question + text_of(self.document()) + learning


def example_of(method: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The keys of a method and of its topology in its toy config; without one, the name alone."""
    try:
        document = read(find_config(f"example:methods/{method}"))
    except ConfigError:
        return {"name": method}, {}
    network = document.get("cluster", {}).get("network", {})
    topology = {key: network[key] for key in TOPOLOGY_KEYS if key in network}
    algorithm = document.get("algorithm", {})
    if algorithm.get("name") != method:  # a config that sweeps methods
        algorithm = {"name": method}
    # a pipeline's cut names layers of the toy's network, which is not simulated here
    kept = {key: value for key, value in algorithm.items() if key != "cut"}
    return kept, topology


def simulate_clock(knobs: Knobs) -> Result:
    """Simulate the cluster; the result has its tables in memory, and no files.

    Raises:
        ConfigError: the method does not work on this cluster, or takes too long for sliders.
        Deadlock: the method waits for ever.
    """
    config = parse(knobs.document())
    with TemporaryDirectory(prefix="laggard-") as folder:
        try:
            with CpuBudget(MOST_SECONDS).limited():
                result = run(config, folder)
        except TimeoutError:
            problem = f"expected a simulation of at most {MOST_SECONDS:g} s: take fewer workers"
            raise ConfigError(knobs.method, problem) from None
        # a table is read when it is first used, and its file is about to be deleted
        result.updates  # noqa: B018
        result.workers  # noqa: B018
    return result


def facts_of(result: Result) -> list[tuple[str, str, str]]:
    """The measured quantities: name, value, and theory's value, empty without a closed form."""
    progress = result.manifest["mileage"]
    rate = progress["updates"] / progress["time"]
    waiting = shares(result.workers)["waiting"].mean()
    rows = [("updates a second", f"{rate:.1f}", "")]
    seconds = seconds_theory(result)
    if seconds is not None:
        rows[0] = ("updates a second", f"{rate:.1f}", f"{1 / seconds:.1f}")
    staleness = f"{_applied_staleness(result).mean():.2f}"
    theory = staleness_theory(result.config)
    if theory is None:
        rows.append(("mean staleness (updates)", staleness, ""))
    else:
        rows.append(("mean staleness (updates)", staleness, f"{theory.mean:.2f}"))
    rows.append(("waiting, of the workers' time", f"{100 * waiting:.0f} %", ""))
    return rows


def _applied_staleness(result: Result) -> np.ndarray:
    updates = result.updates
    staleness: np.ndarray = updates.loc[updates["status"] == "applied", "staleness"].to_numpy()
    return staleness


def picture_of(result: Result) -> bytes:
    """A picture (PNG) of the workers' timeline above the distribution of staleness.

    It takes a fifth of the time of the figures of `plot`: the places of its panels are fixed, all
    bars of a kind are one collection, and no tick is set as a formula.
    """
    with style.context(STYLE):
        picture = Figure(figsize=(8, 6), dpi=90)
        above = picture.add_axes((0.08, 0.5, 0.79, 0.44))
        scale = picture.add_axes((0.89, 0.5, 0.02, 0.44))
        below = picture.add_axes((0.08, 0.09, 0.79, 0.28))
        bars = _draw_timeline(above, result)
        picture.colorbar(
            bars,
            cax=scale,
            label="staleness (updates)",
            format=PLAIN,
            ticks=MaxNLocator(5, integer=True),
        )
        _draw_staleness(below, result)
        stream = BytesIO()
        picture.savefig(stream, format="png")
    return stream.getvalue()


def _draw_timeline(axes: Axes, result: Result) -> LineCollection:
    """The first gradients of each worker: thick bars compute and are coloured by staleness, thin
    ones are on their way. Returns the thick ones.
    """
    updates = result.updates
    workers = len(result.workers)
    shown = updates[updates.groupby("worker").cumcount() < SHOWN_GRADIENTS]
    until = shown.groupby("worker")["time"].max().min()
    computed = shown["computed"].fillna(shown["time"])
    height = 150 / workers  # points of a row
    axes.hlines(shown["worker"], computed, shown["time"], color=LIGHT, linewidth=0.25 * height)
    bars = axes.hlines(shown["worker"], shown["started"], computed, linewidth=0.7 * height)
    bars.set(array=shown["staleness"], cmap="viridis")
    bars.set_clim(0, max(1, shown["staleness"].max()))
    axes.set(xlim=(0, until), ylim=(workers - 0.4, -0.6), xlabel=AXIS_LABELS["time"])
    axes.set(ylabel="worker", title="computing, and on its way to its update")
    axes.yaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.xaxis.set_major_formatter(PLAIN)
    axes.yaxis.set_major_formatter(PLAIN)
    axes.grid(visible=False)
    return bars


def _draw_staleness(axes: Axes, result: Result) -> None:
    staleness = _applied_staleness(result).astype(int)
    counts = np.bincount(staleness, minlength=2)
    values = np.arange(len(counts))
    axes.bar(values, 100 * counts / max(1, len(staleness)), color=PALETTE[0], label="simulated")
    theory = staleness_theory(result.config)
    if theory is not None and theory.probabilities is not None:
        probabilities = 100 * theory.probabilities(values)
        axes.plot(values, probabilities, "o", color=PALETTE[1], label=f"theory: {theory.law}")
    elif theory is not None:
        mark: dict[str, Any] = {"color": PALETTE[1], "markersize": 9, "clip_on": False, "zorder": 3}
        axes.plot(theory.mean, 0, "^", label=f"theory: mean, {theory.law}", **mark)
    axes.set(xlabel="staleness (updates)", ylabel="gradients (%)")
    axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))
    axes.xaxis.set_major_formatter(PLAIN)
    axes.yaxis.set_major_formatter(PLAIN)
    axes.legend(loc="upper right")


class Playground:
    """Sliders for a cluster and a method, and the run that the clock simulates for them.

    Attributes:
        knobs: the values of the sliders.
        controls: a slider or a choice for each knob.
        result: the run that is shown, the last one that the cluster allowed.
        picture, config: its timeline and staleness, and its config as YAML.
        problem: the reason why the sliders' settings cannot be simulated, else empty.
        widget: all of it, as a notebook shows it.
    """

    def __init__(self, knobs: Knobs) -> None:
        """Build the widgets, and simulate once.

        Raises:
            MissingPackageError: the extra `notebook` is not installed.
            ConfigError, Deadlock: as of `simulate_clock`.
        """
        widgets = import_optional("ipywidgets", "notebook")
        self.knobs = knobs
        self.result = simulate_clock(knobs)
        self.picture = widgets.Image(format="png", layout={"width": "680px", "max_width": "100%"})
        self._facts = widgets.HTML()
        self.problem = widgets.HTML()
        self.config = widgets.Textarea(
            description="config",
            rows=20,
            disabled=True,
            layout={"width": "100%", "display": "none"},
        )
        self.controls = _controls(widgets, knobs)
        for control in self.controls.values():
            control.observe(self._redraw, names="value")
        self.button = widgets.ToggleButton(description="Show the config")
        self.button.observe(self._show_config, names="value")
        self._show()
        left = widgets.VBox([*self.controls.values(), self._facts, self.problem, self.button])
        both = widgets.HBox([left, self.picture], layout={"flex_flow": "row wrap"})
        self.widget = widgets.VBox([both, self.config])

    def _redraw(self, change: Any) -> None:
        """Simulate the sliders' settings and show the run, or say in a line why it cannot be
        simulated.
        """
        values = {name: control.value for name, control in self.controls.items()}
        values["latency"] /= 1e3
        values["bandwidth"] *= 1e6
        self.knobs = Knobs(**values)
        try:
            self.result = simulate_clock(self.knobs)
        except (ConfigError, Deadlock) as error:
            reason = escape(str(error))
            self.problem.value = f"<p><b>{reason}</b><br>Shown is the last that ran.</p>"
            return
        self._show()

    def _show(self) -> None:
        """Show the picture, the numbers and the config of the run."""
        self.picture.value = picture_of(self.result)
        table = "<table cellpadding=6><tr><th><th>simulated<th>theory"
        for name, value, theory in facts_of(self.result):
            table += f"<tr><td>{name}<td align=right>{value}<td align=right>{theory}"
        self._facts.value = f"{table}</table>"
        self.problem.value = ""
        self.config.value = self.knobs.text()

    def _show_config(self, change: Any) -> None:
        self.config.layout.display = "flex" if change["new"] else "none"

    def __repr__(self) -> str:
        """The numbers, where there is no notebook."""
        lines = [f"{self.knobs.method}, {self.knobs.workers} workers: a notebook shows the sliders"]
        for name, value, theory in facts_of(self.result):
            line = f"  {name}: {value}"
            if theory:
                line += f" (theory: {theory})"
            lines.append(line)
        return "\n".join(lines)

    def _ipython_display_(self) -> None:
        display = import_optional("IPython.display", "notebook")
        display.display(self.widget)


def _controls(widgets: Any, knobs: Knobs) -> dict[str, Any]:
    """A control for each knob; the latency is in ms and the bandwidth in MB/s."""
    wide = {"style": {"description_width": "120px"}, "layout": {"width": "380px"}}
    return {
        "method": widgets.Dropdown(
            options=sorted(ALGORITHMS), value=knobs.method, description="method", **wide
        ),
        "workers": widgets.IntSlider(knobs.workers, min=1, max=32, description="workers", **wide),
        "slow_factor": widgets.FloatSlider(
            knobs.slow_factor, min=1, max=10, step=0.5, description="worker 0, slower", **wide
        ),
        "cv": widgets.FloatSlider(
            knobs.cv, min=0, max=1, step=0.1, description="variation (cv)", **wide
        ),
        "latency": widgets.FloatLogSlider(
            1e3 * knobs.latency, min=-2, max=3, step=0.25, description="latency (ms)", **wide
        ),
        "bandwidth": widgets.FloatLogSlider(
            knobs.bandwidth / 1e6, min=-1, max=4, step=0.25, description="bandwidth (MB/s)", **wide
        ),
    }


def explore(method: str = "async_ps", workers: int = 8) -> Playground:
    """A playground in a notebook: sliders for a cluster, and its timeline as they move.

    Forty mini-batches a worker are simulated, without gradients, of the method on the cluster that
    the sliders describe. The playground shows the workers' timeline, the staleness of gradients
    beside theory's, updates a second and waiting; a button shows the config, for `laggard run`.

    Args:
        method: its name in a config, such as `sync_ps` or `sgp`.
        workers: the number of workers at first.

    Raises:
        MissingPackageError: the extra `notebook` is not installed.
        ConfigError: there is no such method, or it does not work on this cluster.

    Example:
        >>> playground = explore("sync_ps", workers=4)  # the last line of a cell shows it
        >>> playground.result.config.algorithm.name
        'sync_ps'
    """
    return Playground(Knobs(method, workers))
