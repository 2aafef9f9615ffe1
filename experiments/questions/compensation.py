"""Delay compensation: its effect on the test error, and its distance to the fresh gradient."""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from laggard.experiments.questions.numbers import (
    at_an_end,
    by_seed,
    lost_of,
    paired,
    reporting,
    select,
    times_as_large,
)
from laggard.experiments.questions.question import Answer, Picture, Question, Study
from laggard.experiments.questions.words import SeedEstimate, estimate, judge, share

HALF_OF_THE_GAIN = (1 + 8.19 / 9.27) / 2
"""The bar on error over ASGD's: half of the gain that the paper reports with 4 workers.

There the test error falls from 9.27 % with ASGD to 8.19 % with DC-ASGD-a.
"""
FORMS = {
    "constant": "DC-ASGD-c",
    "adaptive": "DC-ASGD-a",
    "outer": "g g^T",
    "exact": "the exact Hessian",
}
"""The form of compensation in the table -> its name in the answer."""
TUNING_SET_SEEDS = 10
"""The number of seeds in the first of two disjoint sets that choose; the rest are the second."""
StrengthAndRate = tuple[float, float]
"""The strength of a compensation, and the learning rate."""


def best_settings_of(rows: pd.DataFrame) -> tuple[StrengthAndRate, StrengthAndRate]:
    """The settings with the highest mean accuracy: one of strength 0 (ASGD), one of a larger one.

    A lost run counts as accuracy 0. Of equally good settings the one of the smaller strength is
    taken, then the one of the smaller rate.
    """
    reached = rows.assign(value=rows["value"].mask(rows["lost"]).fillna(0.0))
    means = reached.groupby(["strength", "lr"])["value"].mean()
    is_plain = means.index.get_level_values("strength") == 0
    return means[is_plain].idxmax(), means[~is_plain].idxmax()


def lies_inside(rows: pd.DataFrame, *settings: StrengthAndRate) -> bool:
    """Whether each rate lies strictly inside the grid, and each strength below its upper end."""
    rates, strengths = rows["lr"], rows["strength"]
    return all(
        rates.min() < rate < rates.max() and strength < strengths.max()
        for strength, rate in settings
    )


def errors(rows: pd.DataFrame, strength: float, lr: float, floor: float) -> pd.Series:
    """1 - accuracy of each seed; NaN if the run was lost or its accuracy is below `floor`."""
    accuracy = by_seed(rows, "accuracy", strength=strength, lr=lr)
    return 1 - accuracy.where(accuracy >= floor)


def decide_compensation(table: pd.DataFrame) -> list[Answer]:
    """The test error of compensated SGD over that of ASGD, and the largest strength that trains.

        mean(1 - accuracy of DC-ASGD-a) / mean(1 - accuracy of ASGD)

    Means are over seeds. A ratio below 1 says that compensation lowers the error. Both methods have
    the rate and the strength that other seeds choose. A run that is lost or learns nothing is in no
    mean; the answer counts it. The ratio is given with 16 workers, then with 4.
    """
    return [_lower_error(table), *_fewer_workers(table), *_largest_strength(table)]


def _lower_error(table: pd.DataFrame) -> Answer:
    grid, seen = reporting(select(table, study="grid"))
    choosing, _ = reporting(select(table, study="choosing"))
    asgd_settings, best_settings = best_settings_of(choosing)
    asgd_strength, asgd_rate = asgd_settings
    # a run that ends below half of ASGD's median accuracy has learnt nothing
    asgd_median = by_seed(grid, "accuracy", strength=asgd_strength, lr=asgd_rate).median()
    floor = float(asgd_median) / 2
    asgd = errors(grid, *asgd_settings, floor)
    compensated = errors(grid, *best_settings, floor)
    number = times_as_large(compensated, asgd)
    lost = int(compensated.isna().sum())
    asgd_lost = int(asgd.isna().sum())
    why = ""
    if not seen:
        why = _why_unsure(choosing, grid, floor)
    return Answer(
        asks="Does delay compensation lower the error?",
        says=f"at a strength of {best_settings[0]:g} the mean error is {number.value:.2f} times ASGD's; "
        f"{lost} of {len(compensated)} runs are lost, and {asgd_lost} of ASGD's",
        number=number,
        unit="times ASGD's error",
        paper="DC-ASGD-a has an error 12 % lower than ASGD's",
        source="zheng2017",
        mark="notes",
        at_most=HALF_OF_THE_GAIN,
        bar_of="ours",
        seen=seen,
        opponent=(asgd_lost, len(asgd)),
        first_said="differs by one criterion, agrees by another",
        wants=0.2,
        why=why,
        beside=_on_the_grid(grid, asgd_rate, floor) | _with_momentum(table),
    )


