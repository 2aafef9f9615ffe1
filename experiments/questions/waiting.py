"""Waiting for fewer workers, averaging less often, and accumulating gradients."""

import pandas as pd

from laggard.experiments.questions.numbers import (
    TUNE,
    at_best,
    by_seed,
    choose_best,
    paired,
    points_behind,
    reporting,
    select,
    times_as_large,
)
from laggard.experiments.questions.question import Answer, Picture, Question, Study
from laggard.experiments.questions.words import SeedEstimate, estimate, ratio

ACCURACY, PACE = "accuracy", "seconds_per_sample"


def points_lost(table: pd.DataFrame, key: str, all_of: object, part: object) -> SeedEstimate:
    """Points of accuracy that a setting of `key` loses against `all_of`, seed by seed."""
    whole = by_seed(table, ACCURACY, **{key: all_of})
    less = by_seed(table, ACCURACY, **{key: part})
    return points_behind(less, whole)


def time_share(table: pd.DataFrame, key: str, all_of: object, part: object) -> SeedEstimate:
    """The virtual time a sample of a setting over that of `all_of`."""
    whole = by_seed(table, PACE, **{key: all_of})
    less = by_seed(table, PACE, **{key: part})
    return times_as_large(less, whole)


# --- for how many workers should a server wait


def decide_waiting(table: pd.DataFrame) -> list[Answer]:
    """Points lost by waiting for 95 % of the workers, and the time that some backups save."""
    rows, seen = reporting(select(table, study="most"))
    lost = points_lost(rows, "method", "all", "95 %")
    share = time_share(rows, "method", "all", "95 %")
    beside = {"time a sample, 95 % over all": share}
    others = [name for name in ("90 %", "90 %, tokens") if name in set(rows["method"])]
    for method in others:
        beside[f"points lost, {method}"] = points_lost(rows, "method", "all", method)
        beside[f"time a sample, {method} over all"] = time_share(rows, "method", "all", method)
    says = "for all"
    if lost.value < 0.5:
        says = f"for 95 %, in {share.value:.2f} of the time"
    waits = Answer(
        asks="Wait for all workers, or for 95 %?",
        says=says,
        number=lost,
        unit="points lost",
        paper="waiting for 90 to 95 % is as accurate",
        source="notes",
        mark="notes",
        at_most=0.5,
        bar_of="ours",
        seen=seen,
        wants=0.5,
        beside=beside,
    )
    return [waits, *_backups(table), *_ceiling(table)]


def _backups(table: pd.DataFrame) -> list[Answer]:
    """Time to a loss of a quadratic without backups over that with the best number of them."""
    own = select(table, study="backups")
    if own.empty:
        return []
    measure = str(own["measure"].iloc[0])
    chosen = choose_best(own, measure, "time", settings=["backups"])
    rows, seen = reporting(own)
    best_rows = at_best(rows, chosen)
    means = at_best(own[own["role"] == TUNE], chosen).groupby("backups")["value"].mean()
    best = means.drop(0).idxmin()
    none, some = paired(
        by_seed(best_rows, measure, backups=0), by_seed(best_rows, measure, backups=best)
    )
    saved = ratio(none, some)
    most = int(own["backups"].max())
    many, few = paired(
        by_seed(best_rows, measure, backups=most), by_seed(best_rows, measure, backups=best)
    )
    return [
        Answer(
            asks="Of sixteen workers, how many should be backups?",
            says=f"on a quadratic {best:g}",
            number=saved,
            unit="times sooner at a loss than without",
            paper="some backups are best, neither none nor many",
            source="chen2016",
            mark="notes",
            at_least=1.0,
            bar_of="paper",
            seen=seen,
            wants=0.2 * saved.value,
            beside={f"time with {most} over that with {best:g}": ratio(many, few)},
        )
    ]


def _ceiling(table: pd.DataFrame) -> list[Answer]:
    """Backups against asynchronous SGD, which ends at a ceiling of this task."""
    own, seen = reporting(select(table, study="asynchronous"))
    if own.empty:
        return []
    gain = points_lost(own, "method", "backup", "asynchronous")
    side = "higher" if gain.value > 0 else "lower"
    return [
        Answer(
            asks="Are backups more accurate than asynchronous SGD?",
            says=f"backups end {abs(gain.value):.1f} points {side}",
            number=gain,
            unit="points more",
            paper="synchronous SGD with backups is more accurate",
            source="chen2016",
            mark="read",
            seen=seen,
            why="both are at the ceiling of this task",
            first_said="cannot tell here",
        )
    ]


WAITING = Question(
    name="wait-for-most",
    asks="For how many workers should a server wait?",
    topic="waiting",
    setting="LeNet-5, MNIST, 20 workers with stragglers; backups on a quadratic",
    papers=("chen2016", "notes"),
    studies={
        "most": Study("wait-for-most", (ACCURACY, PACE)),
        "backups": Study("wait-for-most-backups", ("time_to",)),
    },
    decide=decide_waiting,
    drawing=Picture(
        ACCURACY, "method", ylabel="test accuracy (%)", xlabel="waits for", where={"study": "most"}
    ),
)


# --- is it enough to average every n-th step


