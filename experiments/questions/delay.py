"""Constant delays: the learning rates that they allow, the speed-up, and the accuracy lost."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from laggard.experiments.questions.numbers import (
    TUNE,
    at_best,
    by_seed,
    choose_best,
    paired,
    reported,
    reporting,
    select,
)
from laggard.experiments.questions.question import Answer, Picture, Question, Study
from laggard.experiments.questions.words import SeedEstimate, estimate, ratio

NAMES = {"momentum": "SGD with momentum", "adam": "Adam"}
WORKERS = {"cluster.workers": "a constant delay stands for the workers"}
EPOCHS_TO = "epochs_to_"
POINT = 0.01


def accuracies(table: pd.DataFrame, measure: str = "accuracy") -> pd.Series:
    """The accuracy by optimiser, delay, seed and rate; 0 where the run was lost."""
    rows = table[table["measure"] == measure]
    value = rows["value"].mask(rows["lost"], 0.0)
    return value.set_axis(pd.MultiIndex.from_frame(rows[["optimiser", "delay", "seed", "lr"]]))


def whole_grid(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of the seeds that ran the largest number of grid cells.

    Other seeds ran parts of the grid only, so that a mean over their cells would mix seeds.
    """
    ran = table.drop_duplicates(["seed", "optimiser", "delay", "lr"])
    cells = ran.groupby("seed").size()
    return table[table["seed"].isin(cells[cells == cells.max()].index)]


# --- how fast must the rate fall


def cliff_rate(accuracy: pd.Series) -> float:
    """The largest learning rate whose accuracy is at most a point below the best.

    NaN if it is the largest rate of the grid, since the cliff may lie beyond.

    Args:
        accuracy: the accuracies of one delay and seed by `lr`.
    """
    rates = accuracy.index.get_level_values("lr")
    largest = rates[accuracy >= accuracy.max() - POINT].max()
    return float(largest) if largest < rates.max() else np.nan


def slopes(table: pd.DataFrame, optimiser: str) -> pd.Series:
    """The slope of the log of `cliff_rate` against log(2 D + 1), over delays D >= 8; one per seed.

    A seed without a cliff at one of these delays is left out.
    """
    own = accuracies(select(table, optimiser=optimiser))
    cliffs = own.groupby(["seed", "delay"]).agg(cliff_rate).unstack("delay")
    cliffs = cliffs.loc[:, cliffs.columns >= 8].dropna()
    log_delays = np.log(2 * cliffs.columns.to_numpy(float) + 1)
    fits = [np.polyfit(log_delays, np.log(row), 1)[0] for row in cliffs.to_numpy(float)]
    return pd.Series(fits, index=cliffs.index)


def decide_rate(table: pd.DataFrame) -> list[Answer]:
    """The exponent with which the largest usable learning rate falls with delay, by optimiser.

        log cliff_rate(D) = slope log(2 D + 1) + constant

    A slope below 0 says that a longer delay needs a lower rate. On a quadratic the slope is -1
    without momentum.
    """
    answers = []
    for optimiser in ("momentum", "adam"):
        # each optimiser has seeds of its own
        rows, seen = reporting(select(table, optimiser=optimiser))
        slope = estimate(slopes(rows, optimiser))
        if not slope.seeds:
            continue
        answers.append(
            Answer(
                asks="How fast must the learning rate fall with delay?",
                case=optimiser,
                says=f"{NAMES[optimiser]}: about as 1 / D^{-slope.value:.1f}",
                number=slope,
                unit="of log rate against log (2 D + 1)",
                paper="the rate beyond which accuracy drops falls with delay",
                source="srinivasan2018",
                mark="notes",
                at_most=0.0,
                bar_of="paper",
                seen=seen,
                wants=0.1,
            )
        )
    return answers


RATE = Question(
    name="delay-rate",
    asks="How fast must the learning rate fall with delay?",
    topic="delay",
    setting="LeNet-5, MNIST, batch 32, constant delays, 30 epochs",
    papers=("srinivasan2018", "giladi2020"),
    studies={"rates": Study("delay-rate", ("accuracy",))},
    decide=decide_rate,
    fixed=WORKERS,
)


# --- the speed-up of more workers


def targets_in(table: pd.DataFrame) -> list[float]:
    """The target accuracies for which a table has epochs, the highest first."""
    measures = table.loc[table["measure"].str.startswith(EPOCHS_TO), "measure"].unique()
    return sorted((float(measure.removeprefix(EPOCHS_TO)) for measure in measures), reverse=True)


