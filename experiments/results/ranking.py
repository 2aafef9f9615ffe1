"""The table at the end of a sweep: a row per method, at its best learning rate, fastest first."""

import math
from collections.abc import Sequence
from dataclasses import replace

from laggard.experiments.results.formats import label_text
from laggard.experiments.results.measures import MEASURES, goal, groups, is_seed, measure_runs
from laggard.experiments.results.result import Result
from laggard.experiments.results.results import Results, as_results
from laggard.experiments.results.statistics import Estimate, interval
from laggard.experiments.results.tables import Setting, Table, label_results, tabulate

LR = "learning.lr"
"""The key that a ranking tunes: each row has its best value."""
BUDGETS = ("epochs", "updates", "gradients", "time")
"""The limits under `stop` that can be raised for a longer run."""


def rank(results: Sequence[Result]) -> Table:
    """A row for each setting of the swept keys but the seeds and the learning rate, best first.

    The learning rate is the best of each row, by time to the target where there is one, else by
    accuracy or loss; rows are in the same order. Where nothing else was swept, each rate has a row.
    Notes say where the budget is too small to tell, and what to change.
    """
    labelled = label_results(as_results(results))
    value = criterion(labelled)
    over = None
    by = None
    if is_tuned(labelled):
        over = [LR]
        by = value.removesuffix("_to")
    values = [value, *(name for name in _final_measures(labelled) if name != value)]
    table = tabulate(labelled, value=[*values, "staleness", "waiting"], over=over, by=by)
    rows = list(dict.fromkeys(row for row, _, _ in table.cells))
    if value != "time":
        rows.sort(key=lambda row: _rank(table, row, value))
    cells = {}
    for row in rows:
        for name in table.values:
            cells[row, (), name] = table.cells[row, (), name]
    ranked = replace(table, cells=cells)
    advice = _advice(labelled, ranked, rows, value)
    return replace(ranked, notes=(*table.notes, *advice))


def criterion(results: Sequence[Result]) -> str:
    """The measure that orders methods: `time_to` the target, else the accuracy or the loss at the
    end, else, without learning, `time`.
    """
    try:
        goal(results)
    except ValueError:
        return _final_measures(as_results(results))[0]
    return "time_to"


def is_tuned(results: Results) -> bool:
    """Whether several learning rates were tried at one setting of other keys."""
    others = [key for key in results.keys if key != LR and not is_seed(key)]
    if LR not in results.keys or not others:
        return False
    rates = [rows[LR].nunique() for _, rows in groups(results.final, others)]
    return bool(max(rates) > 1)


def _final_measures(results: Results) -> list[str]:
    """The accuracy or the loss at the end, where it is measured, and the virtual time."""
    for name in ("accuracy", "loss"):
        if MEASURES[name].column in results.metrics:
            return [name, "time"]
    return ["time", "updates"]


def _rank(table: Table, row: Setting, value: str) -> tuple[float, float]:
    """A sort key, the best first. For a time: the number of seeds that reach it, then the least
    time.

    Rows without a seed that reached the target are ordered by the final accuracy or loss.
    """
    estimate = table.cells[row, (), value]
    if value == "time_to" and not estimate.reached:
        return _rank(table, row, table.values[1])
    if not math.isfinite(estimate.value):
        return math.inf, 0.0
    if value == "accuracy":
        return 0.0, -estimate.value
    if estimate.reached is None:
        return 0.0, estimate.value
    return -estimate.reached / estimate.n, estimate.value


def _advice(results: Results, table: Table, rows: Sequence[Setting], value: str) -> list[str]:
    """The remark on what the table cannot tell, with the key to change."""
    if value == "time":
        return []
    estimates = [table.cells[row, (), value] for row in rows]
    advice = []
    if value == "time_to":
        advice += _advice_on_budget(results, estimates)
    elif value == "accuracy":
        advice.append("no target: set evaluate.target_accuracy to compare times to it")
    first = estimates[0]
    rival = _rival(table, rows)
    if rival is None:
        return advice
    if first.n == 1:
        problem = "one seed cannot tell a difference from chance"
        advice.append(f"{problem}: sweep seeds, as `sweep.seeds=3`")
    elif _overlap(first, table.cells[rival, (), value], MEASURES[value].is_share):
        problem = f"{_row_text(table, rows[0])} and {_row_text(table, rival)}"
        advice.append(f"{problem}: their intervals overlap; more seeds would tell them apart")
    return advice


def _rival(table: Table, rows: Sequence[Setting]) -> Setting | None:
    """The best row that differs from the first only in its first key, such as the method."""
    best, *others = rows
    fixed = [index for index, key in enumerate(table.rows) if index > 0 and key != LR]
    for row in others:
        if all(row[index] == best[index] for index in fixed):
            return row
    return None


def _advice_on_budget(results: Results, estimates: Sequence[Estimate]) -> list[str]:
    """The remark on settings that miss the target, or meet it at the first evaluation."""
    _, target = goal(results)
    reached = [estimate.reached == estimate.n for estimate in estimates]
    limits = dict.fromkeys(result.manifest["reached"] for result in results)
    # a run that diverged or stalled has not ended at a limit
    budget = " or ".join(f"stop.{limit}" for limit in limits if limit in BUDGETS) or "the budget"
    remedy = f"raise {budget}, or lower evaluate.target_accuracy"
    if not any(estimate.reached for estimate in estimates):
        highest = measure_runs(results, "accuracy")["value"].max()
        problem = f"no run reached {100 * target:.6g} %, the highest ended at {100 * highest:.4g} %"
        return [f"{problem}: {remedy}"]
    advice = []
    if not all(reached):
        missed = reached.count(False)
        problem = f"{missed} of {len(reached)} rows missed the target in some of their seeds"
        advice.append(f"{problem}: {remedy}")
    if _is_reached_at_once(results):
        problem = "some runs were at the target at their first evaluation"
        advice.append(f"{problem}: evaluate more often, or raise evaluate.target_accuracy")
    return advice


def _is_reached_at_once(results: Results) -> bool:
    """Whether a member meets the target at the first evaluation after its start."""
    times = measure_runs(results, "time_to").set_index(["run", "member"])["value"]
    metrics = results.metrics
    later = metrics[metrics["updates"] > 0].assign(run=lambda table: table["run"].astype(str))
    first = later.drop_duplicates(["run", "member"]).set_index(["run", "member"])["time"]
    return bool((times.reindex(first.index) <= first).any())


def _overlap(first: Estimate, second: Estimate, is_share: bool) -> bool:
    low, high = interval(first, is_share)
    other_low, other_high = interval(second, is_share)
    return bool(low <= other_high and other_low <= high)


def _row_text(table: Table, row: Setting) -> str:
    """The settings of a row without the learning rate."""
    settings = []
    for key, setting in zip(table.rows, row, strict=True):
        if key != LR:
            settings.append(label_text(setting, key))
    return ", ".join(filter(None, settings))
