"""Which lines a comparison of results has: what each is called, and which curves it stands for."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import pandas as pd


class Named(Protocol):
    """What a figure reads of a config."""

    name: str


class Drawn(Protocol):
    """A run, as figures see it: the tables of a `Result`, and what it is called."""

    @property
    def metrics(self) -> pd.DataFrame: ...
    @property
    def updates(self) -> pd.DataFrame: ...
    @property
    def workers(self) -> pd.DataFrame: ...
    @property
    def config(self) -> Named: ...


Label = Callable[[Drawn], str]


MEASURES = {"test_accuracy": "test accuracy (%)", "test_loss": "test loss", "train_loss": "training loss"}


class Line(NamedTuple):
    """The curves that one line stands for, rows of metrics each: they differ only in their seeds."""

    run: str
    name: str
    curves: list[pd.DataFrame]

    @property
    def results(self) -> list[int]:
        """The places of the results that the curves are from."""
        return sorted({int(curve["run"].iloc[0]) for curve in self.curves})

    def points(self, x: str, y: str) -> tuple[np.ndarray, np.ndarray]:
        """The first curve's points that all reach `(points,)`, and the values there `(curves, points)`."""
        at = self.curves[0][x].to_numpy(float)
        at = at[at <= min(curve[x].max() for curve in self.curves)]
        values = np.stack([np.interp(at, curve[x], curve[y].astype(float)) for curve in self.curves])
        return at, np.where(np.isfinite(values), values, np.nan)


def lines_of(results: Sequence[Drawn], label: "Label | None" = None) -> list[Line]:
    """A line for each run and each of its members, named by what was swept; those that differ only in seeds are one."""
    names = [label(result) if label else result.config.name for result in results]
    table = pd.concat([of.metrics.assign(run=run, name=names[run]) for run, of in enumerate(results)])
    keys = ["name", *table.columns.drop("name")]
    swept = [key for key in keys if "." in key or key == "seed" or table[key].dtype.kind not in "iuf"]
    if label is None and table.groupby(swept, dropna=False)["run"].nunique().max() > 1:
        raise ValueError("two results have one name and the same swept values: expected label=, a name for each")
    differ = [key for key in swept if table[key].nunique(dropna=False) > 1 and not key.endswith("seed")]
    within = [key for key in differ if table.groupby("run")[key].nunique().max() > 1]
    between = ["name"] if label else [key for key in differ if key not in within]
    lines: dict[tuple[str, str], Line] = {}
    for _, curve in table.groupby(["run", "member"]):
        said = {key: _said(key, curve[key].iloc[0]) for key in [*between, *within]}
        run = ", ".join(said[key] for key in between if said[key]) or str(curve["name"].iloc[0])
        name = ", ".join(text for text in said.values() if text) or run
        lines.setdefault((run, name), Line(run, name, [])).curves.append(curve)
    return list(lines.values())


def _said(key: str, value: Any) -> str:
    """`lr = 0.1`; a text speaks for itself, and what a run does not have says nothing."""
    if isinstance(value, str) or pd.isna(value):
        return value if isinstance(value, str) else ""
    return f"{key.rpartition('.')[2]} = {f'{value:g}' if isinstance(value, float) else value}"


def measures_of(results: Sequence[Drawn]) -> list[str]:
    """What was measured; of runs that learn nothing, the samples they went through."""
    metrics = [result.metrics for result in results]
    return [name for name in MEASURES if all(name in of and of[name].notna().any() for of in metrics)] or ["samples"]


def best_of(lines: Sequence[Line], measure: str, most: int) -> list[Line]:
    """All lines while they are at `most` so many; else, of each run, those that ended best."""
    ends = [np.mean([curve[measure].iloc[-1] for curve in line.curves]) for line in lines]
    table = pd.DataFrame({"run": [line.run for line in lines], "end": np.where(np.isfinite(ends), ends, np.nan)})
    each = len(lines) if len(lines) <= most else max(1, most // table["run"].nunique())
    best = table.sort_values("end", ascending=measure != "test_accuracy").groupby("run").head(each)
    return [lines[index] for index in sorted(best.index[:most])]
