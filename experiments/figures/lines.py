"""The lines of a comparison of results: the label of each, and the curves that it averages."""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from laggard.experiments.results.measures import is_seed, names
from laggard.experiments.results.result import Result

Label = Callable[[Result], str]
LEARNT = ("test_accuracy", "test_loss", "train_loss")


class Line(NamedTuple):
    """The curves that one line stands for, rows of metrics each: they differ only in their
    seeds.
    """

    run: str
    name: str
    curves: list[pd.DataFrame]

    @property
    def results(self) -> list[int]:
        """The places of the results that the curves are from."""
        return sorted({int(curve["run"].iloc[0]) for curve in self.curves})

    @property
    def title(self) -> str:
        """Its name, with the number of seeds that it stands for."""
        return f"{self.name} (n = {len(self.curves)})" if len(self.curves) > 1 else self.name

    def points(self, x: str, y: str) -> tuple[np.ndarray, np.ndarray]:
        """The first curve's points that all reach `(points,)`, and the values there `(curves,
        points)`.

        NaN where a curve is not finite any more; where it only was not measured, as a training loss
        of which there was no gradient since the last evaluation, the line goes on to its next
        value.
        """
        at = self.curves[0][x].to_numpy(float)
        at = at[at <= min(curve[x].max() for curve in self.curves)]
        return at, np.stack(
            [
                _between(at, curve[x].to_numpy(float), curve[y].to_numpy(float))
                for curve in self.curves
            ]
        )


