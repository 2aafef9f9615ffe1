"""Gossip against all-reduce: the accuracy lost, and the time saved.

Each setting of a study reports at one learning rate, so that a seed has one number for it.
"""

import pandas as pd

from laggard.experiments.questions.numbers import (
    TUNE,
    at_an_end,
    by_seed,
    longest_wait,
    lost_of,
    paired,
    points_ahead,
    points_behind,
    reported,
    select,
    times_as_large,
)
from laggard.experiments.questions.question import Answer, Picture, Question, Study
from laggard.experiments.questions.schedules import has, middle
from laggard.experiments.questions.slow_nodes import FULL_CARD, SLOW_NODE
from laggard.experiments.questions.words import SeedEstimate, exact, say_ratio

MOVED = 0.5
"""Points between the mean and the median beyond which an answer states the median too."""


def decide_late(table: pd.DataFrame) -> list[Answer]:
    """The points of accuracy lost by SGP whose messages may be tau = 1 or 2 gradients late.

        100 (acc(0) - acc(tau))

    Nodes that wait for every exchange have tau = 0. Each tau has its own best learning rate. Also
    shown: longer delays, and the times relative to waiting.
    """
    rows, seen = reported(table, "late")
    waits = by_seed(rows, "accuracy", tau=0)
    lost, pace = {}, {}
    beside: dict[str, SeedEstimate] = {}
    for tau in sorted(int(tau) for tau in rows["tau"].unique() if tau > 0):
        lost[tau] = points_behind(by_seed(rows, "accuracy", tau=tau), waits)
        pace[tau] = _late_over_waiting(rows, "seconds_per_sample", tau)
        if tau > 1:
            beside[f"points lost, {tau} late"] = lost[tau]
        beside |= _beside_late(table, rows, tau, pace[tau])
    answers = []
    for tau, words in ((1, "one gradient late"), (2, "two gradients late")):
        if tau not in lost:
            continue
        points, time = lost[tau].mean.value, pace[tau].mean.value
        numbers = beside if tau == 1 else {}
        answer = Answer(
            asks="How late may a gossip message be?",
            case=words,
            says=f"{words}: {points:.2f} points less, in {time:.2f} of the time a sample",
            number=lost[tau],
            unit="points lost",
            paper=f"messages {words} do no harm",
            source="assran2019",
            mark="notes",
            at_most=0.5,
            bar_of="ours",
            seen=seen,
            opponent=lost_of(rows, "accuracy", tau=0),
            first_said="cannot tell here",
            wants=0.2,
            why=at_an_end(table, "late", "accuracy", "accuracy", "tau"),
            beside=numbers,
        )
        answers.append(answer)
    return answers


def _late_over_waiting(rows: pd.DataFrame, measure: str, tau: int) -> SeedEstimate:
    """A measure where messages may be `tau` gradients late, over the one where nodes wait."""
    return times_as_large(by_seed(rows, measure, tau=tau), by_seed(rows, measure, tau=0))


def _beside_late(
    table: pd.DataFrame, rows: pd.DataFrame, tau: int, pace: SeedEstimate
) -> dict[str, SeedEstimate]:
    """The relative times at `tau`, and the points that its lower learning rate costs by itself.

    These points are measured at tau = 0, by the seeds that chose, if they ran both rates.
    """
    beside = {f"time a sample, {tau} late over waiting": pace}
    low = select(rows, tau=tau)["lr"].iloc[0]
    high = select(rows, tau=0)["lr"].iloc[0]
    tuned = select(table, study="late", role=TUNE, tau=0)
    if {low, high} <= set(tuned["lr"]):
        at_high, at_low = (by_seed(tuned, "accuracy", lr=rate) for rate in (high, low))
        name = f"points lost at the rate of {tau} late by who waits, seeds that chose"
        beside[name] = points_ahead(at_high, at_low)
    target = longest_wait(rows, "time_to")
    if target:
        reached = _late_over_waiting(rows, target, tau)
        beside[f"time to the target, {tau} late over waiting"] = reached
    return beside