def _on_the_grid(grid: pd.DataFrame, asgd_rate: float, floor: float) -> dict[str, SeedEstimate]:
    """The error over ASGD's at the same rate, for each strength and rate.

    At ASGD's best rate `asgd_rate` also the difference of the errors in points. There a lost run
    has the lowest accuracy of all runs, which stands for chance.
    """
    chance = 1 - float(grid["value"].min())
    numbers = {}
    for (strength, rate), _ in grid.groupby(["strength", "lr"]):
        plain = errors(grid, 0, rate, floor)
        own, plain = paired(errors(grid, strength, rate, floor), plain)
        if strength == 0 or own.empty:
            continue
        name = f"strength {strength:g}, rate {rate:g}"
        numbers[f"{name}: error over ASGD's"] = times_as_large(own, plain)
        if rate == asgd_rate:
            points = 100 * (own.fillna(chance) - plain.fillna(chance))
            numbers[f"{name}: points of error more, lost runs as chance"] = estimate(points)
    return numbers


def _why_unsure(choosing: pd.DataFrame, grid: pd.DataFrame, floor: float) -> str:
    """The reason for no verdict, or an empty text.

    Either a chosen setting lies at an end of its grid, or the two sets of seeds that choose lead to
    different verdicts.
    """
    if not lies_inside(choosing, *best_settings_of(choosing)):
        return "the best rate or strength lies at an end of its grid"
    seeds = sorted(choosing["seed"].unique())
    verdicts = set()
    for tuning_seeds in (seeds[:TUNING_SET_SEEDS], seeds[TUNING_SET_SEEDS:]):
        if not tuning_seeds:
            continue
        asgd_settings, best_settings = best_settings_of(select(choosing, seed=tuning_seeds))
        asgd = errors(grid, *asgd_settings, floor)
        opponent = int(asgd.isna().sum()), len(asgd)
        number = times_as_large(errors(grid, *best_settings, floor), asgd)
        verdicts.add(judge(number, at_most=HALF_OF_THE_GAIN, opponent=opponent).word)
    if len(verdicts) > 1:
        return "the two sets of seeds that choose disagree"
    return ""


def _fewer_workers(table: pd.DataFrame) -> Iterable[Answer]:
    """The error of DC-ASGD-a over ASGD's with 4 workers, each at its best rate; none if not run."""
    rows, seen = reporting(select(table, study="workers"))
    if rows.empty:
        return
    error = {
        (method, workers): 1 - by_seed(rows, "accuracy", method=method, workers=workers)
        for method, workers in sorted(set(zip(rows["method"], rows["workers"], strict=True)))
    }
    ratios = {
        f"error over ASGD's: {method}, {workers:g} workers": times_as_large(
            own, error["ASGD", workers]
        )
        for (method, workers), own in error.items()
        if method != "ASGD" and ("ASGD", workers) in error
    }
    number = ratios.pop("error over ASGD's: DC-ASGD-a, 4 workers")
    yield Answer(
        asks="Does compensation lower the error of 4 workers, at the paper's strength of 2?",
        says=f"{number.value:.2f} times ASGD's error",
        number=number,
        unit="times ASGD's error",
        paper="with 4 workers DC-ASGD-a has an error 12 % lower than ASGD's",
        source="zheng2017",
        mark="notes",
        at_most=HALF_OF_THE_GAIN,
        bar_of="ours",
        seen=seen,
        opponent=lost_of(rows, "accuracy", method="ASGD", workers=4),
        wants=0.05,
        why=at_an_end(table, "workers", "accuracy", "accuracy", "method", "workers"),
        beside=ratios,
    )


def _largest_strength(table: pd.DataFrame) -> Iterable[Answer]:
    """The largest constant strength that trains with 32 workers over that with 8, in powers of 2.

        log2(strength with 32 / strength with 8)

    The correction grows with the staleness, which is about the number of workers. So theory expects
    -2, a quarter. The bar of -1 asks for at most a half.
    """
    rows, seen = reporting(select(table, study="strength"))
    if rows.empty:
        return
    largest = {workers: largest_that_trains(select(rows, workers=workers)) for workers in (8, 32)}
    number = estimate(np.log2(largest[32] / largest[8]))
    yield Answer(
        asks="Does training tolerate less compensation with more workers?",
        says=f"the largest strength that trains with 32 workers is {2**number.value:.2f} times "
        "that with 8",
        number=number,
        unit="powers of 2, the largest strength that trains, 32 over 8 workers",
        paper="with four times as many workers the largest strength that trains is a quarter",
        source="zheng2017",
        mark="derived",
        at_most=-1.0,
        bar_of="theory",
        seen=seen,
        first_said="agrees",
        wants=0.5,
        beside={
            f"largest strength, {workers} workers": estimate(own)
            for workers, own in largest.items()
        },
    )


