"""Learning rates divided by staleness, ramps of staleness, and the stable rate at a minimum."""

import numpy as np
import pandas as pd

from laggard.experiments.questions.delay import WORKERS
from laggard.experiments.questions.numbers import (
    by_seed,
    lost_of,
    paired,
    points_ahead,
    points_behind,
    reported,
    select,
)
from laggard.experiments.questions.question import Answer, Picture, Question, Study
from laggard.experiments.questions.schedules import has, middle, wanted
from laggard.experiments.questions.words import estimate, ratio, share

# --- rate-by-staleness


def decide_by_staleness(table: pd.DataFrame) -> list[Answer]:
    """The points of accuracy lost or gained by dividing the learning rate, in three comparisons.

        100 (mean acc(synchronous) - acc(by staleness)),    at the best rate of synchronous SGD
        100 (acc(by staleness) - acc(constant rate)),       each at its best rate
        100 (acc(0, r) - acc(D, r / (D + 1))),              a constant delay D

    A first number near 0 says that the division reaches the synchronous level. A second above 0
    says that each gradient's own staleness is better than one lower rate. A third near 0 says that
    a rate divided by N = D + 1 makes up for the delay.
    """
    return [
        *_decide_synchronous(table),
        *_decide_own_staleness(table),
        *_decide_divided(table),
    ]


def _decide_synchronous(table: pd.DataFrame) -> list[Answer]:
    """The points by which asynchronous methods trail synchronous SGD."""
    rows, seen = reported(table, "synchronous")
    if not has(rows, "method", "synchronous", "by staleness"):
        return []
    synchronous = by_seed(rows, "accuracy", method="synchronous")
    behind = {}
    for method in rows["method"].unique():
        if method != "synchronous":
            own = by_seed(rows, "accuracy", method=method)
            behind[method] = points_behind(own, synchronous)
    number = behind.pop("by staleness")
    answer = Answer(
        asks="Does a rate divided by staleness reach the synchronous level?",
        says=(
            "at the best rate of synchronous SGD the mean accuracy is "
            f"{number.mean.value:.1f} points lower, the median {middle(number):.1f}"
        ),
        number=number,
        unit="points behind",
        paper="lr / staleness converges to the synchronous level",
        source="zhang2016",
        mark="notes",
        at_most=1.0,
        bar_of="ours",
        seen=seen,
        opponent=lost_of(rows, "accuracy", method="synchronous"),
        first_said="differs by one criterion, cannot tell by another",
        wants=wanted(number),
        beside={f"behind, {method}": other for method, other in behind.items()},
    )
    return [answer]


TIMES = {
    "heavy tail": "of a heavy tail",
    "slow worker": "ten times as long for one worker",
    "even": "nearly even",
}
"""The law of computing times in the table -> its name in the answer."""


def _decide_own_staleness(table: pd.DataFrame) -> list[Answer]:
    """The points that division by staleness gains over a constant rate, by law of times.

    The answer takes the first law under which staleness varies; the others stand beside. The runs
    of an earlier study stand beside too: 0.01 divided by staleness, against a constant 0.01 / 30.
    """
    rows, seen = reported(table, "rates")
    gains = {}
    all_times = rows["times"].unique() if "times" in rows else ()
    for times in all_times:
        own, constant = (
            by_seed(rows, "accuracy", times=times, rule=rule)
            for rule in ("by staleness", "constant")
        )
        gains[times] = points_ahead(own, constant)
    former, _ = reported(table, "one rate")
    if has(former, "rule", "by staleness", "constant"):
        own, constant = (
            by_seed(former, "accuracy", rule=rule) for rule in ("by staleness", "constant")
        )
        # the two rules ran with other seeds, which cannot be paired
        gains["nearly even, at one rate and that over 30"] = estimate(100 * (own - constant.mean()))
    if not gains:
        return []
    varied = [times for times in ("heavy tail", "slow worker") if times in gains]
    first = [*varied, *gains][0]
    number = gains.pop(first)
    return [
        Answer(
            asks="Is each gradient's own staleness better than one lower rate?",
            says=f"{number.mean.value:+.2f} points where times are {TIMES.get(first, first)}",
            number=number,
            unit="points gained",
            seen=seen,
            wants=wanted(number),
            beside={TIMES.get(times, times): gain for times, gain in gains.items()},
        )
    ]


