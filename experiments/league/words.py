"""The outcome of a league in words: a sentence, a table, and the limits of its validity."""

import math
from collections.abc import Sequence
from typing import Any

import laggard
from laggard.experiments.league.entrants import ALL_REDUCE, COMPULSORY, DottedKeys, size_of_messages
from laggard.experiments.league.play import AS_GIVEN, EXTENT, SLOW, EntrantRow, League
from laggard.experiments.league.trials import CHOOSING_SEEDS, TrialPlan
from laggard.experiments.results.formats import format_setting
from laggard.experiments.results.statistics import median_interval
from laggard.experiments.theory.published import nearest_measured

NOT_MODELLED = (
    "Not modelled: memory, the time of copies and kernels besides a mini-batch's, computation that "
    "slows while its machine sends, and traffic of others on the network."
)


def sentence(league: League) -> str:
    """The answer in one sentence, and the methods that a larger budget would admit."""
    answer = f"On this cluster {_describe_winner(league)}."
    if not league.too_dear:
        return answer
    number = len(league.rows)
    of = len(league.rows) + len(league.too_dear)
    return (
        f"{answer} Only {number} of {of} methods competed: the others need more gradients than the "
        f"budget; a budget of {league.enough} admits all."
    )


def _describe_winner(league: League) -> str:
    first, *others = league.rows
    goal = _goal(league)
    median, low, high = median_interval(first.times[AS_GIVEN])
    slowed = f"with one worker five times slower, {_names(_first(league.rows, SLOW))}"
    if not math.isfinite(median):
        return f"no method reaches {goal} in most seeds; {slowed}"
    text = f"{first.name} reaches {goal} in {_seconds(median, low, high)}"
    overlapped = next(row for row in league.rows if row.name == ALL_REDUCE)
    opponent, *_ = median_interval(overlapped.times[AS_GIVEN])
    if first is overlapped:
        text = f"{text}, and no method is sooner"
    elif math.isinf(opponent):
        text = f"{text}, which overlapped all-reduce misses"
    elif overlapped.places[AS_GIVEN] == 1:
        text = f"{text}, no sooner than overlapped all-reduce"
    else:
        text = f"{text}, {opponent / median:.2g} times sooner than overlapped all-reduce"
    shared = [row for row in others if row.places[AS_GIVEN] == 1 and row is not overlapped]
    if shared:
        text = f"{text}, and shares the first place with {_names(shared)}"
    return f"{text}; {slowed}"


def _first(rows: Sequence[EntrantRow], condition: str) -> list[EntrantRow]:
    """The rows on the first place; none if most of their seeds miss the target."""
    first = [row for row in rows if row.places[condition] == 1]
    return [row for row in first if math.isfinite(median_interval(row.times[condition])[0])]


def _names(rows: Sequence[EntrantRow]) -> str:
    *others, last = [row.name for row in rows] or ["none"]
    if not others:
        return last
    return f"{', '.join(others)} and {last}"


def _goal(league: League) -> str:
    if league.measure == "test_accuracy":
        return f"{100 * league.target:.1f} %"
    return f"a loss of {league.target:.3g}"


def _seconds(median: float, low: float, high: float) -> str:
    """The median and its interval; an infinite end is a miss.

    Example:
        >>> _seconds(41.2, 38.04, float("inf"))
        '41.2 s (38 to a miss)'
        >>> _seconds(float("inf"), 38.04, float("inf"))
        'miss'
    """
    if not math.isfinite(median):
        return "miss"
    return f"{median:.3g} s ({_end_text(low)} to {_end_text(high)})"


def _end_text(end: float) -> str:
    if math.isinf(end):
        return "a miss"
    return f"{end:.3g}"


def table(league: League) -> list[list[str]]:
    """The heading and a row per entrant, as text."""
    final = "final loss"
    if league.measure == "test_accuracy":
        final = "final accuracy"
    heading = [
        "place",
        "method",
        f"time to {_goal(league)}",
        "reached",
        "waiting",
        final,
        SLOW,
        "place then",
        "settings",
        "chosen from",
    ]
    lines = [heading]
    for row in league.rows:
        reached = sum(map(math.isfinite, row.times[AS_GIVEN]))
        ended = f"{row.measures['final']:.3g}"
        if league.measure == "test_accuracy":
            ended = f"{100 * row.measures['final']:.1f} %"
        line = [
            _place_text(row, AS_GIVEN),
            row.name,
            _seconds(*median_interval(row.times[AS_GIVEN])),
            f"{reached} of {len(league.seeds)}",
            f"{row.measures['waiting']:.0%}",
            ended,
            _seconds(*median_interval(row.times[SLOW])),
            _place_text(row, SLOW),
            settings_text(row.settings),
            _trials_text(row.choice.plan),
        ]
        lines.append(line)
    return lines


