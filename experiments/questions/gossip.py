"""Gossip, slow nodes and full cards: what is lost in accuracy, and gained in time.

The runs of a study report at one rate for each setting, so that a seed has one number.
"""

import pandas as pd

from laggard.experiments.questions.numbers import (
    TUNE,
    at_an_end,
    by_seed,
    lost_of,
    paired,
    points_ahead,
    points_behind,
    reported,
    select,
    times_as_large,
)
from laggard.experiments.questions.question import Answer, Picture, Question, Study
from laggard.experiments.questions.words import SeedEstimate, exact


def longest_wait(table: pd.DataFrame, measure: str) -> str:
    """The measure that waits for the highest target, as `time_to_0.98`; empty without one."""
    names = table.loc[table["measure"].str.startswith(f"{measure}_"), "measure"].unique()
    return max(names, key=lambda name: float(name.removeprefix(f"{measure}_")), default="")


def decide_late(table: pd.DataFrame) -> list[Answer]:
    """Points lost by messages that are one and two gradients late, each at its best rate."""
    rows, seen = reported(table, "late")
    target = longest_wait(rows, "time_to")
    waits = by_seed(rows, "accuracy", tau=0)
    tuned = select(table, study="late", role=TUNE, tau=0)
    lost, pace = {}, {}
    beside: dict[str, SeedEstimate] = {}
    for tau in sorted(int(tau) for tau in rows["tau"].unique() if tau > 0):
        lost[tau] = points_behind(by_seed(rows, "accuracy", tau=tau), waits)
        pace[tau] = times_as_large(
            *(by_seed(rows, "seconds_per_sample", tau=late) for late in (tau, 0))
        )
        if tau > 1:
            beside[f"points lost, {tau} late"] = lost[tau]
        beside[f"time a sample, {tau} late over waiting"] = pace[tau]
        low, high = (select(rows, tau=each)["lr"].iloc[0] for each in (tau, 0))
        if {low, high} <= set(tuned["lr"]):
            at_low = points_ahead(*(by_seed(tuned, "accuracy", lr=rate) for rate in (high, low)))
            beside[f"points lost at the rate of {tau} late by who waits, seeds that chose"] = at_low
        if target:
            reached = times_as_large(*(by_seed(rows, target, tau=late) for late in (tau, 0)))
            beside[f"time to the target, {tau} late over waiting"] = reached
    words = {1: "one gradient late", 2: "two gradients late"}
    return [
        Answer(
            asks="How late may a gossip message be?",
            says=f"{words[tau]}: {lost[tau].mean.value:.2f} points less, in "
            f"{pace[tau].mean.value:.2f} of the time a sample",
            number=lost[tau],
            unit="points lost",
            paper=f"messages {words[tau]} do no harm",
            source="assran2019",
            mark="notes",
            at_most=0.5,
            bar_of="ours",
            seen=seen,
            opponent=lost_of(rows, "accuracy", tau=0),
            first_said="cannot tell here",
            wants=0.2,
            why=at_an_end(table, "late", "accuracy", "accuracy", "tau"),
            beside=beside if tau == 1 else {},
        )
        for tau in words
        if tau in lost
    ]


def decide_accuracy(table: pd.DataFrame) -> list[Answer]:
    """Points by which all-reduce is better than SGP and AD-PSGD, each at its best rate."""
    rows, seen = reported(table, "step")
    exact = {
        nodes: by_seed(rows, "accuracy", method="all_reduce", nodes=nodes)
        for nodes in sorted(rows["nodes"].unique())
    }
    behind = {}
    for nodes, of in exact.items():
        for method in rows.loc[rows["nodes"] == nodes, "method"].unique():
            own = by_seed(rows, "accuracy", method=method, nodes=nodes)
            behind[method, nodes] = points_behind(own, of)
    fewest, most = min(exact), max(exact)
    few, many = (_apart(rows, nodes) for nodes in (fewest, most))
    answers = [
        Answer(
            asks="Does gossip cost accuracy at equal epochs?",
            says=_says_points("SGP with 16 nodes", behind["sgp", 16]),
            number=behind["sgp", 16],
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
            beside={
                f"points, all-reduce minus {method}, {nodes:g} nodes": number
                for (method, nodes), number in behind.items()
                if method != "all_reduce" and (method, nodes) != ("sgp", 16)
            },
        ),
        Answer(
            asks="Does it cost more with more nodes?",
            says=_says_points(f"SGP from {fewest:g} to {most:g} nodes", points_ahead(many, few)),
            number=points_ahead(many, few),
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
        ),
    ]
    rows, seen = reported(table, "pairs")
    exact_rows, own = (by_seed(rows, "accuracy", method=m) for m in ("all_reduce", "adpsgd"))
    return [
        *answers,
        Answer(
            asks="Does AD-PSGD, which waits for nobody?",
            says=_says_points("AD-PSGD with 16 nodes", points_behind(own, exact_rows)),
            number=points_behind(own, exact_rows),
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
        ),
    ]