def _decide_divided(table: pd.DataFrame) -> list[Answer]:
    """The points lost by a constant delay D at the rate r / (D + 1), against r without delay."""
    rows, seen = reported(table, "delays")
    if not has(rows, "setting", "whole rate"):
        return []
    whole = by_seed(rows, "accuracy", setting="whole rate")
    lost = {}
    for setting in rows["setting"].unique():
        if setting != "whole rate":
            lost[setting] = points_behind(by_seed(rows, "accuracy", setting=setting), whole)
    late = sorted((int(name.split()[0]), name) for name in lost if name.endswith("late"))
    delay, least = late[0]
    number = lost.pop(least)
    return [
        Answer(
            asks="Does a rate divided by N make up for gradients N updates late?",
            says=f"lr / {delay + 1} costs {number.mean.value:.1f} points at a delay of {delay}",
            number=number,
            unit="points lost",
            paper="the rate is divided by N",
            source="notes",
            mark="notes",
            at_most=1.0,
            bar_of="ours",
            seen=seen,
            first_said="cannot tell here",
            wants=wanted(number),
            beside={f"lost, {name}": points for name, points in lost.items()},
        )
    ]


# --- staleness-ramp


def decide_ramp(table: pd.DataFrame) -> list[Answer]:
    """The share of runs that fail without a ramp of staleness, and the growth of the error.

        count(acc(without ramp) < median acc(with ramp) / 2) / runs
        mean(1 - acc(D)) / mean(1 - acc(0))

    A large share says that a ramp is needed at this rate. The second number is taken with a ramp
    and at the best rate of each delay.
    """
    start, seen = reported(table, "start")
    ladder, ladder_seen = reported(table, "ladder")
    answers = []
    if has(start, "start", "ramp", "at once"):
        answers.append(_needs_ramp(start, ladder, seen))
    if has(ladder, "delay", "no delay", "50"):
        answers.append(_grows_with_staleness(ladder, ladder_seen))
    return answers


def _needs_ramp(start: pd.DataFrame, ladder: pd.DataFrame, seen: bool) -> Answer:
    """The share of runs without a ramp that end below half of the median accuracy with a ramp.

    A run that diverged has accuracy 0.
    """
    ramp, at_once = (by_seed(start, "accuracy", start=name) for name in ("ramp", "at once"))
    threshold = ramp.median() / 2
    failed = int((at_once.fillna(0.0) < threshold).sum())
    failed_with_ramp = int((ramp.fillna(0.0) < threshold).sum())
    gain = points_ahead(ramp, at_once)
    beside = {
        "with the ramp": share(failed_with_ramp, len(ramp)),
        "points gained by the ramp": gain,
    }
    if has(ladder, "delay", "50 at once"):
        with_ramp, without = (
            by_seed(ladder, "accuracy", delay=name) for name in ("50", "50 at once")
        )
        beside["points ahead, each at its best rate"] = points_ahead(with_ramp, without)
    return Answer(
        asks="Must staleness be ramped up?",
        says=(
            f"{failed} of {len(at_once)} runs fail without a ramp; with it the mean "
            f"accuracy is {gain.mean.value:.0f} points higher"
        ),
        number=share(failed, len(at_once)),
        unit="of the runs",
        paper="training fails unless staleness is ramped up",
        source="chen2016",
        mark="recalled",
        seen=seen,
        first_said="cannot tell here",
        beside=beside,
    )


def _grows_with_staleness(ladder: pd.DataFrame, seen: bool) -> Answer:
    """The mean error at a delay of 50 updates over that without delay; beside it, that at 20."""
    fresh = 1 - by_seed(ladder, "accuracy", delay="no delay")
    growth = {}
    for delay in ("50", "20"):
        if has(ladder, "delay", delay):
            stale = 1 - by_seed(ladder, "accuracy", delay=delay)
            growth[delay] = ratio(*paired(stale, fresh))
    number = growth.pop("50")
    return Answer(
        asks="How does the error grow with staleness?",
        says=f"{middle(number):.1f} times in the median at a staleness of 50",
        number=number,
        unit="times the error without",
        paper="about 2.2 times at 50 is reported, 1.3 at 20",
        source="chen2016",
        mark="recalled",
        seen=seen,
        wants=0.5,
        beside={f"at {delay}": other for delay, other in growth.items()},
    )


# --- stable-rate

LIMIT_TOLERANCE = 0.1
"""The bar: a measured limit agrees if it lies within this relative distance of theory's."""
NETWORK_NAMES = {
    "smooth": "a network of tanh units",
    "parts": "the same with mini-batches of a quarter of the images",
    "kinks": "LeNet-5, which has kinks",
}