def decide_accuracy(table: pd.DataFrame) -> list[Answer]:
    """The accuracy of all-reduce minus that of gossip in points, each at its best learning rate.

        100 (acc(all-reduce) - acc(gossip))

    Above 0, gossip costs accuracy. Three answers: SGP with 16 nodes, the change of its gap from the
    fewest to the most nodes, and AD-PSGD with 16 nodes.
    """
    rows, seen = reported(table, "step")
    answers = []
    if has(rows, "nodes", 16):
        answers.append(_gossip_at_16_nodes(table, rows, seen))
    if rows["nodes"].nunique() > 1:
        answers.append(_gossip_with_more_nodes(table, rows, seen))
    if has(table, "study", "pairs"):
        answers.append(_pairs(table))
    return answers


def _gossip_at_16_nodes(table: pd.DataFrame, rows: pd.DataFrame, seen: bool) -> Answer:
    """All-reduce minus SGP with 16 nodes; beside it other methods and numbers of nodes."""
    behind = {}
    for nodes in sorted(rows["nodes"].unique()):
        of_nodes = select(rows, nodes=nodes)
        all_reduce = by_seed(of_nodes, "accuracy", method="all_reduce")
        for method in of_nodes["method"].unique():
            own = by_seed(of_nodes, "accuracy", method=method)
            behind[method, nodes] = points_behind(own, all_reduce)
    number = behind["sgp", 16]
    beside = {
        f"points, all-reduce minus {method}, {nodes:g} nodes": other
        for (method, nodes), other in behind.items()
        if method != "all_reduce" and (method, nodes) != ("sgp", 16)
    }
    return Answer(
        asks="Does gossip cost accuracy at equal epochs?",
        says=_says_points("SGP with 16 nodes", number),
        number=number,
        unit="points, all-reduce minus SGP",
        paper="SGP is within 1.2 points of all-reduce at up to 32 nodes",
        source="assran2019",
        mark="read",
        at_most=1.2,
        bar_of="paper",
        seen=seen,
        opponent=lost_of(rows, "accuracy", method="all_reduce", nodes=16),
        wants=0.5,
        why=at_an_end(table, "step", "accuracy", "accuracy", "method", "nodes"),
        beside=beside,
    )


def _gossip_with_more_nodes(table: pd.DataFrame, rows: pd.DataFrame, seen: bool) -> Answer:
    """SGP's gap to all-reduce with the most nodes, minus its gap with the fewest.

    The subtraction removes what the larger total batch costs both methods.
    """
    fewest, most = rows["nodes"].min(), rows["nodes"].max()
    number = points_ahead(_apart(rows, most), _apart(rows, fewest))
    return Answer(
        asks="Does gossip cost more accuracy with more nodes?",
        says=_says_points(f"SGP from {fewest:g} to {most:g} nodes", number),
        number=number,
        unit=f"points more that it is behind at {most:g} nodes than at {fewest:g}",
        paper="accuracy falls as nodes are added to the 1-peer graph",
        source="assran2019",
        mark="notes",
        at_least=0.3,
        bar_of="ours",
        seen=seen,
        opponent=lost_of(rows, "accuracy", method="all_reduce", nodes=[fewest, most]),
        first_said="cannot tell here",
        wants=0.5,
        why=at_an_end(table, "step", "accuracy", "accuracy", "method", "nodes"),
    )


def _pairs(table: pd.DataFrame) -> Answer:
    """All-reduce minus AD-PSGD, which averages in pairs without a barrier."""
    rows, seen = reported(table, "pairs")
    all_reduce = by_seed(rows, "accuracy", method="all_reduce")
    number = points_behind(by_seed(rows, "accuracy", method="adpsgd"), all_reduce)
    return Answer(
        asks="Does AD-PSGD, whose nodes wait for nobody, cost accuracy?",
        says=_says_points("AD-PSGD with 16 nodes", number),
        number=number,
        unit="points, all-reduce minus AD-PSGD",
        paper="AD-PSGD is as accurate as all-reduce at equal epochs",
        source="lian2018",
        mark="read",
        at_most=0.5,
        bar_of="ours",
        seen=seen,
        opponent=lost_of(rows, "accuracy", method="all_reduce"),
        first_said="agrees",
        wants=0.5,
        why=at_an_end(table, "pairs", "accuracy", "accuracy", "method"),
    )


