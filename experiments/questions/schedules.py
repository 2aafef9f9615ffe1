"""Constant delays with large batches, with learning-rate schedules, early or late in training."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from laggard.experiments.questions.delay import WORKERS, cliff_rate
from laggard.experiments.questions.numbers import (
    by_seed,
    paired,
    points_ahead,
    points_behind,
    reported,
    reporting,
    select,
)
from laggard.experiments.questions.question import Answer, Picture, Question, Study
from laggard.experiments.questions.words import SeedEstimate, estimate, share

CURVE = "accuracy_at_"


def wanted(number: SeedEstimate) -> float:
    """The wanted half-width in points of accuracy: a fifth of the value, at least half a point."""
    return round(max(0.5, abs(number.value) / 5), 1)


def middle(number: SeedEstimate) -> float:
    """The median of an estimate; its value if it has no median, such as a share."""
    return number.value if number.median is None else number.median.value


def has(rows: pd.DataFrame, column: str, *values: object) -> bool:
    """Whether a column of the table exists and contains all of these values."""
    return column in rows and set(values) <= set(rows[column])


def accuracy_curves(rows: pd.DataFrame, **settings: object) -> pd.DataFrame:
    """The accuracy at each evaluation: a row per seed, a column per epoch; NaN for a lost run."""
    own = select(rows, **settings)
    own = own.assign(
        epoch=own["measure"].str.removeprefix(CURVE).astype(float),
        value=own["value"].mask(own["lost"]),
    )
    return own.pivot(index="seed", columns="epoch", values="value").sort_index(axis=1)


# --- delay-batch


DECIDING_DELAY = 8
"""The delay of the deciding number: at a delay of 32, a batch of 32 learns little in 3,000 updates.
"""


def decide_batch(table: pd.DataFrame) -> list[Answer]:
    """The exponent with which the largest usable learning rate grows with the batch, under delay.

        log cliff_rate(batch) = slope log(batch) + constant

    If delay hurts large batches with large rates, the slope is negative: a larger batch then
    tolerates a lower rate only. At equal epochs a larger batch also makes fewer updates, so that
    the slope at equal updates decides.
    """
    answers = []
    asked = ((["updates", "longer"], "updates", DECIDING_DELAY), (["epochs"], "epochs", 32))
    for studies, budget, delay in asked:
        rows, seen = reporting(select(table, study=studies))
        if rows.empty:
            continue
        slopes = batch_slopes(rows)
        number = estimate(slopes[delay].dropna())
        why = ""
        if budget == "epochs":
            why = "larger batches make fewer updates"
        elif slopes[delay].isna().any():
            why = "a largest rate lies beyond the rates tried"
        beside = {
            f"at a delay of {other:g}": estimate(slopes[other].dropna())
            for other in slopes
            if other != delay and slopes[other].notna().any()
        }
        goes = "no largest rate was found among those tried"
        if number.seeds:
            goes = f"the largest rate that trains goes as batch^{number.mean.value:.2f}"
        answers.append(
            Answer(
                asks="Is it large batches with large rates that delay hurts?",
                case=budget,
                says=f"at equal {budget} and a delay of {delay}, {goes}",
                number=number,
                unit="of log rate against log batch",
                paper="delay hurts where batches and rates are large",
                source="srinivasan2018",
                mark="read",
                at_most=-0.1,
                bar_of="ours",
                seen=seen,
                first_said="cannot tell here",
                why=why,
                wants=0.1,
                beside=beside,
            )
        )
    # the first answers the question; the other gets no verdict
    answers[1:] = [replace(answer, paper="", first_said="") for answer in answers[1:]]
    return answers + _decide_shares(table)


def batch_slopes(rows: pd.DataFrame) -> pd.DataFrame:
    """The slope of the log of `cliff_rate` against log batch: a row per seed, a column per delay.

    NaN where a cliff may lie beyond the rates tried, or where fewer than two batches were run.
    """
    places = ["delay", "seed", "batch", "lr"]
    accuracy = rows["value"].mask(rows["lost"], 0.0)
    accuracy = accuracy.set_axis(pd.MultiIndex.from_frame(rows[places]))
    cliffs = np.log10(accuracy.groupby(["delay", "seed", "batch"]).agg(cliff_rate))
    return cliffs.groupby(["delay", "seed"]).agg(_slope_over_batches).unstack("delay")


def _slope_over_batches(cliffs: pd.Series) -> float:
    """The slope of log10 cliffs of one delay and seed against log10 batch."""
    if len(cliffs) < 2 or cliffs.isna().any():
        return np.nan
    batches = cliffs.index.get_level_values("batch").to_numpy(float)
    return round(float(np.polyfit(np.log10(batches), cliffs.to_numpy(), 1)[0]), 6)


def _decide_shares(table: pd.DataFrame) -> list[Answer]:
    """The share of the learnt accuracy that a delay costs: the larger rate's minus the smaller's.

        share = (acc(0) - acc(D)) / (acc(0) - chance)

    It is taken at the largest batch and equal epochs. Chance is the accuracy of the worst run.
    Above 0, a delay costs more at the larger rate.
    """
    rows, seen = reported(table, "shares")
    if rows.empty:
        return []
    chance = rows["value"].min()
    small, large = rows["batch"].min(), rows["batch"].max()
    low, high = rows["lr"].min(), rows["lr"].max()
    taken = {}
    for batch in (small, large):
        for lr in (low, high):
            own = {"batch": batch, "lr": lr}
            fresh, stale = paired(
                by_seed(rows, "accuracy", delay=0, **own),
                by_seed(rows, "accuracy", delay=DECIDING_DELAY, **own),
            )
            taken[batch, lr] = (fresh - stale) / (fresh - chance)
    difference = estimate(taken[large, high] - taken[large, low])
    return [
        Answer(
            asks="At equal epochs, does a delay cost more at a larger rate?",
            says=(
                f"of what a batch of {large:g} learns, a delay of {DECIDING_DELAY} takes "
                f"{taken[large, high].mean():.0%} at the larger rate, "
                f"{taken[large, low].mean():.0%} at the smaller"
            ),
            number=difference,
            unit="of the accuracy more at the larger rate",
            seen=seen,
            wants=0.05,
            beside={
                f"taken at a batch of {batch:g}, rate {lr:g}": estimate(share)
                for (batch, lr), share in taken.items()
            },
        )
    ]


# --- warm-up


def decide_warm_up(table: pd.DataFrame) -> list[Answer]:
    """The points of accuracy that a schedule gains over the full learning rate from the start.

        100 (acc(schedule) - acc(full rate))

    Three answers, at the lowest of the rates that are too high for the delay. The first compares
    the best accuracies until the warm-up ends, at half of the run; the second the final accuracies
    of the same runs; the third the final accuracies with half a cosine.
    """
    rows, seen = reported(table, "starts")
    lowest, *higher = sorted(rows["lr"].unique())
    during, end = {}, {}
    for lr in (lowest, *higher):
        for start in rows["start"].unique():
            curve = accuracy_curves(rows, start=start, lr=lr)
            last = curve.columns.max()
            during[start, lr] = curve.loc[:, : last / 2].max(axis=1)
            end[start, lr] = curve[last]
    at_once = end["at once", lowest]
    opponent = int(at_once.isna().sum()), len(at_once)
    runs = end["warm-up", lowest].dropna()
    best_of_warm_up = during["warm-up", lowest].loc[runs.index]
    kept = int((runs >= best_of_warm_up).sum())

    while_it_lasts = _gain_of_warm_up(during, lowest)
    helps = Answer(
        asks="Does a warm-up of the learning rate help against delay?",
        says=(
            f"{while_it_lasts.mean.value:+.0f} points during the warm-up; {kept} of {len(runs)} "
            "runs are as accurate afterwards, at the full rate"
        ),
        number=while_it_lasts,
        unit="points until the warm-up ends",
        paper="a warm-up helps at first",
        source="srinivasan2018",
        mark="notes",
        at_least=5.0,
        bar_of="ours",
        seen=seen,
        opponent=opponent,
        first_said="cannot tell here",
        wants=wanted(while_it_lasts),
        beside={f"at a rate of {lr:g}": _gain_of_warm_up(during, lr) for lr in higher},
    )
    remains = _gain_of_warm_up(end, lowest)
    keeps = share(kept, len(runs))
    stays = Answer(
        asks="Does the gain of a warm-up stay at the full rate?",
        says=f"{remains.mean.value:+.0f} points as long again after the warm-up",
        number=remains,
        unit="points at the end of the run",
        paper="the gain falls off as soon as the full rate is applied",
        source="srinivasan2018",
        mark="notes",
        at_most=1.0,
        bar_of="ours",
        seen=seen,
        opponent=opponent,
        first_said="cannot tell here",
        wants=wanted(remains),
        beside={
            "share of runs that keep their best of the warm-up": keeps,
            **{f"at a rate of {lr:g}": _gain_of_warm_up(end, lr) for lr in higher},
        },
    )
    if not has(rows, "start", "cosine", "step", "over the delay"):
        return [helps, stays]
    gains = {
        start: points_ahead(end[start, lowest], at_once)
        for start in ("cosine", "step", "over the delay")
    }
    cosine = gains["cosine"]
    lowers = Answer(
        asks="Does a schedule that lowers the rate help?",
        says=f"half a cosine gains {cosine.mean.value:+.0f} points by the end",
        number=cosine,
        unit="points at the end of the run",
        paper="a schedule likely has little effect",
        source="srinivasan2018",
        mark="notes",
        at_least=-1.0,
        at_most=1.0,
        bar_of="ours",
        seen=seen,
        opponent=opponent,
        wants=wanted(cosine),
        beside={
            "a tenth of the rate from the middle on": gains["step"],
            "the rate over the delay, throughout": gains["over the delay"],
        },
    )
    return [helps, stays, lowers]


def _gain_of_warm_up(accuracy: Mapping[tuple[str, float], pd.Series], lr: float) -> SeedEstimate:
    """The points by which the warm-up to `lr` leads `lr` from the start.

    Args:
        accuracy: one number per seed, by schedule and rate.
    """
    return points_ahead(accuracy["warm-up", lr], accuracy["at once", lr])


# --- delay-when

RATE_POLICIES = {
    "one rate": "at one rate",
    "lowered": "at a rate that is lowered while the delay lasts",
    "own rates": "at a rate for all epochs that is each one's best",
}
"""Study -> the rates at which it compares the two delays, in the words of the answer."""


def decide_when(table: pd.DataFrame) -> list[Answer]:
    """The points that a delay costs in the first epoch alone, minus its cost in the last alone.

        100 (acc(never) - acc(first)) - 100 (acc(never) - acc(last))

    Above 0, a delay does more harm near the start. One answer for each policy of `RATE_POLICIES`. A
    further answer compares the variance of gradients, early and later in a run.
    """
    answers = []
    for study, where in RATE_POLICIES.items():
        rows, seen = reported(table, study)
        if not has(rows, "when", "never", "first", "last"):
            continue
        if study == "one rate":
            rates = sorted(rows["lr"].unique())
            higher = {f"at a rate of {lr:g}": _when(select(rows, lr=lr)) for lr in rates[1:]}
            rows = select(rows, lr=rates[0])
        else:
            higher = {}
        never, first, last = (
            by_seed(rows, "accuracy", when=when) for when in ("never", "first", "last")
        )
        in_first = points_behind(first, never)
        in_last = points_behind(last, never)
        difference = _when(rows)
        answers.append(
            Answer(
                asks="When in training does a delay hurt most?",
                case=study,
                says=(
                    f"{where} it costs {in_first.mean.value:.1f} points in the first epoch alone, "
                    f"{in_last.mean.value:.1f} in the last"
                ),
                number=difference,
                unit="points more in the first",
                paper="staleness does the most harm near the start of training",
                source="srinivasan2018",
                mark="notes",
                at_least=0.3,
                bar_of="ours",
                seen=seen,
                first_said="differs",
                why="a run has no time to recover from a delay in its last epoch",
                wants=wanted(difference),
                beside={"in the first": in_first, "in the last": in_last, **higher},
            )
        )
    # the first answers the question; the others get no verdict
    answers[1:] = [replace(answer, paper="", first_said="") for answer in answers[1:]]
    ramps, _ = reported(table, "ramps")
    if has(ramps, "when", "grows", "falls"):
        grows, falls = (by_seed(ramps, "accuracy", when=when) for when in ("grows", "falls"))
        beside = {
            "a delay that grows to 64 minus one that falls from it": points_ahead(grows, falls)
        }
        answers[-1] = replace(answers[-1], beside={**answers[-1].beside, **beside})
    return answers + _decide_variation(table)


def _when(rows: pd.DataFrame) -> SeedEstimate:
    """The points that a delay costs in the first epoch beyond its cost in the last."""
    return points_ahead(*(by_seed(rows, "accuracy", when=when) for when in ("last", "first")))


def _decide_variation(table: pd.DataFrame) -> list[Answer]:
    """The variance of gradients in the first tenth of a run over the largest in a later tenth."""
    rows, seen = reported(table, "variation")
    if rows.empty:
        return []
    variance = _early_over_later(rows, "variance")
    change = _early_over_later(rows, "change")
    answer = Answer(
        asks="When do gradients vary most?",
        says=(
            f"in the first epoch {variance.mean.value:.2f} times as much as in the "
            "most varied later one"
        ),
        number=variance,
        unit="times the largest later variance",
        paper="gradients vary most near the start",
        source="srinivasan2018",
        mark="notes",
        at_least=1.2,
        bar_of="ours",
        seen=seen,
        first_said="cannot tell here",
        wants=0.2,
        beside={"change of the mean gradient within 16 updates": change},
    )
    return [answer]


def _early_over_later(rows: pd.DataFrame, of: str) -> SeedEstimate:
    """A measurement in the first tenth of a run over its largest value in a later tenth.

    Args:
        of: the measurement of the probe `variation`, such as `variance`.
    """
    parts = select(rows, of=of).pivot(index="seed", columns="part", values="value")
    largest_later = parts.loc[:, 2:].max(axis=1)
    return estimate(parts[1] / largest_later)


BATCH = Question(
    name="delay-batch",
    asks="Is it large batches with large rates that delay hurts?",
    topic="delay",
    setting="LeNet-5, MNIST, momentum 0.9, batches of 32 and 256, equally many updates",
    papers=("srinivasan2018",),
    studies={
        "updates": Study("delay-batch", ("accuracy",)),
        "longer": Study("delay-batch-longer", ("accuracy",)),
    },
    decide=decide_batch,
    fixed=WORKERS,
    drawing=Picture(
        "accuracy",
        "lr",
        "batch",
        "delay",
        "test accuracy (%)",
        "learning rate",
        log_x=True,
        where={"study": "updates"},
    ),
)
WARM_UP = Question(
    name="warm-up",
    asks="Does a warm-up or a schedule help against delay?",
    topic="delay",
    setting="LeNet-5, MNIST, batch 32, momentum 0.9, delay 32, 4 epochs, rates that it does not bear",
    papers=("srinivasan2018",),
    studies={"starts": Study("warm-up", ("accuracy_by_epoch",))},
    decide=decide_warm_up,
    fixed=WORKERS,
    drawing=Picture(
        "accuracy_at_4",
        "start",
        "lr",
        ylabel="test accuracy after 4 epochs (%)",
        xlabel="schedule of the learning rate",
    ),
)
WHEN = Question(
    name="delay-when",
    asks="When in training does a delay hurt most?",
    topic="delay",
    setting="LeNet-5, MNIST, batch 32, plain SGD, a delay of 32 in one of 4 epochs",
    papers=("srinivasan2018",),
    studies={
        "one rate": Study("delay-when", ("accuracy",)),
        "lowered": Study("delay-when-lowered", ("accuracy",)),
        "variation": Study("delay-when-variation", probe="variation"),
    },
    decide=decide_when,
    fixed=WORKERS,
    drawing=Picture(
        "variation",
        "part",
        ylabel="variance of gradients",
        xlabel="epoch",
        log_y=True,
        where={"of": "variance"},
    ),
)
QUESTIONS = (BATCH, WARM_UP, WHEN)
