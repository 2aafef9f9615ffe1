"""When gradients are late, and at which rate they count: warm-ups, ramps, and division by staleness."""

from dataclasses import replace

import numpy as np
import pandas as pd

from laggard.experiments.questions.delay import cliff
from laggard.experiments.questions.numbers import by_seed, lost_of, paired, reporting, select
from laggard.experiments.questions.question import Answer, Drawing, Question, Study
from laggard.experiments.questions.words import Estimate, estimate, ratio, share

CONSTANT_DELAYS = {"cluster.workers": "a constant delay stands for the workers"}
CURVE = "accuracy_at_"


def gained(own: pd.Series, other: pd.Series) -> Estimate:
    """Points of accuracy by which runs are ahead of others, seed by seed; lost are the first's."""
    ahead, behind = paired(own, other)
    number = estimate(100 * (ahead - behind))
    return replace(number, lost=int(ahead.isna().sum()))


def cost(own: pd.Series, other: pd.Series) -> Estimate:
    """Points of accuracy by which runs are behind others, seed by seed; lost are the first's."""
    behind, ahead = paired(own, other)
    number = estimate(100 * (ahead - behind))
    return replace(number, lost=int(behind.isna().sum()))


def wanted(number: Estimate) -> float:
    """The half-width that is wanted of points of accuracy: half a point, or a fifth of them."""
    return round(max(0.5, abs(number.value) / 5), 1)


def middle(number: Estimate) -> float:
    """The median; of a number that has none, the number itself."""
    return number.value if number.median is None else number.median.value


def rows_of(table: pd.DataFrame, study: str) -> tuple[pd.DataFrame, bool]:
    """What a study reports, and whether its seeds had been seen before."""
    return reporting(select(table, study=study))


def has(rows: pd.DataFrame, column: str, *values: object) -> bool:
    """Whether a setting has run at all of these values."""
    return column in rows and set(values) <= set(rows[column])


def accuracy_curves(rows: pd.DataFrame, **settings: object) -> pd.DataFrame:
    """The accuracy at each evaluation: a row a seed, a column an epoch; NaN where a run was lost."""
    own = select(rows, **settings)
    own = own.assign(
        epoch=own["measure"].str.removeprefix(CURVE).astype(float),
        value=own["value"].mask(own["lost"]),
    )
    return own.pivot(index="seed", columns="epoch", values="value").sort_index(axis=1)


# --- delay-batch


BORNE = 8
"""The delay that decides: with one of 32 as many updates teach a batch of 32 little."""


def decide_batch(table: pd.DataFrame) -> list[Answer]:
    """How the largest rate that trains falls with the batch under delay, at equal updates; and at
    equal epochs, where larger batches make fewer updates.
    """
    answers = []
    for studies, budget in ((["updates", "longer"], "updates"), (["epochs"], "epochs")):
        rows, seen = reporting(select(table, study=studies))
        if rows.empty:
            continue
        slopes = batch_slopes(rows)
        number = estimate(slopes[BORNE].dropna())
        why = ""
        if budget == "epochs":
            why = "larger batches make fewer updates"
        elif slopes[BORNE].isna().any():
            why = "a cliff lies beyond the rates tried"
        beside = {
            f"at a delay of {other:g}": estimate(slopes[other].dropna())
            for other in slopes
            if other != BORNE and slopes[other].notna().any()
        }
        goes = "no largest rate was found among those tried"
        if number.seeds:
            goes = f"the largest rate that trains goes as batch^{number.mean.value:.2f}"
        answers.append(
            Answer(
                asks="Is it large batches with large rates that delay hurts?",
                says=f"at equal {budget} and a delay of {BORNE}, {goes}",
                number=number,
                unit="of log rate against log batch",
                paper="delay hurts where batches and rates are large",
                mark="notes",
                at_most=-0.1,
                bar_of="ours",
                seen=seen,
                first_said="cannot tell here",
                why=why,
                wants=0.1,
                beside=beside,
            )
        )
    return answers + _decide_shares(table)