def _apart(rows: pd.DataFrame, nodes: float) -> pd.Series:
    """All-reduce's accuracy minus SGP's, a number a seed."""
    exact, own = (by_seed(rows, "accuracy", method=m, nodes=nodes) for m in ("all_reduce", "sgp"))
    own, exact = paired(own, exact)
    return exact - own


def _says_points(which: str, number: SeedEstimate) -> str:
    value = number.mean.value
    return f"{which}: {abs(value):.2f} points {'worse' if value > 0 else 'better'}"


def decide_time(table: pd.DataFrame) -> list[Answer]:
    """Time to the target with 32 nodes of all-reduce over gossip: iterations times seconds of one.

    Iterations are epochs over nodes, in ratios.
    """
    rows, seen = reported(table, "trained")
    target = longest_wait(rows, "epochs_to")
    clock, _ = reported(table, "clock")

    def seconds(method: str, workers: int = 32, link: str = "10 Gb/s") -> float:
        found = by_seed(clock, "seconds_per_update", method=method, workers=workers, link=link)
        return float(found.iloc[0])

    def epochs(method: str, workers: int = 32) -> pd.Series:
        return by_seed(rows, target, method=method, workers=workers)

    def over(collective: str, gossip: str, link: str = "10 Gb/s") -> SeedEstimate:
        iteration = seconds(collective, link=link) / seconds(gossip, link=link)
        return times_as_large(iteration * epochs("all_reduce"), epochs(gossip))

    iterations = times_as_large(epochs("all_reduce"), epochs("SGP"))
    has_overlap = "1-OSGP" in set(rows["method"])
    scaled = seconds("SGP", 4) / seconds("SGP", 32) * 8
    beside = {
        "iterations to the target, all-reduce over SGP": iterations,
        "seconds an iteration, overlapped ring over SGP": exact(
            seconds("overlapped") / seconds("SGP")
        ),
        "seconds an iteration, ring over SGP": exact(seconds("ring") / seconds("SGP")),
        "seconds an iteration, tree over SGP": exact(seconds("tree") / seconds("SGP")),
        "the same on 1 Gb/s, overlapped ring over SGP": over("overlapped", "SGP", "1 Gb/s"),
        "the same on 1 Gb/s, tree over SGP": over("tree", "SGP", "1 Gb/s"),
        "SGP with 4 nodes over SGP with 32": times_as_large(
            scaled * epochs("SGP", 4), epochs("SGP")
        ),
    }
    if has_overlap:
        beside["overlapped ring over 1-OSGP"] = over("overlapped", "1-OSGP")
    end = at_an_end(table, "trained", target, "updates", "method", "workers")
    paper = "32 nodes end after 1.6 hours with SGP, with AllReduce after more than 5"
    return [
        Answer(
            asks=f"How much sooner is gossip on 10 Gb/s than all-reduce {how}?",
            says=f"{number.value:.1f} times sooner with 32 nodes: all-reduce needs "
            f"{iterations.value:.1f} times as many iterations, each of which takes "
            f"{seconds(collective) / seconds('SGP'):.2f} times as long",
            number=number,
            unit="times SGP's time to the target",
            paper=paper,
            source="assran2019",
            mark="read",
            at_least=bar,
            bar_of="ours",
            seen=seen,
            opponent=lost_of(rows, target, method="SGP", workers=32),
            first_said=first,
            wants=number.value * 0.2,
            why=end,
            beside=beside if collective == "overlapped" else {},
        )
        for collective, how, bar, first in (
            ("overlapped", "by a ring that overlaps", 1.1, "cannot tell here"),
            ("tree", "by a tree", 2.0, "cannot tell here"),
        )
        for number in [over(collective, "SGP")]
    ]


def decide_slow_node(table: pd.DataFrame) -> list[Answer]:
    """Time to the target with a slow node: all-reduce over AD-PSGD, and AD-PSGD over itself."""
    rows, seen = reported(table, "trained")
    target = longest_wait(rows, "time_to")
    gossip = {slow: by_seed(rows, target, method="adpsgd", slowness=slow) for slow in (1, 10, 100)}
    waits = {slow: by_seed(rows, target, method="overlapped", slowness=slow) for slow in (1, 10)}
    over = {slow: times_as_large(own, gossip[slow]) for slow, own in waits.items()}
    bears = times_as_large(gossip[100], gossip[1])
    clock, _ = reported(table, "clock")
    kept = {}
    for method in ("adpsgd", "all_reduce", "overlapped", "adpsgd_overlap"):
        pace = {
            slow: by_seed(clock, "seconds_per_sample", method=method, slowness=slow)
            for slow in (1, 2, 10, 100)
            if slow in set(clock["slowness"])
        }
        for slow in pace.keys() - {1}:
            kept[f"throughput kept by {method} at {slow} times"] = times_as_large(
                pace[1], pace[slow]
            )
    end = at_an_end(table, "trained", target, "time", "method", "slowness")
    return [
        Answer(
            asks="Gossip or all-reduce, where one node of 16 is 10 times slower?",
            says=f"{'gossip' if over[10].value > 1 else 'all-reduce'}: all-reduce that overlaps "
            f"takes {over[10].value:.1f} times AD-PSGD's time; {over[1].value:.2f} where none is slow",
            number=over[10],
            unit="times AD-PSGD's time to the target",
            paper="AD-PSGD is much quicker where one worker is slow",
            source="lian2018",
            mark="read",
            at_least=3.0,
            bar_of="ours",
            seen=seen,
            opponent=lost_of(rows, target, method="adpsgd", slowness=10),
            first_said="cannot tell here",
            wants=over[10].value * 0.2,
            why=end,
            beside={"the same without a slow node": over[1], **dict(sorted(kept.items()))},
        ),
        Answer(
            asks="What does it cost AD-PSGD that the node is 100 times slower?",
            says=f"{bears.value:.2f} times its own time",
            number=bears,
            unit="times its time without a slow node",
            paper="one slow worker costs AD-PSGD little time, however slow it is",
            source="lian2018",
            mark="notes",
            at_most=1.25,
            bar_of="ours",
            seen=seen,
            opponent=lost_of(rows, target, method="adpsgd", slowness=1),
            first_said="cannot tell here",
            wants=0.2,
            why=end,
        ),
    ]