def decide_stable(table: pd.DataFrame) -> list[Answer]:
    """The largest stable learning rate at a minimum over that of theory, in three cases.

        exp(mean over delays of log(measured limit / theory's limit))

    One number per seed, without momentum. At 1, a minimum is stable under delay up to the rate at
    which its quadratic expansion is. The limits of single delays and momenta stand beside.
    """
    answers = []
    for study, name in NETWORK_NAMES.items():
        rows, seen = reported(table, study)
        if rows.empty:
            continue
        limits = stable_limits(select(rows, of="growth"))
        plain = limits[0.0]
        own = estimate(np.exp(np.log(plain).mean(axis=1, skipna=False)).round(4))
        why = ""
        if plain.isna().to_numpy().any():
            why = "a limit lies beyond the rates tried"
        beside = {
            f"at a delay of {delay:g}, momentum {momentum:g}": estimate(limits[momentum][delay])
            for momentum, delay in limits
        }
        slope = select(rows, of="slope").groupby("seed")["value"].max()
        beside["slope of the loss that the search for minima left"] = estimate(slope)
        step = float(np.diff(np.sort(rows["lr"].unique())).min())
        answers.append(
            Answer(
                asks="Up to which learning rate is a minimum stable under delay?",
                case=name,
                says=f"{name}: up to {own.mean.value:.2f} times the limit of theory, measured in "
                f"steps of {step:.2g}",
                number=own,
                unit="of theory's limit",
                paper="a minimum is stable under delay as its quadratic expansion is",
                source="giladi2020",
                mark="derived",
                at_least=1 - LIMIT_TOLERANCE,
                at_most=1 + LIMIT_TOLERANCE,
                bar_of="ours",
                seen=seen,
                first_said="differs",
                why=why,
                wants=0.02,
                beside=beside,
            )
        )
    return answers


def stable_limits(growth: pd.DataFrame) -> pd.DataFrame:
    """The largest stable rate in units of theory's limit: a row per seed, a column per setting.

        sqrt(largest rate that returns * next larger rate, which leaves)

    The columns are pairs of momentum and delay. NaN where no rate returns, or where the largest
    rate tried does.

    Args:
        growth: the rows with the growth of the deviation; below 1, descent returns to the minimum.
    """
    limits = {}
    for (momentum, delay, seed), own in growth.groupby(["momentum", "delay", "seed"]):
        by_rate = own.set_index("lr")["value"].sort_index()
        back = by_rate.index[by_rate < 1]
        # where no rate returns, `back` is empty, and so is `beyond`
        beyond = by_rate.index[by_rate.index > back.max()] if len(back) else back
        limits[momentum, delay, seed] = np.nan
        if len(beyond):
            limits[momentum, delay, seed] = np.sqrt(back.max() * beyond.min())
    return pd.Series(limits).round(4).unstack([0, 1])


BY_STALENESS = Question(
    name="rate-by-staleness",
    asks="Does dividing each gradient by its own staleness help, or only a lower rate?",
    topic="delay",
    setting="LeNet-5, MNIST, 30 workers, batch 16, momentum 0.9, 12 and 4 epochs",
    papers=("zhang2016", "notes"),
    studies={
        "synchronous": Study("rate-by-staleness-synchronous", ("accuracy",)),
        "rates": Study("rate-by-staleness", ("accuracy",)),
        "delays": Study("rate-by-staleness-delays", ("accuracy",)),
    },
    decide=decide_by_staleness,
    drawing=Picture(
        "error",
        "method",
        ylabel="test error (%)",
        xlabel="method, at the rate of synchronous SGD",
        log_y=True,
        where={"study": "synchronous"},
        order=("fixed", "by workers", "by staleness", "synchronous"),
    ),
)
RAMP = Question(
    name="staleness-ramp",
    asks="Must staleness be ramped up?",
    topic="delay",
    setting="LeNet-5, MNIST, batch 32, plain SGD, delays up to 50, 3 epochs",
    papers=("chen2016",),
    studies={
        "start": Study("staleness-ramp-start", ("accuracy",)),
        "ladder": Study("staleness-ramp", ("accuracy",)),
    },
    decide=decide_ramp,
    fixed=WORKERS,
    drawing=Picture(
        "accuracy",
        "delay",
        ylabel="test accuracy (%)",
        xlabel="delay (updates)",
        where={"study": "ladder"},
        order=("no delay", "20", "50", "50 at once"),
    ),
)
STABLE = Question(
    name="stable-rate",
    asks="Up to which learning rate is a minimum stable under delay?",
    topic="delay",
    setting="128 images of MNIST, delayed descent from beside a minimum, two layers of 32 tanh units",
    papers=("giladi2020",),
    studies={
        "smooth": Study("stable-rate", probe="leaving"),
        "parts": Study("stable-rate-parts", probe="leaving_by_parts"),
        "kinks": Study("stable-rate-kinks", probe="leaving"),
    },
    decide=decide_stable,
    fixed=WORKERS,
)
QUESTIONS = (BY_STALENESS, RAMP, STABLE)
