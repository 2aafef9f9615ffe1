"""Lines of results, each an average over seeds, and the names of results."""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from laggard.experiments.results.formats import label_text
from laggard.experiments.results.measures import is_seed, names
from laggard.experiments.results.result import Result
from laggard.experiments.results.statistics import half_width

Label = Callable[[Result], str]
LEARNT = ("test_accuracy", "test_loss", "train_loss")
MIN_INTERVAL = 5
"""Number of seeds from which a band is an interval: that of three seeds reaches 2.5 of their
standard deviations up and down, and would leave its panel.
"""


class Line(NamedTuple):
    """The curves of one line, each a table of metrics; they differ only in their seeds.

    Attributes:
        colour: the setting that has its colour.
        name: its name in the legend.
        curves: its tables, with the index of the result in `run`.
        dash: the setting that has its dashes, if any.
        panel: the name of its panel, if there are several.
        best: the chosen values of the keys that are drawn at their best.
    """

    colour: str
    name: str
    curves: list[pd.DataFrame]
    dash: str = ""
    panel: str = ""
    best: str = ""

    @property
    def results(self) -> list[int]:
        """The indices of the results to which the curves belong."""
        return sorted({int(curve["run"].iloc[0]) for curve in self.curves})

    @property
    def title(self) -> str:
        """The name, with the number of seeds if there are several."""
        if len(self.curves) > 1:
            return f"{self.name} (n = {len(self.curves)})"
        return self.name

    def points(self, x: str, y: str) -> tuple[np.ndarray, np.ndarray]:
        """The points of the first curve up to the end of the shortest curve, and all curves' values
        there.

        Curves against seconds end at different times. A value that was not measured, as a training
        loss without a gradient since the last evaluation, is interpolated. After the last finite
        value of a curve its values are NaN.

        Returns:
            Points `(points,)` and values `(curves, points)`.
        """
        at = self.curves[0][x].to_numpy(float)
        end = min(curve[x].max() for curve in self.curves)
        at = np.append(at[at < end], end)
        return at, np.stack([_interpolate(at, curve[x], curve[y]) for curve in self.curves])

    def band(self, x: str, y: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The points of `points`, the mean of the curves, and the ends of its 95 % interval.

        Of fewer than `MIN_INTERVAL` curves they are the least and the greatest value. The ends of
        an interval stay where the measure can be: a share within 0 and 1, a loss above 0.
        """
        at, values = self.points(x, y)
        mean, n = values.mean(0), len(values)
        if n < MIN_INTERVAL:
            return at, mean, values.min(0), values.max(0)
        half = half_width(values.std(0, ddof=1), n)
        low, high = mean - half, mean + half
        if y == "test_accuracy":
            low = np.clip(low, 0, 1)
            high = np.clip(high, 0, 1)
        elif np.nanmax(mean, initial=0) > 0:  # a log axis has no 0
            low = np.maximum(low, 1e-6 * np.nanmin(mean[mean > 0]))
        return at, mean, low, high


def _interpolate(at: np.ndarray, x: pd.Series, y: pd.Series) -> np.ndarray:
    """The values between the finite ones; NaN before the first and after the last of these."""
    places = x.to_numpy(float)
    values = y.to_numpy(float)
    finite = np.isfinite(values)
    if not finite.any():
        return np.full(len(at), np.nan)
    between = np.interp(at, places[finite], values[finite], np.nan, np.nan)
    return np.asarray(between)


def measures_of(results: Sequence[Result]) -> list[str]:
    """The measures that all results have; for runs without a task, the number of samples."""
    return measures_in([result.metrics for result in results])


def measures_in(tables: Sequence[pd.DataFrame]) -> list[str]:
    """The measures that all these tables have; without any, the number of samples."""
    measures = [name for name in LEARNT if all(_is_measured(table, name) for table in tables)]
    return measures or ["samples"]


def _is_measured(table: pd.DataFrame, name: str) -> bool:
    return name in table and bool(table[name].notna().any())


def _parameter(config: Any, key: str) -> Any:
    """The value of a dotted key of a config; None if the config has no such key."""
    return reduce(lambda part, name: getattr(part, name, None), key.split("."), config)


def ends(results: Sequence[Result], keys: Sequence[str]) -> pd.DataFrame:
    """The last evaluation of each run and member, with its parameters at `keys`.

    Returns:
        Rows of metrics with the index of the result in `run`, and in `learnt` the final value of
        the first measure of `measures_of`, NaN where the loss is not finite.
    """
    measure = measures_of(results)[0]
    rows = []
    for run, result in enumerate(results):
        last = result.metrics.groupby("member").tail(1).assign(run=run)
        for key in keys:
            if key not in last:
                last[key] = _parameter(result.config, key)
        last["learnt"] = last[measure]  # a diverged model has an accuracy too
        losses = [
            name for name in ("test_loss", "train_loss") if _is_measured(result.metrics, name)
        ]
        if losses:
            finite = np.isfinite(last[losses[0]].astype(float))
            last["learnt"] = last[measure].where(finite)
        rows.append(last)
    return pd.concat(rows, ignore_index=True)


def titles(results: Sequence[Result], label: Label | None = None) -> list[str]:
    """A name for each result: by `label`, else by what was swept, else the name of its config."""
    if label:
        return [label(result) for result in results]
    names = []
    for result, texts in zip(results, _coordinates(results), strict=True):
        name = ", ".join(filter(None, texts.values()))
        names.append(name or str(result.config.name))
    return names


def pool_seeds(
    results: Sequence[Result], label: Label | None = None
) -> list[tuple[str, list[Result]]]:
    """The results by name, as in `titles`; results that differ only in seeds are one entry."""
    if label:
        return [(label(result), [result]) for result in results]
    pools: dict[Any, tuple[str, list[Result]]] = {}
    for place, (result, texts) in enumerate(zip(results, _coordinates(results), strict=True)):
        settings = [text for key, text in texts.items() if not is_seed(key)]
        name = ", ".join(filter(None, settings)) or str(result.config.name)
        pool: Any = place  # without a swept seed, runs of one name are different runs
        if any(map(is_seed, texts)):
            pool = name
        pools.setdefault(pool, (name, []))[1].append(result)
    return list(pools.values())


def _coordinates(results: Sequence[Result]) -> list[dict[str, str]]:
    """For each result, the keys that differ between results, with their values as texts."""
    firsts = [result.metrics.iloc[0] for result in results]
    keys = dict.fromkeys(key for result in results for key in swept_keys(result.metrics))
    differ = []
    for key in keys:
        columns = [result.metrics[key] for result in results if key in result.metrics]
        swept_within = any(column.nunique() > 1 for column in columns)
        if not swept_within and len({first.get(key) for first in firsts}) > 1:
            differ.append(key)
    return [{key: label_text(first.get(key), key) for key in differ} for first in firsts]


def swept_keys(metrics: pd.DataFrame) -> list[str]:
    """The columns that were swept: dotted keys, seeds, and names of variants."""
    return [key for key in metrics if _is_swept(metrics, key)]


def _is_swept(metrics: pd.DataFrame, key: str) -> bool:
    # all measures are numbers, so that a column of texts has the names of variants
    return "." in key or key == "seed" or metrics[key].dtype.kind not in "iufb"


def shorten(text: str, limit: int) -> str:
    """The text with at most `limit` characters; the middle is left out."""
    if len(text) <= limit:
        return text
    half = (limit - 3) // 2
    return f"{text[:half]}...{text[-half:]}"


def applied_gradients(updates: pd.DataFrame) -> pd.DataFrame:
    """The rows of the gradients that were applied."""
    return updates[updates["status"] == "applied"]


def by_method(results: Sequence[Result]) -> Label | None:
    """Labels by method; None where something was swept, which gives the names."""
    if any(result.labels for result in results):
        return None
    methods = names(results)
    return lambda result: methods[result.path]


def missing_messages(result: Result) -> str:
    """The reason why a run has no rows of messages."""
    if result.config.record.messages:
        return "its method sent no message"
    return "no messages recorded: run it with record.messages=true"