def _between(at: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The values at some points, by those that are finite; NaN before the first and after the last
    of them.
    """
    finite = np.isfinite(y)
    return (
        np.interp(at, x[finite], y[finite], np.nan, np.nan)
        if finite.any()
        else np.full(len(at), np.nan)
    )


def lines_of(results: Sequence[Result], label: Label | None = None) -> list[Line]:
    """A line for each run and each of its members, named by what was swept; those that differ only
    in seeds are one.
    """
    called = [label(result) if label else result.config.name for result in results]
    table = pd.concat(
        [of.metrics.assign(run=run, name=called[run]) for run, of in enumerate(results)]
    )
    swept = ["name", *swept_keys(table.drop(columns="name"))]
    if label is None and table.groupby(swept, dropna=False)["run"].nunique().max() > 1:
        raise ValueError(
            "two results have one name and the same swept values: expected label=, a name for each"
        )
    differ = [
        key for key in swept if table[key].nunique(dropna=False) > 1 and not key.endswith("seed")
    ]
    within = [key for key in differ if table.groupby("run")[key].nunique().max() > 1]
    between = ["name"] if label else [key for key in differ if key not in within]
    lines: dict[tuple[str, str], Line] = {}
    for _, curve in table.groupby(["run", "member"]):
        texts = {key: label_text(curve[key].iloc[0], key) for key in [*between, *within]}
        run = ", ".join(texts[key] for key in between if texts[key]) or str(curve["name"].iloc[0])
        name = ", ".join(text for text in texts.values() if text) or run
        lines.setdefault((run, name), Line(run, name, [])).curves.append(curve)
    return list(lines.values())


def label_text(value: Any, key: str = "") -> str:
    """`lr = 0.1`, or without a key `0.1`; a string alone; empty for a key that a run lacks."""
    if isinstance(value, str) or pd.isna(value):
        return value if isinstance(value, str) else ""
    number = f"{value:g}" if isinstance(value, float) else str(value)
    return f"{key.rpartition('.')[2]} = {number}" if key else number


def measures_of(results: Sequence[Result]) -> list[str]:
    """The columns that were measured; of runs without a task, the number of samples."""
    metrics = [result.metrics for result in results]
    return [
        name for name in LEARNT if all(name in of and of[name].notna().any() for of in metrics)
    ] or ["samples"]


def best_of(lines: Sequence[Line], measure: str, most: int) -> list[Line]:
    """All lines while they are at `most` so many; else, of each run, those that ended best."""
    ends = [np.mean([curve[measure].iloc[-1] for curve in line.curves]) for line in lines]
    table = pd.DataFrame(
        {"run": [line.run for line in lines], "end": np.where(np.isfinite(ends), ends, np.nan)}
    )
    each = len(lines) if len(lines) <= most else max(1, most // table["run"].nunique())
    best = table.sort_values("end", ascending=measure != "test_accuracy").groupby("run").head(each)
    return [lines[index] for index in sorted(best.index[:most])]


def _parameter(config: Any, key: str) -> Any:
    """What a config says at a dotted key; None where it has no such key."""
    return reduce(lambda part, name: getattr(part, name, None), key.split("."), config)


def ends(results: Sequence[Result], keys: Sequence[str]) -> pd.DataFrame:
    """The last evaluation of each run and member, with the place of its result in `run`, and its
    parameters at `keys`.

    `learnt` is its final measure, the first of `measures_of`, NaN where the member diverged: where
    its loss is not finite any more.
    """
    measure, rows = measures_of(results)[0], []
    for run, result in enumerate(results):
        last = result.metrics.groupby("member").tail(1).assign(run=run)
        given = {key: _parameter(result.config, key) for key in keys if key not in last}
        losses = [
            name
            for name in ("test_loss", "train_loss")
            if name in last and result.metrics[name].notna().any()
        ]
        finite = np.isfinite(last[losses[:1]].astype(float)).all(axis=1)
        rows.append(last.assign(learnt=last[measure].where(finite), **given))
    return pd.concat(rows, ignore_index=True)


def titles(results: Sequence[Result], label: Label | None = None) -> list[str]:
    """A name for each result as a whole: by `label`, else by what was swept among them, else its
    config's name.
    """
    if label:
        return [label(result) for result in results]
    texts = (", ".join(filter(None, at.values())) for at in _coordinates(results))
    return [text or str(result.config.name) for text, result in zip(texts, results, strict=True)]


def pool_seeds(
    results: Sequence[Result], label: Label | None = None
) -> list[tuple[str, list[Result]]]:
    """The results and a name for them, as `titles`; those of a sweep that differ in their seeds
    alone are together.
    """
    if label:
        return [(label(result), [result]) for result in results]
    found: dict[Any, tuple[str, list[Result]]] = {}
    for place, (result, at) in enumerate(zip(results, _coordinates(results), strict=True)):
        name = ", ".join(text for key, text in at.items() if text and not is_seed(key)) or str(
            result.config.name
        )
        seeded = any(map(is_seed, at))
        found.setdefault(name if seeded else place, (name, []))[1].append(result)
    return [
        (f"{name} (n = {len(of)} seeds)" if len(of) > 1 else name, of)
        for name, of in found.values()
    ]


def _coordinates(results: Sequence[Result]) -> list[dict[str, str]]:
    """What was swept among the results, of each as texts by key."""
    firsts = [result.metrics.iloc[0] for result in results]
    keys = list(dict.fromkeys(key for result in results for key in swept_keys(result.metrics)))
    within = {
        key
        for key in keys
        for result in results
        if key in result.metrics and result.metrics[key].nunique() > 1
    }
    differ = [
        key for key in keys if key not in within and len({first.get(key) for first in firsts}) > 1
    ]
    return [{key: label_text(first.get(key), key) for key in differ} for first in firsts]


def swept_keys(metrics: pd.DataFrame) -> list[str]:
    """The columns that were swept: dotted keys, seeds, and names of variants; the others are
    measured.
    """
    return [
        key
        for key in metrics
        if "." in key or key == "seed" or metrics[key].dtype.kind not in "iufb"
    ]


def shorten(text: str, most: int) -> str:
    """The text, its middle left out so that it has at most `most` characters."""
    half = (most - 3) // 2
    return text if len(text) <= most else f"{text[:half]}...{text[-half:]}"


def applied_gradients(updates: pd.DataFrame) -> pd.DataFrame:
    """The rows of the gradients that were applied."""
    return updates[updates["status"] == "applied"]


def by_method(results: Sequence[Result]) -> Label | None:
    """A name for each result that stands in no sweep: its method; None where something was swept,
    which names them.
    """
    if any(result.labels for result in results):
        return None
    named = names(results)
    return lambda result: named[result.path]


def missing_messages(result: Result) -> str:
    """Why a run has no rows of messages."""
    sent = result.config.record.messages
    return (
        "its method sent no message"
        if sent
        else "no messages recorded: run it with record.messages=true"
    )
