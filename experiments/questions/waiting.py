"""Backup workers, local steps between averages, and accumulated gradients."""

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
    """The points of accuracy by which setting `part` of `key` is behind setting `all_of`."""
    whole = by_seed(table, ACCURACY, **{key: all_of})
    less = by_seed(table, ACCURACY, **{key: part})
    return points_behind(less, whole)


def time_share(table: pd.DataFrame, key: str, all_of: object, part: object) -> SeedEstimate:
    """The virtual time per sample of setting `part` of `key` over that of setting `all_of`."""
    whole = by_seed(table, PACE, **{key: all_of})
    less = by_seed(table, PACE, **{key: part})
    return times_as_large(less, whole)


# --- the number of workers that a server waits for


def decide_waiting(table: pd.DataFrame) -> list[Answer]:
    """The points of accuracy lost by waiting for 95 % of the workers, and the time saved by
    backups.

        100 (acc(all) - acc(95 %))
        time to a loss without backups / time with the best number of backups

    A first number near 0 says that waiting for 95 % is enough. A second above 1 says that backups
    save time. A third answer compares the accuracy of backups and of asynchronous SGD.
    """
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
    """The time to a loss of a quadratic without backups over that with the best number of them.

    The seeds that choose pick this number, and the learning rate of every number of backups.
    """
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
    """The accuracy of backups minus that of asynchronous SGD, in points.

    Both methods reach the highest accuracy that this task allows, so the difference gets no
    verdict.
    """
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


# --- local steps between two averages


def decide_averages(table: pd.DataFrame) -> list[Answer]:
    """The points of accuracy lost by averaging the models every 16 steps instead of every step.

        100 (acc(1) - acc(16))

    Near 0, it is enough to average every 16 steps. Each number of steps has its own best rate.
    """
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


# --- accumulated gradients against stale Adam


def high_rate(alone: pd.Series) -> float:
    """The largest rate at which the loss of one worker is at most 5 % above its best.

    Args:
        alone: the losses of one worker, by learning rate.
    """
    return float(alone.index[alone <= 1.05 * alone.min()].max())


def at_high_rate(rows: pd.DataFrame) -> pd.DataFrame:
    """The loss of each seed (rows) and method (columns) at the seed's high rate."""
    losses = rows.assign(value=rows["value"].mask(rows["lost"]))
    grid = losses.pivot(index=["seed", "lr"], columns="method", values="value")
    losses_of = {}
    for seed, own in grid.groupby("seed"):
        own = own.droplevel("seed")
        losses_of[seed] = own.loc[high_rate(own["one worker"])]
    return pd.DataFrame(losses_of).T


def decide_accumulating(table: pd.DataFrame) -> list[Answer]:
    """The loss of accumulated gradients over that of synchronous ones, and the harm of staleness.

        mean loss(accumulated) / mean loss(synchronous)
        mean(loss(asynchronous) - loss(synchronous))

    Both are taken at the highest rate at which one worker is near its best loss. At 1, accumulating
    restores the synchronous quality. Synchronous training has the larger batch but no staleness, so
    a second number above 0, in nats, says that staleness does more harm than the batch.
    """
    rows, seen = reporting(select(table, study="characters", measure="loss"))
    high = at_high_rate(rows)
    epochs = select(table, study="characters", measure="epochs")["value"]
    return [_restored(rows, high, epochs, seen), _harm(rows, high, seen)]


def _restored(rows: pd.DataFrame, high: pd.DataFrame, epochs: pd.Series, seen: bool) -> Answer:
    """The loss with as many accumulated gradients as workers, over the synchronous loss."""
    # the oldest stored runs took one epoch, and did not store the number of epochs
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
    """The loss of stale gradients minus that of synchronous ones, in nats, at the high rate."""
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
    """The number of `_harm` at the lowest rate of the grid."""
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
