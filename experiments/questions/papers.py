"""The page of each paper: its figure with our points, and its claims beside our numbers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from laggard.experiments.questions.delay import whole_grid
from laggard.experiments.questions.numbers import REPORT, reported, select
from laggard.experiments.questions.question import Picture
from laggard.experiments.questions.staleness_rates import stable_limits
from laggard.experiments.theory.stability import critical

if TYPE_CHECKING:
    import pandas as pd

GRADIENT_SECONDS = 0.01  # of the study `slow-node-clock`
STALE_STEPS = {"no delay": 0, "20": 20, "50": 50}
"""The delays of the study `staleness-ramp` that come with a ramp."""


@dataclass(frozen=True)
class Paper:
    """A paper, and its figure with our points.

    Attributes:
        key: the key in `references.bib`; the paper's page is `docs/papers/<key>.md`.
        question: the name of the question whose numbers are drawn.
        points: a function from the question's table of numbers to the rows that are drawn. They
            have the columns `line`, `x`, `seed` and `value`, and `panel` if there are several.
        drawing: the axes of the figure.
        caption: a text on our points and on the grey ones.
        reported: the paper's values: name of the line -> x -> value. They are drawn in grey.
    """

    key: str
    question: str
    points: "Callable[[pd.DataFrame], pd.DataFrame]"
    drawing: Picture
    caption: str
    reported: Mapping[str, Mapping[float, float]] = field(default_factory=dict)


def accuracy_by_rate(table: "pd.DataFrame") -> "pd.DataFrame":
    """Accuracy against the learning rate: a line per delay, a panel per optimiser.

    All seeds are shown, at the rates of the seeds that ran the whole grid.
    """
    rows = select(table, measure="accuracy", delay=[0, 8, 32, 128, 256])
    rows = select(rows, lr=set(whole_grid(rows)["lr"]))
    names = [f"delay {delay:g}" for delay in rows["delay"]]
    drawn = rows.assign(line=names, x=rows["lr"], panel=rows["optimiser"], role=REPORT)
    return drawn.sort_values(["panel", "delay"], ascending=[False, True], kind="stable")


def error_by_workers(table: "pd.DataFrame") -> "pd.DataFrame":
    """Test error over ASGD's mean error with the same number of workers, each at its best rate.

    Numbers of workers without runs of ASGD are left out.
    """
    rows, _ = reported(select(table, measure="accuracy"), "workers")
    error = 1 - rows["value"].mask(rows["lost"])
    plain = error.where(rows["method"] == "ASGD").groupby(rows["workers"]).transform("mean")
    rows = rows.assign(line=rows["method"], x=rows["workers"], value=error / plain)
    return rows[plain.notna()]


def over_asgd(errors: Mapping[str, tuple[float, float]]) -> dict[str, dict[float, float]]:
    """The errors that the paper reports with 4 and 8 workers, over ASGD's: line -> workers ->
    ratio.
    """
    plain = errors["ASGD"]
    return {
        f"{method}, reported": {4: own[0] / plain[0], 8: own[1] / plain[1]}
        for method, own in errors.items()
    }


def seconds_by_nodes(table: "pd.DataFrame") -> "pd.DataFrame":
    """Seconds per iteration against the number of nodes, on 10 Gb/s."""
    names = {
        "SGP": "SGP",
        "D-PSGD": "D-PSGD",
        "tree": "all-reduce by a tree",
        "ring": "by a ring",
        "overlapped": "by a ring that overlaps",
    }
    rows = select(table, study="clock", link="10 Gb/s", method=list(names))
    return rows.assign(line=rows["method"].map(names), x=rows["workers"])


def speed_up_by_slowness(table: "pd.DataFrame") -> "pd.DataFrame":
    """The throughput of 16 nodes over that of one, against the slowdown of one of the 16."""
    names = {
        "adpsgd": "AD-PSGD",
        "adpsgd_overlap": "AD-PSGD that overlaps",
        "all_reduce": "all-reduce",
        "overlapped": "all-reduce that overlaps",
    }
    rows = select(table, study="clock", method=list(names))
    faster = GRADIENT_SECONDS / rows["value"]
    return rows.assign(line=rows["method"].map(names), x=rows["slowness"], value=faster)


def error_by_staleness(table: "pd.DataFrame") -> "pd.DataFrame":
    """Test error in % against the delay after a ramp, each delay at its best rate."""
    rows = select(table, study="ladder", measure="accuracy", delay=list(STALE_STEPS))
    steps = rows["delay"].map(STALE_STEPS)
    return rows.assign(line="LeNet-5, 3 epochs", x=steps, value=100 * (1 - rows["value"]))


def momentum_by_workers(table: "pd.DataFrame") -> "pd.DataFrame":
    """Fitted momentum against the number of workers, at the middle of its three learning rates."""
    rows = select(table, study="fits", measure="momentum")
    middle = rows.groupby("P")["lr"].transform("median")
    at_middle = rows[rows["lr"] == middle]
    names = [f"{law} times" for law in at_middle["law"]]
    return at_middle.assign(line=names, x=at_middle["P"])


def stable_rate_by_delay(table: "pd.DataFrame") -> "pd.DataFrame":
    """The largest stable rate at a minimum times its sharpness, against the delay."""
    rows, _ = reported(table, "smooth")
    over_theory = (
        stable_limits(select(rows, of="growth"))
        .stack([0, 1])
        .rename_axis(["seed", "momentum", "delay"])
    )
    points = over_theory.rename("over").reset_index()
    limits = [
        critical(int(delay), momentum, nesterov=False)[0]
        for delay, momentum in zip(points["delay"], points["momentum"], strict=True)
    ]
    names = [f"momentum {momentum:g}" for momentum in points["momentum"]]
    values = points["over"] * limits
    return points.assign(line=names, x=points["delay"], value=values, role=REPORT, lost=False)


def loss_by_time(table: "pd.DataFrame") -> "pd.DataFrame":
    """Loss against virtual seconds: a line for each number of gradients in an update."""
    rows = table[(table["study"] == "race") & table["measure"].str.startswith("loss_at_")]
    seconds = rows["measure"].str.removeprefix("loss_at_").str.removesuffix("s").astype(float)
    names = [f"waits for {number:g}" for number in rows["wait_for"]]
    return rows.assign(line=names, x=seconds)


def error_by_rule(table: "pd.DataFrame") -> "pd.DataFrame":
    """Test error in % by the rule that divides the best rate of synchronous SGD.

    A line per number of gradients in an update.
    """
    rows = select(table, study="synchronous", measure="accuracy")
    rows = rows[~rows["method"].str.contains("at 0.01")]
    rule = rows["method"].str.split(",").str[0]
    two = rows["method"].str.contains("two gradients")
    names = two.map({True: "two gradients an update", False: "one gradient an update"})
    names = names.mask(rule == "synchronous", "all gradients an update")
    return rows.assign(line=names, x=rule, value=100 * (1 - rows["value"]))


def loss_by_rate(table: "pd.DataFrame") -> "pd.DataFrame":
    """Loss in nats per character after one epoch, against the learning rate of Adam."""
    rows = select(table, study="characters", measure="loss")
    return rows.assign(line=rows["method"], x=rows["lr"])


def time_by_server(table: "pd.DataFrame") -> "pd.DataFrame":
    """Virtual seconds to a loss, by method: a line per law of the workers' speeds."""
    rows = select(table, study="uneven")
    names = [f"times as {speeds}" for speeds in rows["speeds"]]
    return rows.assign(line=names, x=rows["method"])