def _place_text(row: EntrantRow, condition: str) -> str:
    """The place; a dash where most seeds missed the target, since a shared place would mean
    nothing.
    """
    median, *_ = median_interval(row.times[condition])
    if not math.isfinite(median):
        return "–"
    return str(row.places[condition])


def _trials_text(plan: TrialPlan) -> str:
    """The number of settings tried, and the number of seeds for each."""
    seeds = "1 seed" if len(plan.seeds) == 1 else f"{len(plan.seeds)} seeds"
    return f"{plan.settings} on {seeds}"


def settings_text(settings: DottedKeys) -> str:
    """Settings by the last words of their keys, numbers to three digits.

    Example:
        >>> settings_text({"algorithm.shards": 4, "learning.lr": 0.0110188})
        'shards 4, lr 0.011'
    """
    words = []
    for key, value in settings.items():
        shown = format_setting(value)
        if isinstance(value, float):
            shown = f"{value:.3g}"
        words.append(f"{key.rpartition('.')[2]} {shown}")
    return ", ".join(words)


def honesty(league: League) -> list[str]:
    """The limits of the answer's validity."""
    config = league.report
    params = sum(layer.params for layer in config.task.layers())
    message = f"messages of {size_of_messages(config):,.4g} bytes"
    task = f"{config.task.model} of {params:,} parameters in {message}"
    nearest = nearest_measured(config.build_cluster())
    return [
        NOT_MODELLED,
        f"The task is {task}. It ranks time and staleness, not the quality of large models.",
        f"The nearest measured cluster: {nearest}.",
    ]


def rules(league: League) -> list[str]:
    """The explanation of the table."""
    choosing = ", ".join(map(str, CHOOSING_SEEDS))
    first, last = league.seeds[0], league.seeds[-1]
    opponents = " and ".join(COMPULSORY)
    compared = "the test loss"
    test_set = "the test set is the same"
    if league.setting.held_out:
        compared = f"the loss on {league.setting.held_out:.0%} of the training set, held out,"
        test_set = "no choice has seen the test set"
    return [
        f"Times are medians of seeds {first} to {last} with their 95 % interval (order statistics). "
        f"A seed that has not reached the target after {EXTENT * league.limit:.4g} s is a miss, "
        "which counts as infinite.",
        "A place is shared where the 95 % interval of the paired differences of equal seeds holds "
        "0; all methods have the same compute times by rank and seed.",
        f"The target was fixed before these seeds ran: what overlapped {ALL_REDUCE} reaches at its "
        f"best rate within the time limit of {league.limit:.4g} s, minus a margin of 0.2 points of "
        "accuracy, or 1 % of the loss.",
        f"Seeds {choosing} chose rates and other settings, by {compared} at the time limit, in at "
        f"most {league.budget:,.0f} computed gradients a method, with successive halving at "
        "equal virtual time. Where that pays for fewer than nine settings on all of these seeds, seed "
        f"{CHOOSING_SEEDS[0]} chose alone. They report nothing; {test_set}.",
        f"{opponents} compete in buckets that overlap the backward pass, where that is faster and "
        "the cluster allows it; collective, buckets and shards are the fastest by the clock. "
        "Servers stand on the workers' machines.",
        f"With {SLOW.replace('one worker', f'worker {league.slow_worker}')} than on the cluster as "
        "given, each method keeps the settings chosen without it.",
    ]


def record(league: League) -> dict[str, Any]:
    """The league as plain data; None stands for a miss."""
    return {
        "laggard": laggard.__version__,
        "sentence": sentence(league),
        "cluster": league.setting.cluster_file,
        "task": league.setting.task_file,
        "time_limit": league.limit,
        "budget": league.budget,
        "target": {league.measure: league.target},
        "seeds": list(league.seeds),
        "rows": [_record_row(row) for row in league.rows],
        "refused": dict(league.refused),
        "rules": rules(league),
        "bounds": honesty(league),
    }


def _record_row(row: EntrantRow) -> dict[str, Any]:
    plan = row.choice.plan
    return {
        "method": row.name,
        "settings": row.settings,
        "seconds_to_target": {
            condition: _record_times(row.places[condition], times)
            for condition, times in row.times.items()
        },
        "measures": {key: _finite(value) for key, value in row.measures.items()},
        "trials": {
            "settings": plan.settings,
            "seeds": list(plan.seeds),
            "gradients": row.choice.gradients,
        },
        "runs": list(row.runs),
    }


def _record_times(place: int, times: Sequence[float]) -> dict[str, Any]:
    """The place and the seconds to the target under one condition, a time per seed."""
    median, low, high = median_interval(times)
    return {
        "place": place,
        "median": _finite(median),
        "low": _finite(low),
        "high": _finite(high),
        "by_seed": [_finite(time) for time in times],
    }


def _finite(value: float) -> float | None:
    if math.isfinite(value):
        return float(value)
    return None