def decide_full_card(table: pd.DataFrame) -> list[Answer]:
    """Time to the target with a server whose card is full, and with how many workers it is."""
    rows, seen = reported(table, "card")
    measure = longest_wait(rows, "time_to") or "seconds_per_sample"
    full, free = (by_seed(rows, measure, network=name) for name in ("congested", "free"))
    sample = [by_seed(rows, "seconds_per_sample", network=name) for name in ("congested", "free")]
    clock, clock_seen = reported(table, "clock")
    few, many = clock["workers"].min(), clock["workers"].max()
    pace = {
        (method, workers): by_seed(clock, "seconds_per_sample", method=method, workers=workers)
        for method in ("async_ps", "adpsgd")
        for workers in (few, many)
    }
    enough = times_as_large(few * pace["async_ps", few], pace["async_ps", many])
    kept = times_as_large(few / many * pace["adpsgd", few], pace["adpsgd", many])
    sooner = times_as_large(pace["async_ps", many], pace["adpsgd", many])
    return [
        Answer(
            asks="What does it cost that a server's card is full?",
            says=f"{times_as_large(full, free).value:.1f} times as long",
            number=times_as_large(full, free),
            unit="times the time of a free network",
            paper="asynchronous SGD is much worse where a server's traffic is congested",
            source="lian2018",
            mark="read",
            at_least=2.0,
            bar_of="ours",
            seen=seen,
            opponent=lost_of(rows, measure, network="free"),
            first_said="differs",
            wants=times_as_large(full, free).value * 0.2,
            why=at_an_end(table, "card", measure, "time", "network"),
            beside={"the time a sample alone, by the clock": times_as_large(*sample)},
        ),
        Answer(
            asks="From how many workers on is it full, where a message takes 3 % of a gradient?",
            says=f"near {enough.value:.0f}; AD-PSGD is {sooner.value:.2f} times as fast at {many:g}",
            number=sooner,
            unit=f"times the server's gradients a second with {many:g} workers",
            paper="a server becomes the bottleneck, where gossip's speed-up stays linear",
            source="lian2018",
            mark="notes",
            at_least=1.5,
            bar_of="ours",
            seen=clock_seen,
            first_said="cannot tell here",
            beside={
                "workers whose gradients the card carries": enough,
                f"AD-PSGD's speed a worker, {many:g} over {few:g} workers": kept,
            },
        ),
    ]


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
SLOW_NODE = Question(
    name="slow-node",
    asks="What does one slow node of 16 cost?",
    topic="networks",
    setting="LeNet-5, MNIST, 16 nodes, batch 32 on each, a message takes a fifth of a gradient",
    papers=("lian2018",),
    studies={
        "trained": Study("slow-node", ("time_to",)),
        "clock": Study("slow-node-clock", ("seconds_per_sample",)),
    },
    decide=decide_slow_node,
    drawing=Picture(
        "seconds_per_sample",
        "slowness",
        "method",
        ylabel="seconds a sample",
        xlabel="how many times slower one node of 16 is",
        log_x=True,
        log_y=True,
    ),
)
FULL_CARD = Question(
    name="full-card",
    asks="When is a server's card full, and what does that cost?",
    topic="networks",
    setting="LeNet-5, MNIST, 16 asynchronous workers; and the clock alone with 4 to 64",
    papers=("lian2018",),
    studies={
        "card": Study("full-card", ("time_to", "seconds_per_sample")),
        "clock": Study("full-card-clock", ("seconds_per_sample",)),
    },
    decide=decide_full_card,
    drawing=Picture(
        "seconds_per_sample",
        "workers",
        "method",
        ylabel="seconds a sample",
        log_x=True,
        log_y=True,
        where={"study": "clock"},
    ),
)
QUESTIONS = (ACCURACY, TIME, SLOW_NODE, LATE, FULL_CARD)