def largest_that_trains(rows: pd.DataFrame) -> pd.Series:
    """The largest strength of each seed whose accuracy is at most 10 points below strength 0's.

    NaN where no strength above 0 is, or where the run at strength 0 was lost.
    """
    accuracy = rows.assign(value=rows["value"].mask(rows["lost"])).pivot(
        index="seed", columns="strength", values="value"
    )
    trains = accuracy.ge(accuracy[0] - 0.1, axis=0).drop(columns=0)
    strengths = pd.Series(trains.columns, trains.columns)
    return trains.mul(strengths, axis=1).max(axis=1).replace(0, np.nan)


def _with_momentum(table: pd.DataFrame) -> dict[str, SeedEstimate]:
    """The error of DC-ASGD-a over ASGD's with momentum 0.9, by the number of workers."""
    rows, _ = reporting(select(table, study="momentum"))
    if rows.empty:
        return {}
    return {
        f"momentum 0.9, {workers:g} workers: error over ASGD's": times_as_large(
            *(1 - by_seed(rows, "accuracy", workers=workers, strength=own) for own in (2, 0))
        )
        for workers in sorted(rows["workers"].unique())
    }


def mean_over_run(rows: pd.DataFrame, **settings: object) -> pd.Series:
    """The mean of the values at some settings, such as a run's four quarters; one per seed."""
    return select(rows, **settings).groupby("seed")["value"].mean()


def nearest_strength(choosing: pd.DataFrame, form: str, workers: float) -> float:
    """The strength with the least mean distance to the fresh gradient; NaN if it is the largest."""
    means = select(choosing, form=form, workers=workers).groupby("strength")["value"].mean()
    best = float(means.idxmin())
    return best if best < means.index.max() else np.nan


def decide_nearness(table: pd.DataFrame) -> list[Answer]:
    """The distance of the compensated gradient to the fresh one, relative to the stale gradient's.

        E |g_compensated - g_fresh| / E |g_stale - g_fresh|

    The number is the mean of this ratio over the four quarters of a run of DC-ASGD-a with 8
    workers. Below 1, compensation brings the gradient nearer to the fresh one. Also shown: 16
    workers, and all forms of compensation along runs of ASGD, each at its best strength. Two
    further answers ask whether the ratio falls, and whether g g^T becomes the Hessian.
    """
    choosing, _ = reporting(select(table, study="choosing"))
    own, own_seen = reporting(select(table, study="own"))
    along, _ = reporting(select(table, study="along"))
    shares = {
        f"along its own runs, {workers:g} workers": estimate(mean_over_run(own, workers=workers))
        for workers in sorted(own["workers"].unique())
    }
    ran = set()
    if len(along):
        ran = set(zip(along["form"], along["workers"], strict=True))
    for form, workers in sorted(ran):
        strength = 1.0 if form == "exact" else nearest_strength(choosing, form, workers)
        distances = mean_over_run(along, form=form, workers=workers, strength=strength)
        if len(distances):
            name = f"along ASGD's runs, {FORMS[form]} at {strength:g}, {workers:g} workers"
            shares[name] = estimate(distances)
    number = shares.pop("along its own runs, 8 workers")
    percent = abs(100 * (1 - number.value))
    direction = "nearer to"
    if number.value > 1:
        direction = "farther from"
    return [
        Answer(
            asks="Is the compensated gradient nearer to the fresh one?",
            says=f"in runs of DC-ASGD-a with 8 workers it is {percent:.1f} % {direction} it "
            "than the stale gradient",
            number=number,
            unit="of the stale gradient's distance",
            paper="the compensated gradient is nearer to the fresh one than the stale one is",
            source="zheng2017",
            mark="notes",
            at_most=1.0,
            bar_of="paper",
            seen=own_seen,
            first_said="cannot tell here",
            wants=0.02,
            beside=shares,
        ),
        *_nearer_later(table, choosing),
        *_hessian(table),
    ]


