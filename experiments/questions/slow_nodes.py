"""The times of gossip, all-reduce and a server with a slow node, or with a full network card.

Each setting of a study reports at one learning rate, so that a seed has one number for it.
"""

import pandas as pd

from laggard.experiments.questions.numbers import (
    at_an_end,
    by_seed,
    longest_wait,
    lost_of,
    reported,
    select,
    times_as_large,
)
from laggard.experiments.questions.question import Answer, Picture, Question, Study
from laggard.experiments.questions.words import SeedEstimate, say_ratio


def decide_slow_node(table: pd.DataFrame) -> list[Answer]:
    """The cost of one slow node of 16 in time to the target, for all-reduce and for AD-PSGD.

        time of overlapped all-reduce / time of AD-PSGD,    the slow node 10 times slower
        time of AD-PSGD, 100 times slower / time of AD-PSGD, none slower

    Times are virtual seconds. A first number above 1 says that gossip is faster; a second near 1
    that a slow node costs it little.
    """
    rows, seen = reported(table, "trained")
    target = longest_wait(rows, "time_to")
    end = at_an_end(table, "trained", target, "time", "method", "slowness")
    gossip = {slow: by_seed(rows, target, method="adpsgd", slowness=slow) for slow in (1, 10, 100)}
    over = {
        slow: times_as_large(
            by_seed(rows, target, method="overlapped", slowness=slow), gossip[slow]
        )
        for slow in (1, 10)
    }
    against_all_reduce = Answer(
        asks="Gossip or all-reduce, where one node of 16 is 10 times slower?",
        says=_say_who_is_faster(over[10], over[1]),
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
        beside={"the same without a slow node": over[1], **_kept_throughputs(table)},
    )
    slowdown = times_as_large(gossip[100], gossip[1])
    against_itself = Answer(
        asks="What does it cost AD-PSGD that one node of 16 is 100 times slower?",
        says=say_ratio(slowdown, f"{slowdown.value:.2f} times its own time"),
        number=slowdown,
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
    )
    return [against_all_reduce, against_itself]


def _say_who_is_faster(slowed: SeedEstimate, even: SeedEstimate) -> str:
    """A text: the time of all-reduce over that of gossip, with a slow node and without."""
    faster = "gossip" if slowed.value > 1 else "all-reduce"
    says = f"{faster}: all-reduce that overlaps takes {slowed.value:.1f} times AD-PSGD's time"
    if even.has_ratio:
        says += f"; {even.value:.2f} where none is slow"
    return say_ratio(slowed, says)


def _kept_throughputs(table: pd.DataFrame) -> dict[str, SeedEstimate]:
    """The throughput with a slow node over that without, by method and slowdown, sorted by name."""
    clock, _ = reported(table, "clock")
    factors = [slow for slow in (2, 10, 100) if slow in set(clock["slowness"])]
    kept = {}
    for method in ("adpsgd", "all_reduce", "overlapped", "adpsgd_overlap"):
        own = select(clock, method=method)
        full_speed = by_seed(own, "seconds_per_sample", slowness=1)
        for slow in factors:
            slowed = by_seed(own, "seconds_per_sample", slowness=slow)
            name = f"throughput kept by {method} at {slow} times"
            kept[name] = times_as_large(full_speed, slowed)
    return dict(sorted(kept.items()))


def decide_full_card(table: pd.DataFrame) -> list[Answer]:
    """The cost of a full server card in time, and the speed of gossip, which has no server.

        time to the target with a full card / time on a free network
        gradients a second of AD-PSGD / those of the server, with the most workers

    Above 1, the full card costs time, and gossip is faster. Beside the second number stands the
    number of workers that fill the card.
    """
    answers = [_cost_of_full_card(table)]
    if (table["study"] == "clock").any():
        answers.append(_workers_at_full_card(table))
    return answers


def _cost_of_full_card(table: pd.DataFrame) -> Answer:
    """The time to the target with a full card over that on a free one, each at its best rate."""
    rows, seen = reported(table, "card")
    measure = longest_wait(rows, "time_to") or "seconds_per_sample"

    def full_over_free(name: str) -> SeedEstimate:
        full, free = (by_seed(rows, name, network=network) for network in ("congested", "free"))
        return times_as_large(full, free)

    number = full_over_free(measure)
    return Answer(
        asks="What does it cost that a server's card is full?",
        says=say_ratio(number, f"{number.value:.1f} times as long"),
        number=number,
        unit="times the time of a free network",
        paper="asynchronous SGD is much worse where a server's traffic is congested",
        source="lian2018",
        mark="read",
        at_least=2.0,
        bar_of="ours",
        seen=seen,
        opponent=lost_of(rows, measure, network="free"),
        first_said="differs",
        wants=number.value * 0.2,
        why=at_an_end(table, "card", measure, "time", "network"),
        beside={"the time a sample alone, by the clock": full_over_free("seconds_per_sample")},
    )


def _workers_at_full_card(table: pd.DataFrame) -> Answer:
    """The throughput of AD-PSGD over that of a server with a full card; no model is trained.

    The card carries the gradients of T(many) / (T(few) / few) workers, T being the server's
    gradients a second.
    """
    clock, seen = reported(table, "clock")
    few, many = clock["workers"].min(), clock["workers"].max()

    def pace(method: str, workers: int) -> pd.Series:
        return by_seed(clock, "seconds_per_sample", method=method, workers=workers)

    enough = times_as_large(few * pace("async_ps", few), pace("async_ps", many))
    kept = times_as_large(few / many * pace("adpsgd", few), pace("adpsgd", many))
    number = times_as_large(pace("async_ps", many), pace("adpsgd", many))
    return Answer(
        asks="From how many workers on is a server's card full, at 3 % of a gradient a message?",
        says=f"near {enough.value:.0f}; AD-PSGD is {number.value:.2f} times as fast at {many:g}",
        number=number,
        unit=f"times the server's gradients a second with {many:g} workers",
        paper="a server becomes the bottleneck, where gossip's speed-up stays linear",
        source="lian2018",
        mark="notes",
        at_least=1.5,
        bar_of="ours",
        seen=seen,
        first_said="cannot tell here",
        beside={
            "workers whose gradients the card carries": enough,
            f"AD-PSGD's speed a worker, {many:g} over {few:g} workers": kept,
        },
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
