"""Questions on quadratics: the fastest server to a loss, the implicit momentum of asynchrony."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from laggard.experiments.questions.numbers import (
    AT_AN_END,
    TUNE,
    at_best,
    by_seed,
    choose_best,
    reporting,
    select,
    times_as_large,
)
from laggard.experiments.questions.question import Answer, Picture, Question, Study
from laggard.experiments.questions.words import SeedEstimate, Word, estimate, exact, ratio

# --- the first server to a loss


class Soonest(NamedTuple):
    """The fastest method of a family, by the seeds that choose, with its times on other seeds.

    Attributes:
        method: the name of the method.
        at_an_end: whether its learning rate lies at an end of the grid.
        seconds: the virtual seconds to the loss, one number per reporting seed.
    """

    method: str
    at_an_end: bool
    seconds: pd.Series


def soonest(table: pd.DataFrame, family: str) -> Soonest:
    """The method with the least mean time to the loss, of those whose names begin with `family`.

    Each method has its best learning rate. The seeds that choose decide both.
    """
    measure = str(table["measure"].iloc[0])
    own = table[table["method"].str.startswith(family)]
    chosen = choose_best(own, measure, "time", settings=["method"])
    tuned = at_best(own[own["role"] == TUNE], chosen)
    means = tuned["value"].mask(tuned["lost"], np.inf).groupby(tuned["method"]).mean()
    best = str(means.idxmin())
    rows, _ = reporting(own)
    seconds = by_seed(at_best(rows, chosen), measure, method=best)
    edge = chosen.set_index("method")["edge"][best]
    return Soonest(best, bool(edge), seconds)


def time_ratio(one: Soonest, other: Soonest) -> SeedEstimate:
    """The mean time of one method over that of another, over their shared seeds."""
    return times_as_large(one.seconds, other.seconds)


def decide_uneven(table: pd.DataFrame) -> list[Answer]:
    """Ringmaster, K-async and synchronous SGD with backups against asynchronous SGD on quadratics.

    Three numbers, each a ratio of means over seeds:

        time of Ringmaster / time of asynchronous SGD
        min(loss of K = 1, loss of K = P) / loss of a middle K
        time of synchronous SGD that waits for m workers / time of asynchronous SGD

    Times are virtual seconds to a loss. The second number is above 1 if a middle K is best after
    1 s. The third is given for computing times with a light and with a heavy tail.
    """
    answers = []
    own = select(table, study="uneven")
    if len(own):
        answers.append(_ringmaster(own, select(table, study="noise")))
    race = select(table, study="race")
    if len(race):
        answers.append(_middle(race))
    waiting = select(table, study="waiting")
    if len(waiting):
        for tail in ("light", "heavy"):
            if (waiting["tail"] == tail).any():
                answers.append(_waiting_for_quickest(select(waiting, tail=tail), tail))
    return answers


def _ringmaster(own: pd.DataFrame, noisy: pd.DataFrame) -> Answer:
    """The time of Ringmaster to the loss over that of asynchronous SGD, for times 10 ms times i.

    Args:
        own: the study with little noise, for both laws of speeds.
        noisy: the study with more noise; its ratios stand beside.
    """
    _, seen = reporting(own)
    uneven = select(own, speeds="i")
    alone = soonest(uneven, "async")
    ringmaster = soonest(uneven, "ringmaster")
    number = time_ratio(ringmaster, alone)
    beside = {}
    for speeds in dict.fromkeys(own["speeds"]):
        at = select(own, speeds=speeds)
        for against, called in (("async", "asynchronous"), ("sync", "synchronous")):
            other = soonest(at, against)
            for family, name in (("ringmaster", "Ringmaster"), ("rennala", "Rennala")):
                if (speeds, against, family) != ("i", "async", "ringmaster"):
                    says = f"times as {speeds}: {name} over {called}"
                    beside[says] = time_ratio(soonest(at, family), other)
    noises = sorted(noisy["noise"].unique()) if len(noisy) else []
    for noise in noises:
        at = select(noisy, noise=noise)
        for family, name in (("ringmaster", "Ringmaster"), ("rennala", "Rennala")):
            says = f"noise {noise:g}: {name} over asynchronous"
            beside[says] = time_ratio(soonest(at, family), soonest(at, "async"))
    first = "Ringmaster" if number.value < 1 else "asynchronous SGD"
    why = AT_AN_END if ringmaster.at_an_end or alone.at_an_end else ""
    return Answer(
        asks="Which server is first to a loss as workers get uneven?",
        says=f"on a quadratic with small noise {first}",
        number=number,
        unit="of asynchronous SGD's time",
        paper="Ringmaster and Rennala take the optimal time, asynchronous SGD does not",
        source="maranjyan2025a",
        mark="notes",
        at_most=1.0,
        bar_of="paper",
        seen=seen,
        first_said="cannot tell here",
        wants=0.2 * number.value,
        why=why,
        beside=beside,
    )


def _middle(race: pd.DataFrame) -> Answer:
    """The smaller loss of K = 1 and K = P over that of a middle K, after 1 s of K-async."""
    rows, seen = reporting(race)
    early = select(rows, part="early")
    least, middle, most = sorted(rows["wait_for"].unique())

    def loss(seconds: float, wait_for: int) -> pd.Series:
        return by_seed(early, f"loss_at_{seconds:g}s", wait_for=wait_for)

    lesser_end = np.minimum(loss(1.0, least), loss(1.0, most))
    number = ratio(lesser_end, loss(1.0, middle))
    is_middle_best = "yes" if number.value > 1 else "no"
    late = select(rows, part="late")
    floor = ratio(_floor(late, least), _floor(late, most))
    return Answer(
        asks="In the middle of a run, is it best to wait for a middle number of workers?",
        says=f"on a quadratic {is_middle_best}, at one rate for all",
        number=number,
        unit=f"times the loss of K = {middle:g} of {most:g} at K = 1 or {most:g}, the lesser",
        paper="asynchronous SGD is best early and worst late, a middle K in between",
        source="dutta2018",
        mark="notes",
        at_least=1.0,
        bar_of="paper",
        seen=seen,
        wants=0.2 * number.value,
        beside={
            "early, synchronous over asynchronous": ratio(loss(0.1, most), loss(0.1, least)),
            "late, asynchronous over synchronous": floor,
        },
    )


def _floor(late: pd.DataFrame, wait_for: int) -> pd.Series:
    """The mean loss of each seed over the last quarter of the time."""
    own = select(late, wait_for=wait_for)
    seconds = own["measure"].str.removeprefix("loss_at_").str.removesuffix("s").astype(float)
    last = own[seconds >= 0.75 * seconds.max()]
    return last["value"].mask(last["lost"]).groupby(last["seed"]).mean()


def _waiting_for_quickest(own: pd.DataFrame, tail: str) -> Answer:
    """The time of synchronous SGD that waits for the fastest m, over that of asynchronous SGD.

    m is the best of those tried, by the seeds that choose. If it is the smallest of them, there is
    no verdict.
    """
    _, seen = reporting(own)
    waits, alone = soonest(own, "m = "), soonest(own, "async")
    number = time_ratio(waits, alone)
    least = min(own.loc[own["method"] != "async", "method"], key=workers_awaited)
    why = AT_AN_END if waits.at_an_end or alone.at_an_end else ""
    if waits.method == least:
        why = "the best m is the least that was tried"
    quickest = workers_awaited(waits.method)
    answer = Answer(
        asks=f"Is waiting for the quickest m as fast as asynchrony, with a {tail} tail of times?",
        says=f"on a quadratic m = {quickest} takes {number.value:.1f} times as long",
        number=number,
        unit="times asynchronous SGD's",
        paper="asynchrony is hardly needed: synchronous methods are near the optimum",
        source="begunov2026",
        mark="read",
        at_most=2.0,
        bar_of="ours",
        seen=seen,
        wants=0.2 * number.value,
        why=why,
    )
    # the first criterion, a share of seeds, gave `agrees` under both tails
    changed = answer.judgement.word is not Word.AGREES
    return replace(answer, first_said="agrees") if changed else answer


def workers_awaited(method: str) -> int:
    """The m in the name of a method, as in `m = 8`."""
    return int(method.removeprefix("m = "))


UNEVEN = Question(
    name="uneven-workers",
    asks="Which server is first to a loss as workers get uneven?",
    topic="quadratic",
    setting="quadratics of 20 and 50 coordinates; 32, 16 and 8 workers, a free network",
    papers=("maranjyan2025a", "dutta2018", "begunov2026"),
    studies={
        "uneven": Study("uneven-workers", ("time_to",)),
        "noise": Study("uneven-workers-noise", ("time_to",)),
        "race": Study("uneven-workers-race", ("loss_by_time",)),
        "waiting": Study("uneven-workers-waiting", ("time_to",)),
    },
    decide=decide_uneven,
)


# --- implicit momentum


def decide_momentum(table: pd.DataFrame) -> list[Answer]:
    """The implicit momentum of asynchronous SGD, and the loss that a large explicit one costs.

        max over P and rates of |mu - (1 - 1 / P)|
        log10 loss(momentum best for one worker) - log10 loss(best lower momentum)

    mu is the momentum that the probe `momentum` fits to a trajectory. A first number near 0
    confirms the paper's formula. A second number above 0, in decades of loss with the most workers,
    says that the best explicit momentum has fallen.
    """
    answers = []
    fits = select(table, study="fits")
    if len(fits):
        answers.append(_fitted(fits))
    explicit = select(table, study="explicit")
    if len(explicit):
        answers.append(_explicit(explicit))
    return answers


def _fitted(table: pd.DataFrame) -> Answer:
    """The largest |mu - (1 - 1 / P)| of each seed over P and rates, under exponential times."""
    rows, seen = reporting(table)
    fitted = rows.assign(value=rows["value"].mask(rows["lost"]))
    fitted["off"] = (fitted["value"] - (1 - 1 / fitted["P"])).abs()
    furthest = fitted.groupby(["law", "seed"])["off"].max()
    number = estimate(furthest["exponential"])
    beside = {"constant times: the same": estimate(furthest["constant"])}
    for workers, own in fitted.groupby("P"):
        by_rate = own.pivot(index=["law", "seed"], columns="lr", values="value")
        by_rate = by_rate.sort_index(axis=1)
        mean_momentum = estimate(by_rate.loc["exponential"].mean(axis=1))
        beside[f"exponential times, {workers:g} workers: the momentum"] = mean_momentum
        constant = by_rate.loc["constant"]
        change = estimate(constant.iloc[:, -1] - constant.iloc[:, 0])
        beside[f"constant times, {workers:g} workers: its change with the rate"] = change
    return Answer(
        asks="Does asynchrony act like momentum?",
        says=f"on a quadratic with exponential times, within {number.value:.3f}",
        number=number,
        unit="off 1 - 1 / P at most",
        paper="exponential times act like a momentum of 1 - 1 / P",
        source="mitliagkas2016",
        mark="notes",
        at_most=0.02,
        bar_of="ours",
        seen=seen,
        wants=0.005,
        beside=beside,
    )


def _explicit(table: pd.DataFrame) -> Answer:
    """The decades of loss that the most workers lose at the momentum that is best for one worker.

    It is compared with the best momentum below. The seeds that choose pick both, and the learning
    rate of every momentum.
    """
    rows, seen = reporting(table)
    choosing = table
    if not (table["role"] == TUNE).any():  # the seeds that report also choose
        choosing = rows.assign(role=TUNE)
    chosen = choose_best(choosing, "loss", "loss", settings=["workers", "momentum"])
    tuned = at_best(choosing[choosing["role"] == TUNE], chosen)
    means = decades(tuned).groupby([tuned["workers"], tuned["momentum"]]).mean()
    best = {
        workers: float(means[workers].idxmin()) for workers in sorted(table["workers"].unique())
    }
    most = int(table["workers"].max())
    best_of_one = best[1]
    below = means[most].loc[: best_of_one - 1e-9]
    lower = float(below.idxmin())
    of_most = select(at_best(rows, chosen), workers=most)

    def at(momentum: float) -> pd.Series:
        own = select(of_most, momentum=momentum)
        return decades(own).set_axis(own["seed"])

    number = estimate(at(best_of_one) - at(lower))
    is_compared = (chosen["workers"] == most) & chosen["momentum"].isin([best_of_one, lower])
    has_edge = (chosen[is_compared]["edge"] != "").any()
    why = ""
    if has_edge or best_of_one == table["momentum"].max():
        why = "a best rate or momentum lies at an end of its grid"
    beside = {f"best momentum, P = {workers:g}": exact(own) for workers, own in best.items()}
    negative = means[most].loc[:-1e-9]
    if len(negative):
        best_negative = float(negative.idxmin())
        gain = estimate(at(0.0) - at(best_negative))
        beside[f"decades gained by {best_negative:g} over 0, {most} workers"] = gain
    falls = "yes" if number.value > 0 else "no"
    momenta = ", ".join(f"{momentum:g}" for momentum in best.values())
    numbers_of_workers = ", ".join(f"{workers:g}" for workers in best)
    return Answer(
        asks="Does the best explicit momentum fall as asynchronous workers are added?",
        says=f"on a quadratic {falls}: with {numbers_of_workers} workers {momenta} "
        f"are best; with {most}, {best_of_one:g} is behind {lower:g}",
        number=number,
        unit="decades of loss lost",
        paper="the best explicit momentum falls as workers are added",
        source="mitliagkas2016",
        mark="notes",
        at_least=0.0,
        bar_of="paper",
        seen=seen,
        first_said="differs",
        wants=0.2 * abs(number.value),
        why=why,
        beside=beside,
    )


def decades(rows: pd.DataFrame) -> pd.Series:
    """log10 of the loss of each row; NaN where the run was lost."""
    return np.log10(rows["value"].mask(rows["lost"]))


IMPLICIT = Question(
    name="implicit-momentum",
    asks="Does asynchrony act like momentum?",
    topic="quadratic",
    setting="quadratics of 64 and 20 coordinates, 1 to 16 asynchronous workers",
    papers=("mitliagkas2016",),
    studies={
        "fits": Study("implicit-momentum", probe="momentum"),
        "explicit": Study("implicit-momentum-explicit", ("loss",)),
    },
    decide=decide_momentum,
    drawing=Picture(
        "momentum",
        "lr",
        "P",
        "law",
        ylabel="fitted momentum",
        xlabel="learning rate",
        log_x=True,
        where={"study": "fits"},
    ),
)

QUESTIONS = (UNEVEN, IMPLICIT)