def batch_slopes(rows: pd.DataFrame) -> pd.DataFrame:
    """The slope of log cliff against log batch: a row a seed, a column a delay; NaN where a cliff
    may lie beyond the rates tried.
    """
    places = ["delay", "seed", "batch", "lr"]
    accuracy = rows["value"].mask(rows["lost"], 0.0)
    accuracy = accuracy.set_axis(pd.MultiIndex.from_frame(rows[places]))
    edges = np.log10(accuracy.groupby(["delay", "seed", "batch"]).agg(cliff))
    return edges.groupby(["delay", "seed"]).agg(_slope_over_batches).unstack("delay")


def _slope_over_batches(edges: pd.Series) -> float:
    if len(edges) < 2 or edges.isna().any():
        return np.nan
    batches = edges.index.get_level_values("batch").to_numpy(float)
    return round(float(np.polyfit(np.log10(batches), edges.to_numpy(), 1)[0]), 6)


def _decide_shares(table: pd.DataFrame) -> list[Answer]:
    """What a delay takes at the largest batch of the accuracy above the least of all, at two rates
    and equal epochs.
    """
    rows, seen = rows_of(table, "shares")
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
                by_seed(rows, "accuracy", delay=BORNE, **own),
            )
            taken[batch, lr] = (fresh - stale) / (fresh - chance)
    difference = estimate(taken[large, high] - taken[large, low])
    return [
        Answer(
            asks="At equal epochs, does the larger rate lose more?",
            says=(
                f"of what a batch of {large:g} learns, a delay of {BORNE} takes "
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
    """At the lowest rate tried: what a warm-up over half of the run gains until its end and until
    that of the run, and what other schedules gain.
    """
    rows, seen = rows_of(table, "starts")
    lowest, *higher = sorted(rows["lr"].unique())
    during, end = {}, {}
    for lr in (lowest, *higher):
        for start in rows["start"].unique():
            curve = accuracy_curves(rows, start=start, lr=lr)
            last = curve.columns.max()
            during[start, lr] = curve.loc[:, : last / 2].max(axis=1)
            end[start, lr] = curve[last]
    plain = "at once", lowest
    warm = "warm-up", lowest
    while_it_lasts = gained(during[warm], during[plain])
    remains = gained(end[warm], end[plain])
    runs = end[warm].dropna()
    kept = int((runs >= during[warm].loc[runs.index]).sum())
    opponent = int(end[plain].isna().sum()), len(end[plain])
    answers = [
        Answer(
            asks="Does a warm-up of the learning rate help against delay?",
            says=(
                f"{while_it_lasts.mean.value:+.0f} points while it lasts; "
                f"{kept} of {len(runs)} runs keep them at the full rate"
            ),
            number=while_it_lasts,
            unit="points until the warm-up ends",
            paper="a warm-up helps at first",
            mark="notes",
            at_least=5.0,
            bar_of="ours",
            seen=seen,
            opponent=opponent,
            first_said="cannot tell here",
            wants=wanted(while_it_lasts),
            beside={
                f"at a rate of {lr:g}": gained(during["warm-up", lr], during["at once", lr])
                for lr in higher
            },
        ),
        Answer(
            asks="Does that stay at the full rate?",
            says=f"{remains.mean.value:+.0f} points as long again after the warm-up",
            number=remains,
            unit="points at the end of the run",
            paper="the gain falls off as soon as the full rate is applied",
            mark="notes",
            at_most=1.0,
            bar_of="ours",
            seen=seen,
            opponent=opponent,
            first_said="cannot tell here",
            wants=wanted(remains),
            beside={
                "share of runs that keep their best of the warm-up": share(kept, len(runs)),
                **{
                    f"at a rate of {lr:g}": gained(end["warm-up", lr], end["at once", lr])
                    for lr in higher
                },
            },
        ),
    ]
    if not has(rows, "start", "cosine", "step", "over the delay"):
        return answers
    falls = {
        start: gained(end[start, lowest], end[plain])
        for start in ("cosine", "step", "over the delay")
    }
    cosine = falls.pop("cosine")
    answers.append(
        Answer(
            asks="Does a schedule that lowers the rate help?",
            says=f"half a cosine gains {cosine.mean.value:+.0f} points by the end",
            number=cosine,
            unit="points at the end of the run",
            paper="a schedule likely has little effect",
            mark="notes",
            at_least=-1.0,
            at_most=1.0,
            bar_of="ours",
            seen=seen,
            opponent=opponent,
            wants=wanted(cosine),
            beside={
                "a tenth of the rate from the middle on": falls["step"],
                "the rate over the delay, throughout": falls["over the delay"],
            },
        )
    )
    return answers


# --- delay-when

RATE_POLICIES = {
    "one rate": "at one rate",
    "lowered": "at a rate that is lowered while the delay lasts",
    "own rates": "at a rate for all epochs that is each one's best",
}
"""The study -> at which rates a delay in the first epoch and one in the last are compared."""


def decide_when(table: pd.DataFrame) -> list[Answer]:
    """Points that a delay costs in the first epoch alone beyond those that it costs in the last."""
    answers = []
    for study, where in RATE_POLICIES.items():
        rows, seen = rows_of(table, study)
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
        in_first, in_last = cost(first, never), cost(last, never)
        difference = _when(rows)
        answers.append(
            Answer(
                asks="When in training does a delay hurt most?",
                says=(
                    f"{where} it costs {in_first.mean.value:.1f} points in the first epoch alone, "
                    f"{in_last.mean.value:.1f} in the last"
                ),
                number=difference,
                unit="points more in the first",
                paper="staleness does the most harm near the start of training",
                mark="notes",
                at_least=0.3,
                bar_of="ours",
                seen=seen,
                first_said="differs",
                wants=wanted(difference),
                beside={"in the first": in_first, "in the last": in_last, **higher},
            )
        )
    # the first answers the question; the others stand beside it without a word
    answers[1:] = [replace(answer, paper="", first_said="") for answer in answers[1:]]
    ramps, _ = rows_of(table, "ramps")
    if has(ramps, "when", "grows", "falls"):
        grows, falls = (by_seed(ramps, "accuracy", when=when) for when in ("grows", "falls"))
        beside = {"a delay that grows to 64 minus one that falls from it": gained(grows, falls)}
        answers[-1] = replace(answers[-1], beside={**answers[-1].beside, **beside})
    return answers + _decide_variation(table)


def _when(rows: pd.DataFrame) -> Estimate:
    return gained(*(by_seed(rows, "accuracy", when=when) for when in ("last", "first")))


def _decide_variation(table: pd.DataFrame) -> list[Answer]:
    """How much gradients vary in the first tenth of a run over the most of any later tenth."""
    rows, seen = rows_of(table, "variation")
    if rows.empty:
        return []
    early = {}
    for of in ("variance", "change"):
        parts = select(rows, of=of).pivot(index="seed", columns="part", values="value")
        early[of] = estimate(parts[1] / parts.loc[:, 2:].max(axis=1))
    return [
        Answer(
            asks="When do gradients vary most?",
            says=(
                f"in the first epoch {early['variance'].mean.value:.2f} times as much as in the "
                "most varied later one"
            ),
            number=early["variance"],
            unit="times the largest later variance",
            paper="gradients vary most near the start",
            mark="notes",
            at_least=1.2,
            bar_of="ours",
            seen=seen,
            first_said="cannot tell here",
            wants=0.2,
            beside={"change of the mean gradient within 16 updates": early["change"]},
        )
    ]


# --- rate-by-staleness


def decide_by_staleness(table: pd.DataFrame) -> list[Answer]:
    """What division by staleness lacks to synchronous SGD, what it gains over a constant rate, and
    what a rate over N loses to constant delays.
    """
    return [
        *_decide_synchronous(table),
        *_decide_own_staleness(table),
        *_decide_divided(table),
    ]


def _decide_synchronous(table: pd.DataFrame) -> list[Answer]:
    rows, seen = rows_of(table, "synchronous")
    if not has(rows, "method", "synchronous", "by staleness"):
        return []
    accuracy = {
        method: by_seed(rows, "accuracy", method=method) for method in rows["method"].unique()
    }
    level = accuracy["synchronous"]
    lacks = {method: estimate(100 * (level.mean() - own)) for method, own in accuracy.items()}
    own = lacks.pop("by staleness")
    del lacks["synchronous"]
    return [
        Answer(
            asks="Does a rate divided by staleness reach the synchronous level?",
            says=(
                f"{own.mean.value:.1f} points behind in the mean, {middle(own):.1f} in the "
                "median, at synchronous SGD's best rate"
            ),
            number=own,
            unit="points behind",
            paper="lr / staleness converges to the synchronous level",
            mark="notes",
            at_most=1.0,
            bar_of="ours",
            seen=seen,
            opponent=lost_of(rows, "accuracy", method="synchronous"),
            first_said="differs, cannot tell here",
            wants=wanted(own),
            beside={f"behind, {method}": number for method, number in lacks.items()},
        )
    ]


TIMES = {
    "heavy tail": "of a heavy tail",
    "slow worker": "ten times as long for one worker",
    "even": "nearly even",
}


def _decide_own_staleness(table: pd.DataFrame) -> list[Answer]:
    rows, seen = rows_of(table, "rates")
    gains = {}
    for times in rows["times"].unique() if "times" in rows else ():
        own, constant = (
            by_seed(rows, "accuracy", times=times, rule=rule)
            for rule in ("by staleness", "constant")
        )
        gains[times] = gained(own, constant)
    former, _ = rows_of(table, "one rate")
    if has(former, "rule", "by staleness", "constant"):
        own, constant = (
            by_seed(former, "accuracy", rule=rule) for rule in ("by staleness", "constant")
        )
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
    rows, seen = rows_of(table, "delays")
    if not has(rows, "setting", "whole rate"):
        return []
    whole = by_seed(rows, "accuracy", setting="whole rate")
    lost = {}
    for setting in rows["setting"].unique():
        if setting != "whole rate":
            lost[setting] = cost(by_seed(rows, "accuracy", setting=setting), whole)
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
            mark="notes",
            at_most=1.0,
            bar_of="ours",
            seen=seen,
            first_said="cannot tell here",
            wants=wanted(number),
            beside={f"lost, {name}": of for name, of in lost.items()},
        )
    ]


# --- staleness-ramp


def decide_ramp(table: pd.DataFrame) -> list[Answer]:
    """The share of runs that fail without a ramp, and how the error grows with the delay."""
    answers = []
    start, seen = rows_of(table, "start")
    ladder, ladder_seen = rows_of(table, "ladder")
    if has(start, "start", "ramp", "at once"):
        ramp, at_once = (by_seed(start, "accuracy", start=name) for name in ("ramp", "at once"))
        line = ramp.median() / 2
        failed = int((at_once.fillna(0.0) < line).sum())
        ramp_failed = int((ramp.fillna(0.0) < line).sum())
        gain = gained(ramp, at_once)
        beside = {
            "with the ramp": share(ramp_failed, len(ramp)),
            "points gained by the ramp": gain,
        }
        if has(ladder, "delay", "50 at once"):
            own = (by_seed(ladder, "accuracy", delay=name) for name in ("50", "50 at once"))
            beside["points gained, each at its best rate"] = gained(*own)
        answers.append(
            Answer(
                asks="Must staleness be ramped up?",
                says=(
                    f"{failed} of {len(at_once)} runs fail without a ramp, which is worth "
                    f"{gain.mean.value:.0f} points"
                ),
                number=share(failed, len(at_once)),
                unit="of the runs",
                paper="training fails unless staleness is ramped up",
                mark="recalled",
                at_least=0.5,
                bar_of="ours",
                seen=seen,
                first_said="cannot tell here",
                beside=beside,
            )
        )
    if has(ladder, "delay", "no delay", "50"):
        delays = [delay for delay in ("50", "20") if has(ladder, "delay", delay)]
        error = {
            delay: 1 - by_seed(ladder, "accuracy", delay=delay) for delay in ("no delay", *delays)
        }
        grows = {delay: ratio(*paired(error[delay], error["no delay"])) for delay in delays}
        answers.append(
            Answer(
                asks="How does the error grow with staleness?",
                says=f"{middle(grows['50']):.1f} times in the median at a staleness of 50",
                number=grows.pop("50"),
                unit="times the error without",
                paper="about 2.2 times at 50 is reported, 1.3 at 20",
                mark="recalled",
                seen=ladder_seen,
                wants=0.5,
                beside={f"at {delay}": number for delay, number in grows.items()},
            )
        )
    return answers


# --- stable-rate

LIMIT_TOLERANCE = 0.1
"""How far from theory's limit a measured one may be; ours."""
NETWORK_NAMES = {
    "smooth": "a network of tanh units",
    "parts": "the same with mini-batches of a quarter of the images",
    "kinks": "LeNet-5, which has kinks",
}


def decide_stable(table: pd.DataFrame) -> list[Answer]:
    """The largest rate at which descent comes back to a minimum, over that of theory."""
    answers = []
    for study, name in NETWORK_NAMES.items():
        rows, seen = rows_of(table, study)
        if rows.empty:
            continue
        limits = stable_limits(select(rows, of="growth"))
        plain = limits[0.0]
        own = estimate(np.exp(np.log(plain).mean(axis=1, skipna=False)))
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
                asks="Up to which rate is a minimum stable under delay?",
                says=f"{name}: up to {own.mean.value:.2f} of it, by rates {step:.2g} apart",
                number=own,
                unit="of theory's limit",
                paper="a minimum is stable under delay as its quadratic expansion is",
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
    """Halfway, on a log axis, from the largest rate that comes back to the next one, which leaves.

    A row a seed, a column a momentum and delay; NaN where the rates do not have both.
    """
    limits = {}
    for (momentum, delay, seed), own in growth.groupby(["momentum", "delay", "seed"]):
        by_rate = own.set_index("lr")["value"].sort_index()
        back = by_rate.index[by_rate < 1]
        beyond = by_rate.index[by_rate.index > back.max()] if len(back) else back
        limits[momentum, delay, seed] = np.nan
        if len(beyond):
            limits[momentum, delay, seed] = np.sqrt(back.max() * beyond.min())
    return pd.Series(limits).unstack([0, 1])


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
    fixed=CONSTANT_DELAYS,
    drawing=Drawing(
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
    fixed=CONSTANT_DELAYS,
    drawing=Drawing(
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
    fixed=CONSTANT_DELAYS,
    drawing=Drawing(
        "variation",
        "part",
        ylabel="variance of gradients",
        xlabel="epoch",
        log_y=True,
        where={"of": "variance"},
    ),
)
BY_STALENESS = Question(
    name="rate-by-staleness",
    asks="Does dividing each gradient by its own staleness help, or only a lower rate?",
    topic="delay",
    setting="LeNet-5, MNIST, 30 workers, batch 16, momentum 0.9, 12 and 4 epochs",
    papers=("zhang2016",),
    studies={
        "synchronous": Study("rate-by-staleness-synchronous", ("accuracy",)),
        "rates": Study("rate-by-staleness", ("accuracy",)),
        "delays": Study("rate-by-staleness-delays", ("accuracy",)),
    },
    decide=decide_by_staleness,
    drawing=Drawing(
        "accuracy",
        "method",
        ylabel="test accuracy (%)",
        xlabel="method, at the rate of synchronous SGD",
        where={"study": "synchronous"},
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
    fixed=CONSTANT_DELAYS,
    drawing=Drawing(
        "accuracy",
        "delay",
        ylabel="test accuracy (%)",
        xlabel="delay (updates)",
        where={"study": "ladder"},
    ),
)
STABLE = Question(
    name="stable-rate",
    asks="Up to which rate is a minimum stable under delay?",
    topic="delay",
    setting="128 images of MNIST, delayed descent from beside a minimum, two layers of 32 tanh units",
    papers=("giladi2020",),
    studies={
        "smooth": Study("stable-rate", probe="leaving"),
        "parts": Study("stable-rate-parts", probe="leaving_by_parts"),
        "kinks": Study("stable-rate-kinks", probe="leaving"),
    },
    decide=decide_stable,
    fixed=CONSTANT_DELAYS,
)
QUESTIONS = (BATCH, WARM_UP, WHEN, BY_STALENESS, RAMP, STABLE)