def decide_averages(table: pd.DataFrame) -> list[Answer]:
    """Points lost by averaging the models at every 16th step instead of each."""
    rows, seen = reporting(table)
    lost = points_lost(rows, "steps", 1, 16)
    share = time_share(rows, "steps", 1, 16)
    beside = {"time a sample, every 16th over each": share}
    for steps in sorted(rows["steps"].unique()):
        if steps not in (1, 16):
            says = f"points lost, every {steps:g}th step"
            beside[says] = points_lost(rows, "steps", 1, steps)
    enough = "no"
    if lost.value < 0.5:
        enough = f"yes, in {share.value:.2f} of the time"
    return [
        Answer(
            asks="Is it enough to average every 16th step?",
            says=enough,
            number=lost,
            unit="points lost",
            paper="averaging every n-th step hardly costs accuracy",
            source="notes",
            mark="notes",
            at_most=0.5,
            bar_of="ours",
            seen=seen,
            wants=0.5,
            beside=beside,
        )
    ]


AVERAGES = Question(
    name="average-seldom",
    asks="Is it enough to average every n-th step?",
    topic="waiting",
    setting="LeNet-5, MNIST, local SGD on 8 workers, 4 epochs",
    papers=("notes",),
    studies={"averages": Study("average-seldom", (ACCURACY, PACE))},
    decide=decide_averages,
    drawing=Picture(
        ACCURACY,
        "steps",
        ylabel="test accuracy (%)",
        xlabel="mini-batches between two averages",
        log_x=True,
    ),
)


# --- does accumulating gradients restore stale Adam


def high_rate(alone: pd.Series) -> float:
    """The largest rate at which one worker comes within 5 % of its best loss."""
    return float(alone.index[alone <= 1.05 * alone.min()].max())


def at_high_rate(rows: pd.DataFrame) -> pd.DataFrame:
    """The loss of each seed (rows) and method (columns) at the seed's high rate."""
    losses = rows.assign(value=rows["value"].mask(rows["lost"]))
    grid = losses.pivot(index=["seed", "lr"], columns="method", values="value")
    found = {}
    for seed, own in grid.groupby("seed"):
        own = own.droplevel("seed")
        found[seed] = own.loc[high_rate(own["one worker"])]
    return pd.DataFrame(found).T


def decide_accumulating(table: pd.DataFrame) -> list[Answer]:
    """The loss of accumulated over synchronous gradients, at one worker's high rate."""
    rows, seen = reporting(select(table, study="characters", measure="loss"))
    high = at_high_rate(rows)
    epochs = select(table, study="characters", measure="epochs")["value"]
    return [_restored(rows, high, epochs, seen), _harm(rows, high, seen)]


def _restored(rows: pd.DataFrame, high: pd.DataFrame, epochs: pd.Series, seen: bool) -> Answer:
    """Whether as many accumulated gradients as workers give the synchronous loss."""
    # the oldest stored runs took one epoch, and did not store their number
    is_short = epochs.empty or epochs.max() <= 1.5
    why = "one epoch, after which all are far from converged" if is_short else ""
    over = ratio(high["accumulated"], high["synchronous"])
    best = rows.groupby(["seed", "method"])["value"].min().unstack("method")
    restores = "not within one epoch" if over.value > 1.05 else "yes"
    return Answer(
        asks="Does accumulating gradients restore Adam?",
        says=restores,
        number=over,
        unit="times the synchronous loss",
        paper="accumulating as many gradients as workers restores the quality",
        source="aji2019",
        mark="notes",
        at_most=1.05,
        bar_of="ours",
        seen=seen,
        why=why,
        first_said="cannot tell here",
        beside={
            "each at its best rate": ratio(best["accumulated"], best["synchronous"]),
            "asynchronous over synchronous": ratio(high["asynchronous"], high["synchronous"]),
        },
    )


def _harm(rows: pd.DataFrame, high: pd.DataFrame, seen: bool) -> Answer:
    """Whether staleness harms, or the larger batch that synchronous gradients have too."""
    stale = estimate(high["asynchronous"] - high["synchronous"])
    cause = "staleness" if stale.value > 0 else "the larger batch"
    return Answer(
        asks="Is it staleness or the larger batch that harms Adam at a high rate?",
        says=cause,
        number=stale,
        unit="nats more by staleness than by batch size",
        paper="staleness does the harm, not batch size",
        source="aji2019",
        mark="notes",
        at_least=0.0,
        bar_of="paper",
        seen=seen,
        beside={"at the lowest rate": _at_lowest_rate(rows)},
    )


def _at_lowest_rate(rows: pd.DataFrame) -> SeedEstimate:
    lowest = select(rows, lr=rows["lr"].min())
    stale, large = paired(
        by_seed(lowest, "loss", method="asynchronous"),
        by_seed(lowest, "loss", method="synchronous"),
    )
    return estimate(stale - large)


ACCUMULATING = Question(
    name="adam-accumulate",
    asks="Does accumulating gradients make stale Adam as good as synchronous?",
    topic="waiting",
    setting="a small Transformer on an invented language, 4 workers, one epoch",
    papers=("aji2019",),
    studies={"characters": Study("adam-accumulate", ("loss", "epochs"))},
    decide=decide_accumulating,
    drawing=Picture(
        "loss",
        "lr",
        "method",
        ylabel="test loss (nats a character)",
        xlabel="learning rate",
        log_x=True,
        where={"study": "characters"},
    ),
)

QUESTIONS = (WAITING, AVERAGES, ACCUMULATING)