def _nearer_later(table: pd.DataFrame, choosing: pd.DataFrame) -> Iterable[Answer]:
    """The distance ratio of `decide_nearness` in the last quarter of a run over that in the first.

    It is that of DC-ASGD-a along runs of ASGD, at its best strength, averaged over the numbers of
    workers. Below 1, compensation becomes better as training goes on.
    """
    along = select(table, study=["along", "later"])
    if along.empty:
        return
    rows, seen = reporting(select(along, form="adaptive", quarter=[1, 4]))
    ratios = []
    for workers in rows["workers"].unique():
        strength = nearest_strength(choosing, "adaptive", workers)
        at = select(rows, workers=workers, strength=strength)
        if len(at):
            wide = at.pivot(index="seed", columns="quarter", values="value")
            ratios.append(wide[4] / wide[1])
    if not ratios:
        return
    later = pd.concat(ratios, axis=1).mean(axis=1, skipna=False)
    number = estimate(later)
    yield Answer(
        asks="Does the compensated gradient get nearer later in training?",
        says=f"its distance in the last quarter is {number.value:.3f} times that in the first",
        number=number,
        unit="times, last quarter over first, along ASGD's runs",
        paper="the compensated gradient gets nearer to the fresh one as training goes on",
        source="zheng2017",
        mark="notes",
        at_most=1.0,
        bar_of="paper",
        seen=seen,
        first_said="cannot tell here",
        wants=0.02,
        beside={
            "seeds in which it falls by 1 % or more": share(int((later <= 0.99).sum()), len(later))
        },
    )


def _hessian(table: pd.DataFrame) -> Iterable[Answer]:
    """The distance of g g^T from the Hessian in the last tenth of a run, minus that in the first.

        distance = |log(s^T F s / s^T H s)|

    H is the Hessian, F the mean of g g^T over samples, and s the change of the weights in 16
    updates. Below 0, g g^T comes nearer to the Hessian.
    """
    rows, seen = reporting(select(table, study="hessian"))
    if rows.empty:
        return
    first, last = rows["part"].min(), rows["part"].max()
    apart, cosine = {}, {}
    for part in (first, last):
        hessian, fisher = (mean_over_run(rows, of=of, part=part) for of in ("hessian", "fisher"))
        ratios = fisher / hessian
        # the distance of the ratio from 1, in either direction; NaN where a curvature is negative
        apart[part] = np.log(ratios.where(ratios > 0)).abs()
        name = f"cosine of H s and F s, tenth {part:g} of the run"
        cosine[name] = estimate(mean_over_run(rows, of="cosine", part=part))
    number = estimate((apart[last] - apart[first]).dropna())
    yield Answer(
        asks="Does g g^T become the Hessian as training goes on?",
        says=f"it is {np.exp(number.value):.2f} times as far from it in the last tenth as in the first",
        number=number,
        unit="in the logarithm of their ratio, last tenth minus first",
        paper="the outer product of the gradient becomes the Hessian as training goes on",
        source="zheng2017",
        mark="notes",
        at_most=0.0,
        bar_of="paper",
        seen=seen,
        first_said="differs",
        wants=0.15,
        beside=cosine,
    )


LOWERS_ERROR = Question(
    name="compensation",
    asks="Does delay compensation lower the error?",
    topic="compensation",
    setting="LeNet-5, MNIST, 16 asynchronous workers, batch 32, 3 epochs",
    papers=("zheng2017",),
    studies={
        "grid": Study("compensation", ("accuracy",)),
        "choosing": Study("compensation-choosing", ("accuracy",)),
        "workers": Study("compensation-workers", ("accuracy",)),
        "momentum": Study("compensation-momentum", ("accuracy",)),
        "strength": Study("compensation-strength", ("accuracy",)),
    },
    decide=decide_compensation,
    drawing=Picture(
        "error",
        "lr",
        "strength",
        ylabel="test error (%)",
        xlabel="learning rate",
        log_x=True,
        log_y=True,
        where={"study": "choosing"},
    ),
)
NEARNESS = Question(
    name="compensated-gradient",
    asks="Is the compensated gradient nearer to the fresh one?",
    topic="compensation",
    setting="LeNet-5, MNIST, 8 and 16 asynchronous workers, 2,000 updates at one rate",
    papers=("zheng2017",),
    studies={
        "own": Study("compensated-gradient", probe="closeness"),
        "choosing": Study("compensated-gradient-choosing", probe="expansions"),
        "along": Study("compensated-gradient-along", probe="expansions"),
        "hessian": Study("compensated-gradient-hessian", probe="variation"),
    },
    decide=decide_nearness,
    drawing=Picture(
        "expansions",
        "strength",
        "form",
        "workers",
        "distance to the fresh gradient (stale: 1)",
        "strength",
        log_x=True,
        where={"study": "choosing", "form": ["adaptive", "constant"]},
    ),
)
QUESTIONS = (LOWERS_ERROR, NEARNESS)