def _apart(rows: pd.DataFrame, nodes: float) -> pd.Series:
    """All-reduce's accuracy minus SGP's, one number per seed."""
    all_reduce = by_seed(rows, "accuracy", method="all_reduce", nodes=nodes)
    own, all_reduce = paired(by_seed(rows, "accuracy", method="sgp", nodes=nodes), all_reduce)
    return all_reduce - own


def _says_points(which: str, number: SeedEstimate) -> str:
    """A text: by how many points gossip is better or worse.

    It gives the median too where it differs from the mean by more than `MOVED`.
    """
    value, typical = number.mean.value, middle(number)
    direction = "worse" if value > 0 else "better"
    says = f"{which}: {abs(value):.2f} points {direction}"
    if abs(value - typical) > MOVED:
        typical_direction = "worse" if typical > 0 else "better"
        says = f"{says} in the mean, {abs(typical):.2f} {typical_direction} in the median"
    return says


class _TimesToTarget:
    """Times to a target, of epochs from trained runs and seconds per iteration from the clock.

    Args:
        rows: the trained runs that report.
        clock: the runs without learning, with the seconds of an iteration.
        target: the measure of the epochs to the target.
    """

    def __init__(self, rows: pd.DataFrame, clock: pd.DataFrame, target: str) -> None:
        self._rows = rows
        self._clock = clock
        self._target = target

    def seconds(self, method: str, workers: int = 32, link: str = "10 Gb/s") -> float:
        """The seconds of an iteration."""
        settings = {"method": method, "workers": workers, "link": link}
        return float(by_seed(self._clock, "seconds_per_update", **settings).iloc[0])

    def epochs(self, method: str, workers: int = 32) -> pd.Series:
        """The epochs to the target, one number per seed."""
        return by_seed(self._rows, self._target, method=method, workers=workers)

    def iteration(self, collective: str, link: str = "10 Gb/s") -> float:
        """The seconds of an iteration of all-reduce by `collective` over those of SGP."""
        return self.seconds(collective, link=link) / self.seconds("SGP", link=link)

    def over(self, collective: str, gossip: str, link: str = "10 Gb/s") -> SeedEstimate:
        """The time to the target of all-reduce by `collective` over that of the gossip method."""
        iteration = self.seconds(collective, link=link) / self.seconds(gossip, link=link)
        return times_as_large(iteration * self.epochs("all_reduce"), self.epochs(gossip))


def _say_how_much_sooner(over: SeedEstimate, iterations: SeedEstimate, iteration: float) -> str:
    """A text: the ratio of times, and its factors, iterations and seconds per iteration."""
    return say_ratio(
        over,
        f"{over.value:.1f} times sooner with 32 nodes: all-reduce needs {iterations.value:.1f} "
        f"times as many iterations, each of which takes {iteration:.2f} times as long",
    )