def epochs_at_best(
    table: pd.DataFrame, target: float, study: str = "targets", setting: str = "delay"
) -> pd.DataFrame:
    """The rows of a study of the epochs to a target, at the rate with the fewest.

    Args:
        setting: the column that has a best rate for each value and optimiser.
    """
    measure = f"{EPOCHS_TO}{target:g}"
    own = select(table, study=study, measure=measure)
    chosen = choose_best(own, measure, "updates", settings=["optimiser", setting])
    rows, _ = reporting(own)
    return at_best(rows, chosen)


def speed_up(epochs: pd.DataFrame, optimiser: str, delay: float, measure: str) -> SeedEstimate:
    """The speed-up of D + 1 equal workers over one worker.

        (D + 1) e(0) / e(D)

    e(D) is the number of epochs to the target at a delay of D updates. D + 1 workers compute D + 1
    times as many gradients a second as one.
    """
    alone = by_seed(epochs, measure, optimiser=optimiser, delay=0)
    together = by_seed(epochs, measure, optimiser=optimiser, delay=delay)
    one, many = paired(alone, together)
    return ratio((delay + 1) * one, many)


def speed_up_of_workers(
    table: pd.DataFrame, epochs: pd.DataFrame, optimiser: str, target: float
) -> dict[str, SeedEstimate]:
    """The speed-up of workers whose staleness varies, by description.

    It is that of `speed_up`. The study `workers` has as many as the longest constant delay stands
    for.

    Args:
        table: the rows of all studies.
        epochs: the epochs to the target with constant delays.
    """
    if "workers" not in set(table["study"]):
        return {}
    measure = f"{EPOCHS_TO}{target:g}"
    alone = by_seed(epochs, measure, optimiser=optimiser, delay=0)
    workers = epochs["delay"].max() + 1
    own = select(epochs_at_best(table, target, "workers", "times"), optimiser=optimiser)
    speed_ups = {}
    for times in own["times"].unique():
        together = by_seed(own, measure, times=times)
        one, many = paired(alone, together)
        speed_ups[f"with {workers:g} workers and {times}"] = ratio(workers * one, many)
    return speed_ups


def decide_speedup(table: pd.DataFrame) -> list[Answer]:
    """The largest speed-up of D + 1 workers over one to the highest target, by optimiser.

    It is taken over the constant delays at which every seed reaches the target within the budget.
    The answer names its D + 1 as the number of workers up to which more of them pay. It also tells
    the speed-up of workers whose staleness varies, where every seed reaches the target.
    """
    constant = select(table, study="targets")
    _, seen = reporting(constant)
    target = targets_in(constant)[0]
    measure = f"{EPOCHS_TO}{target:g}"
    epochs = epochs_at_best(table, target)
    answers = []
    for optimiser, tolerated in (("adam", 256), ("momentum", 32)):
        own = select(epochs, optimiser=optimiser)
        speed_ups = {
            delay: speed_up(epochs, optimiser, delay, measure)
            for delay in sorted(own["delay"].unique())
            if delay > 0
        }
        complete = {delay: number for delay, number in speed_ups.items() if not number.missing}
        if not complete:
            continue
        top = max(complete, key=lambda delay: complete[delay].mean.value)
        beside = {f"with {delay + 1:g} workers": number for delay, number in speed_ups.items()}
        varying = speed_up_of_workers(table, epochs, optimiser, target)
        says = f"{NAMES[optimiser]}: up to {top + 1:g} at constant delays"
        says += _beyond_budget(speed_ups) + _sooner(varying)
        answers.append(
            Answer(
                asks="How many workers pay?",
                case=optimiser,
                says=says,
                number=complete[top],
                unit=f"times sooner at {target:.0%}",
                paper=f"{NAMES[optimiser]} tolerates delays up to {tolerated}",
                source="srinivasan2018",
                mark="notes",
                seen=seen,
                wants=complete[top].mean.value * 0.2,
                beside=beside | varying,
            )
        )
    return answers


def _beyond_budget(speed_ups: Mapping[float, SeedEstimate]) -> str:
    """A text on the numbers of workers with which some runs miss the target within the budget."""
    missed = [delay for delay, number in speed_ups.items() if number.missing]
    if not missed:
        return ""
    first = min(missed)
    longest = max(missed)
    parts = [
        f"with {first + 1:g}, {speed_ups[first].missing} of {speed_ups[first].seeds} miss the budget"
    ]
    middle = speed_ups[longest].value
    if middle > 0:
        parts.append(f"with {longest + 1:g} the median is {middle:.0f} times")
    return f" ({'; '.join(parts)})"