def plane(
    ylabel: str,
    xlabel: str,
    log_x: bool = False,
    log_y: bool = False,
    measure: str = "value",
    panels: str = "",
) -> Picture:
    """The axes of a figure of `Paper.points`."""
    return Picture(measure, "x", "line", panels, ylabel, xlabel, log_x, log_y)


PAPERS = (
    Paper(
        "srinivasan2018",
        "delay-rate",
        accuracy_by_rate,
        plane("test accuracy (%)", "learning rate", log_x=True, measure="accuracy", panels="panel"),
        "LeNet-5 on MNIST, batch 32, 30 epochs, a constant delay; the paper's values are unknown.",
    ),
    Paper(
        "zheng2017",
        "compensation",
        error_by_workers,
        plane("test error over ASGD's", "workers", log_x=True),
        "Ours: LeNet-5 on MNIST, 3 epochs. Grey: reported about, ResNet-20 on CIFAR-10, 160 epochs.",
        over_asgd(
            {
                "ASGD": (9.27, 10.26),
                "SSGD": (9.17, 10.10),
                "DC-ASGD-c": (8.67, 9.27),
                "DC-ASGD-a": (8.19, 8.57),
            }
        ),
    ),
    Paper(
        "assran2019",
        "gossip-time",
        seconds_by_nodes,
        plane("seconds an iteration", "nodes", log_x=True),
        "The times of ResNet-50 on 10 Gb/s by the clock alone. Grey: reported about.",
        {
            "SGP, reported": {4: 0.377, 8: 0.377, 16: 0.409, 32: 0.435},
            "AllReduce, reported": {4: 0.703, 8: 0.895, 16: 1.087, 32: 1.304},
            "D-PSGD, reported": {4: 0.63, 8: 0.62, 16: 0.64, 32: 0.67},
        },
    ),
    Paper(
        "lian2018",
        "slow-node",
        speed_up_by_slowness,
        plane("speed-up over one node", "how slow one node of 16 is", log_x=True, log_y=True),
        "A message takes a fifth of a gradient; by the clock alone. Grey: reported about.",
        {
            "AD-PSGD, reported": {1: 14.8, 2: 14.1, 10: 13.6, 100: 13.6},
            "AllReduce, reported": {1: 12.3, 2: 6.9, 10: 1.6, 100: 0.18},
        },
    ),
    Paper(
        "chen2016",
        "staleness-ramp",
        error_by_staleness,
        plane("test error (%)", "delay (updates)", log_y=True),
        "Ours after 3 epochs, with a ramp of staleness. Grey: reported about, a network of its own.",
        {"reported": {0: 0.36, 20: 0.47, 50: 0.79}},
    ),
    Paper(
        "zhang2016",
        "rate-by-staleness",
        error_by_rule,
        replace(
            plane("test error (%)", "learning rate", log_y=True),
            order=("fixed", "by workers", "by staleness", "synchronous"),
        ),
        "LeNet-5 on MNIST, 30 workers, all at the best rate of synchronous SGD.",
    ),
    Paper(
        "aji2019",
        "adam-accumulate",
        loss_by_rate,
        plane("loss (nats)", "learning rate of Adam", log_x=True),
        "A small Transformer on a toy language, one epoch. The paper's task is translation.",
    ),
    Paper(
        "maranjyan2025a",
        "uneven-workers",
        time_by_server,
        plane("virtual seconds to the loss", "method", log_y=True),
        "A quadratic with small noise, 32 workers; a number is Rennala's batch or Ringmaster's bound.",
    ),
    Paper(
        "mitliagkas2016",
        "implicit-momentum",
        momentum_by_workers,
        plane("momentum", "workers"),
        "Momentum fitted to a trajectory on a quadratic. Grey: the paper's formula.",
        {"1 - 1 / P": {workers: 1 - 1 / workers for workers in (2, 4, 8)}},
    ),
    Paper(
        "giladi2020",
        "stable-rate",
        stable_rate_by_delay,
        plane("largest stable rate x curvature", "delay (updates)", log_x=True, log_y=True),
        "A network of tanh units at minima that were found. Grey: theory of a quadratic.",
        {
            f"theory, momentum {momentum:g}": {
                delay: critical(delay, momentum, nesterov=False)[0] for delay in (2, 8, 32)
            }
            for momentum in (0.0, 0.9)
        },
    ),
    Paper(
        "dutta2018",
        "uneven-workers",
        loss_by_time,
        plane("loss", "virtual time (s)", log_x=True, log_y=True),
        "A noisy quadratic, exponential times; a server that waits for K gradients.",
    ),
)
"""The papers whose figures can be drawn from stored numbers."""