def decide_time(table: pd.DataFrame) -> list[Answer]:
    """The time to the target of all-reduce over that of SGP, with 32 nodes.

        (epochs of all-reduce / epochs of SGP) (seconds of all-reduce / seconds of SGP)

    Epochs to the target come from training, seconds per iteration from the clock. At an equal
    number of nodes, iterations are proportional to epochs. Above 1, gossip is faster. One answer
    for all-reduce by a ring in buckets that overlap the backward pass, one for all-reduce by a
    tree.
    """
    rows, seen = reported(table, "trained")
    target = longest_wait(rows, "epochs_to")
    clock, _ = reported(table, "clock")
    times = _TimesToTarget(rows, clock, target)
    iterations = times_as_large(times.epochs("all_reduce"), times.epochs("SGP"))
    beside = {
        "iterations to the target, all-reduce over SGP": iterations,
        "seconds an iteration, overlapped ring over SGP": exact(times.iteration("overlapped")),
        "seconds an iteration, ring over SGP": exact(times.iteration("ring")),
        "seconds an iteration, tree over SGP": exact(times.iteration("tree")),
        "the same on 1 Gb/s, overlapped ring over SGP": times.over("overlapped", "SGP", "1 Gb/s"),
        "the same on 1 Gb/s, tree over SGP": times.over("tree", "SGP", "1 Gb/s"),
    }
    if has(select(rows, method="SGP"), "workers", 4):
        # an epoch on 4 nodes has 8 times as many iterations as on 32
        scaled = times.seconds("SGP", 4) / times.seconds("SGP", 32) * 8
        fewer_nodes = times_as_large(scaled * times.epochs("SGP", 4), times.epochs("SGP"))
        beside["SGP with 4 nodes over SGP with 32"] = fewer_nodes
    if "1-OSGP" in set(rows["method"]):
        beside["overlapped ring over 1-OSGP"] = times.over("overlapped", "1-OSGP")
    answers = []
    for collective, how, bar in (
        ("overlapped", "by a ring that overlaps", 1.1),
        ("tree", "by a tree", 2.0),
    ):
        number = times.over(collective, "SGP")
        numbers = beside if collective == "overlapped" else {}
        answer = Answer(
            asks=f"How much sooner is gossip on 10 Gb/s than all-reduce {how}?",
            says=_say_how_much_sooner(number, iterations, times.iteration(collective)),
            number=number,
            unit="times SGP's time to the target",
            paper="32 nodes end after 1.6 hours with SGP, with AllReduce after more than 5",
            source="assran2019",
            mark="read",
            at_least=bar,
            bar_of="ours",
            seen=seen,
            opponent=lost_of(rows, target, method="SGP", workers=32),
            first_said="cannot tell here",
            wants=number.value * 0.2,
            why=at_an_end(table, "trained", target, "updates", "method", "workers"),
            beside=numbers,
        )
        answers.append(answer)
    return answers


LATE = Question(
    name="late-gossip",
    asks="How late may a gossip message be?",
    topic="networks",
    setting="LeNet-5, MNIST, SGP on 16 nodes, 4 epochs",
    papers=("assran2019",),
    studies={"late": Study("late-gossip", ("accuracy", "seconds_per_sample", "time_to"))},
    decide=decide_late,
    drawing=Picture(
        "accuracy",
        "tau",
        ylabel="test accuracy (%)",
        xlabel="gradients that a message may be late",
        where={"study": "late", "role": ["report", "seen"]},
    ),
)
ACCURACY = Question(
    name="gossip-accuracy",
    asks="Does gossip cost accuracy at equal epochs?",
    topic="networks",
    setting="LeNet-5, MNIST, 16 and 64 nodes, batch 32 on each, 20 epochs",
    papers=("assran2019", "lian2018"),
    studies={
        "step": Study("gossip-accuracy", ("accuracy",)),
        "pairs": Study("gossip-accuracy-pairs", ("accuracy",)),
    },
    decide=decide_accuracy,
    drawing=Picture(
        "accuracy",
        "nodes",
        "method",
        ylabel="test accuracy (%)",
        log_x=True,
        where={"study": "step", "role": "report"},
    ),
)
TIME = Question(
    name="gossip-time",
    asks="How much sooner is gossip on a slow network?",
    topic="networks",
    setting="LeNet-5, MNIST, 32 nodes, times and messages of ResNet-50",
    papers=("assran2019",),
    studies={
        "trained": Study("gossip-time", ("epochs_to",)),
        "clock": Study("gossip-time-clock", ("seconds_per_update",)),
    },
    decide=decide_time,
    drawing=Picture(
        "seconds_per_update",
        "workers",
        "method",
        "link",
        "seconds an iteration",
        "nodes",
        log_x=True,
        log_y=True,
    ),
)
QUESTIONS = (ACCURACY, TIME, SLOW_NODE, LATE, FULL_CARD)