def _sooner(speed_ups: Mapping[str, SeedEstimate]) -> str:
    """A text on the greatest speed-up of workers whose staleness varies; empty without one."""
    complete = {says: number for says, number in speed_ups.items() if not number.missing}
    if not complete:
        return ""
    says = max(complete, key=lambda name: complete[name].value)
    return f"; {says} {complete[says].value:.0f} times sooner"


SPEEDUP = Question(
    name="delay-speedup",
    asks="How many workers pay?",
    topic="delay",
    setting="LeNet-5, MNIST, batch 32, constant delays, at most 30 epochs",
    papers=("srinivasan2018",),
    studies={
        "targets": Study("delay-speedup", ("epochs_to",)),
        "workers": Study("delay-speedup-workers", ("epochs_to",)),
    },
    decide=decide_speedup,
    fixed=WORKERS,
)


# --- accuracy lost to the delay, and to the low rate that it forces


def best_rates(table: pd.DataFrame, measure: str) -> pd.Series:
    """The best learning rate at each delay, chosen by the seeds of the role `tune`.

    A study without such seeds runs only the rates that an earlier study chose. There the reporting
    seeds choose among these.
    """
    choosing = table
    if not (table["role"] == TUNE).any():
        choosing = reporting(table)[0].assign(role=TUNE)
    chosen = choose_best(choosing, measure, "accuracy", settings=["delay"])
    return chosen.set_index("delay")["lr"]


def points_by_cause(
    table: pd.DataFrame, rates: pd.Series, delay: float, measure: str
) -> pd.DataFrame:
    """The points of accuracy that a delay D costs: a row per seed, columns `rate`, `delay`,
    `total`.

        rate  = acc(0, r_0) - acc(0, r)
        delay = acc(0, r)   - acc(D, r)
        total = rate + delay

    r is the best learning rate at the delay D, and r_0 the best one without delay.

    Args:
        rates: the best learning rate at each delay.
    """
    rows, _ = reporting(table)
    best = by_seed(rows, measure, delay=0, lr=rates[0])
    low = by_seed(rows, measure, delay=0, lr=rates[delay])
    late = by_seed(rows, measure, delay=delay, lr=rates[delay])
    parts = pd.DataFrame({"rate": best - low, "delay": low - late, "total": best - late})
    return 100 * parts.dropna()


def decide_cause(table: pd.DataFrame) -> list[Answer]:
    """The points that the low rate of the longest delay costs by itself, by optimiser.

    See `points_by_cause`: what remains of the total is the part of the delay. One part is called
    the larger only if the 95 % interval of their difference excludes 0. Accuracies are those of the
    last evaluation, at the smallest batch.
    """
    _, seen = reporting(table)
    epochs_of = {name: float(name.rpartition("_")[2]) for name in table["measure"].unique()}
    measures = sorted(epochs_of, key=epochs_of.__getitem__)
    last = measures[-1]
    longest = table["delay"].max()
    smallest = table["batch"].min()
    answers = []
    for optimiser in ("momentum", "adam"):
        own = select(table, optimiser=optimiser, batch=smallest)
        rates = best_rates(own, last)
        parts = points_by_cause(own, rates, longest, last)
        rate = estimate(parts["rate"])
        late = estimate(parts["delay"])
        total = estimate(parts["total"])
        more = estimate(parts["rate"] - parts["delay"]).mean
        cause = (
            f"the low rate takes {rate.value:.1f} points, the delay {late.value:.1f}, "
            "which are not told apart"
        )
        if more.low > 0:
            cause = "mostly the low rate"
        elif more.high < 0:
            cause = "mostly the delay"
        beside = {f"the delay, of {total.value:.1f} points in all": late}
        for measure in measures[:-1]:
            epochs = epochs_of[measure]
            if epochs > 0:
                early = points_by_cause(own, rates, longest, measure)
                beside[f"lost in all after {epochs:g} epochs"] = estimate(early["total"])
        for batch in sorted(table["batch"].unique())[1:]:
            larger = select(table, optimiser=optimiser, batch=batch)
            parts = points_by_cause(larger, best_rates(larger, last), longest, last)
            beside[f"the rate, batch {batch:g}"] = estimate(parts["rate"])
            beside[f"the delay, batch {batch:g}"] = estimate(parts["delay"])
        answers.append(
            Answer(
                asks="Is it the delay, or the low rate that it forces?",
                case=optimiser,
                says=f"{NAMES[optimiser]}: {cause}",
                number=rate,
                unit=f"of {total.value:.1f} points are the rate's",
                seen=seen,
                wants=0.5,
                beside=beside,
            )
        )
    return answers


CAUSE = Question(
    name="delay-cause",
    asks="Is accuracy lost to the delay, or to the low rate that it forces?",
    topic="delay",
    setting="LeNet-5, MNIST, constant delays, 30 epochs",
    papers=("srinivasan2018",),
    studies={"grid": Study("delay-cause", ("accuracy_by_epoch",))},
    decide=decide_cause,
    fixed=WORKERS,
)


# --- the range of usable rates of adaptive methods


def width(accuracy: pd.Series, best: float) -> float:
    """The decades of learning rates whose accuracy is at most five points below `best`.

    The grid has equal steps of log rate. NaN if a rate at an end of the grid is among them.
    """
    ordered = accuracy.droplevel([name for name in accuracy.index.names if name != "lr"])
    works = (ordered >= best - 5 * POINT).sort_index()
    if works.iloc[0] or works.iloc[-1]:
        return np.nan
    step = np.diff(np.log10(works.index.to_numpy(float))).min()
    return float(works.sum() * step)


def widths_of(accuracy: pd.Series) -> pd.Series:
    """`width` by optimiser, delay and seed; the best is that at the least delay, usually 0."""
    widths = {}
    for (optimiser, seed), own in accuracy.groupby(["optimiser", "seed"]):
        least = own.index.get_level_values("delay").min()
        best = float(own.xs(least, level="delay").max())
        for delay, rates in own.groupby("delay"):
            widths[optimiser, delay, seed] = width(rates, best)
    index = pd.MultiIndex.from_tuples(widths, names=["optimiser", "delay", "seed"])
    return pd.Series(list(widths.values()), index=index)


def decide_range(table: pd.DataFrame) -> list[Answer]:
    """The decades of usable learning rates of Adagrad minus those of SGD, under Downpour.

    Above 0, the adaptive method tolerates a wider range of rates. Also shown: the decades of SGD
    with momentum and of Adam, by constant delay.
    """
    rows, seen = reported(table, "downpour")
    # Downpour has no constant delay; `accuracies` has a level for it
    downpour = accuracies(rows.assign(delay=0))
    widths = widths_of(downpour).unstack("optimiser").droplevel("delay")
    gain = estimate((widths["adagrad"] - widths["sgd"]).dropna())
    beside = {}
    # constant delays have not run with every data set
    if "delays" in set(table["study"]):
        delays, _ = reported(table, "delays")
        by_delay = widths_of(accuracies(delays)).groupby(["optimiser", "delay"])
        for (optimiser, delay), own in by_delay:
            says = f"decades of {NAMES[str(optimiser)]}, delay {delay:g}"
            beside[says] = estimate(own.dropna())
    wider = "yes, under Downpour" if gain.value > 0 else "no"
    return [
        Answer(
            asks="Do adaptive methods widen the range of working rates?",
            says=wider,
            number=gain,
            unit="decades more for Adagrad than for SGD",
            paper="Adagrad makes Downpour robust",
            source="dean2012",
            mark="notes",
            at_least=0.0,
            bar_of="paper",
            seen=seen,
            wants=0.2,
            beside=beside,
        )
    ]


RANGE = Question(
    name="adaptive-range",
    asks="Do adaptive methods widen the range of working rates?",
    topic="delay",
    setting="LeNet-5, MNIST; Downpour with 16 workers, 4 epochs, and constant delays, 30 epochs",
    papers=("dean2012", "srinivasan2018"),
    studies={
        "downpour": Study("adaptive-range", ("accuracy",)),
        "delays": Study("delay-rate", ("accuracy",)),
    },
    decide=decide_range,
    drawing=Picture(
        "accuracy",
        "lr",
        "optimiser",
        ylabel="test accuracy (%)",
        xlabel="learning rate",
        log_x=True,
        where={"study": "downpour"},
    ),
)

QUESTIONS = (RATE, SPEEDUP, CAUSE, RANGE)
