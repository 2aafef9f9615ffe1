"""The place of each axis of a sweep in a figure: colours, panels, dashes, or its best value."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import pandas as pd

from laggard.experiments.figures.lines import Label, Line, swept_keys
from laggard.experiments.results.formats import label_text
from laggard.experiments.results.measures import MEASURES, is_seed
from laggard.experiments.results.ranking import LR, criterion
from laggard.experiments.results.result import Result
from laggard.experiments.results.results import as_results
from laggard.experiments.results.selection import Best, best
from laggard.experiments.results.tables import EXPERIMENT

MAX_COLOURS, MAX_PANELS, MAX_DASHES = 40, 12, 4
MAX_COLOURS_WITH_DASHES = 8
"""Colours up to which a reader can tell dashes of one colour apart as well."""
MAX_LINES_WITH_RATES = 8
"""Lines of a panel up to which the learning rate has dashes: beyond, their bands hide each other.
"""
MAX_NOTE = 600
"""Characters of the chosen values below a figure."""
NAME = "name"
"""The axis of names: of configs, or those that a caller's `label` gives."""


class FacetAxis(NamedTuple):
    """An axis of a sweep.

    Attributes:
        key: the axis's key.
        named: whether the values are names.
        texts: its value in each row of the table of members, as text, with the keys that depend on
            it.
    """

    key: str
    named: bool
    texts: pd.Series

    @property
    def values(self) -> list[str]:
        """The axis's values as text, in the order of the sweep."""
        return list(dict.fromkeys(self.texts))


class FacetPlaces(NamedTuple):
    """The axes that a figure shows in colours, panels and dashes, and those without a place."""

    colours: FacetAxis | None
    panels: FacetAxis | None
    dashes: FacetAxis | None
    rest: list[FacetAxis]


class Facets(NamedTuple):
    """The lines and panels of a figure.

    Attributes:
        results: the runs and members that are drawn.
        lines: a line for each setting, which its seeds share.
        panels: the names of the panels; a single one without a name where no axis needs them.
        title: the keys that are drawn at their best value, and how it was chosen; or empty.
        note: the chosen values.
    """

    results: Sequence[Result]
    lines: list[Line]
    panels: list[str]
    title: str = ""
    note: str = ""

    def of_panel(self, panel: str) -> list[Line]:
        """The lines of one panel."""
        return [line for line in self.lines if line.panel == panel]


def facets(results: Sequence[Result], label: Label | None = None, of_runs: bool = False) -> Facets:
    """Give each axis of a sweep its place in a figure: every value is drawn, or a note says which
    are not.

    The first axis of names, such as the method, has the colours; without one it is the first axis.
    The next has panels. The next has dashes if it has at most four values and there are at most
    eight colours. The learning rate never has panels, and dashes only where a panel then has at
    most eight lines.
    All other axes are drawn at their best value for each line, chosen as in `ranking.rank`.

    Args:
        label: names a run; these names have the colours.
        of_runs: whether the figure shows only whole runs; keys that differ between members of a run
            are then no axes.

    Raises:
        ValueError: two results cannot be told apart, or an axis has too many values.
    """
    table = _table_of_members(results, label)
    if label is None:
        _check_names(table)
    axes = _facet_axes(table, of_runs, label)
    places = _places(axes)
    if not places.rest:
        return Facets(results, _lines(results, table, places), _panel_names(places))
    chosen = _choose(results, places.rest)
    table = _table_of_members(chosen.overall, label)
    hidden = [axis.key for axis in places.rest]
    title = _title(places.rest, criterion(results))
    note = "; ".join(chosen.choices)
    if len(note) > MAX_NOTE:
        note = f"`table` with `best` {', '.join(hidden)} lists the chosen values"
    places = _places(_facet_axes(table, of_runs, label, hidden))
    lines = _lines(chosen.overall, table, places, hidden)
    return Facets(chosen.overall, lines, _panel_names(places), title, note)


def refuse_panels(shown: Facets) -> None:
    """Refuse results that need several panels.

    Raises:
        ValueError: they need several.
    """
    if len(shown.panels) > 1:
        panels = ", ".join(shown.panels)
        raise ValueError(f"{panels}: this figure shows one of these: choose it by `where`")


def _table_of_members(results: Sequence[Result], label: Label | None) -> pd.DataFrame:
    """A row for each run and member: `run` (an index), `member`, `name`, and the swept keys."""
    parts = []
    for run, result in enumerate(results):
        name = result.config.name
        if label is not None:
            name = label(result)
        rows = result.metrics.drop_duplicates("member")
        keys = [key for key in swept_keys(rows) if key not in (NAME, EXPERIMENT)]
        parts.append(rows[["member", *keys]].assign(run=run, name=name))
    return pd.concat(parts, ignore_index=True)


def _check_names(table: pd.DataFrame) -> None:
    """Refuse two results that agree in their name and in all swept keys."""
    settings = [key for key in table if key not in ("run", "member")]
    if table.groupby(settings, dropna=False)["run"].nunique().max() > 1:
        raise ValueError(
            "two results have one name and the same swept values: expected label=, a name for each"
        )


def _facet_axes(
    table: pd.DataFrame, of_runs: bool, label: Label | None, hidden: Collection[str] = ()
) -> list[FacetAxis]:
    """The independent axes of two or more values, in the order of the sweep.

    A key whose value follows from an earlier one, as in a zip, joins its axis. A key that some runs
    lack, as in a variant's own sweep, joins the first axis: a panel of its own would hold nothing
    to compare.
    """
    groups: list[list[str]] = []
    for key in [NAME, *(key for key in table if key not in ("run", "member", NAME))]:
        if key in hidden or is_seed(key) or table[key].nunique(dropna=False) < 2:
            continue
        within = table.groupby("run")[key].nunique(dropna=False).max() > 1
        is_of_members = of_runs and within  # the figure shows whole runs
        is_named_by_label = label is not None and key != NAME and not within
        if is_of_members or is_named_by_label:
            continue
        owner = next((group for group in groups if _follows(table, key, group)), None)
        if owner is None and groups and key != LR and table[key].isna().any():
            owner = groups[0]
        if owner is None:
            groups.append([key])
        else:
            owner.append(key)
    axes = []
    for keys in groups:
        named = any(isinstance(value, str) for value in table[keys[0]])
        texts = [_text(row, keys) for row in table[keys].to_dict("records")]
        axes.append(FacetAxis(keys[0], named, pd.Series(texts, index=table.index)))
    return axes


def _follows(table: pd.DataFrame, key: str, keys: Sequence[str]) -> bool:
    values = table.groupby(list(keys), dropna=False)[key].nunique(dropna=False)
    return bool(values.max() <= 1)


def _text(row: dict[str, object], keys: Sequence[str]) -> str:
    return ", ".join(filter(None, (label_text(row[key], key) for key in keys)))


def _places(axes: Sequence[FacetAxis]) -> FacetPlaces:
    """The place of each axis.

    Raises:
        ValueError: an axis has more values than its place.
    """
    if not axes:
        return FacetPlaces(None, None, None, [])
    others = [axis for axis in axes if axis.key != LR]
    rates = [axis for axis in axes if axis.key == LR]
    named = [axis for axis in others if axis.named]
    by_preference = [*named, *others, *rates]
    colours = by_preference[0]
    _check_place(colours, MAX_COLOURS, "lines")
    others = [axis for axis in others if axis is not colours]
    rates = [axis for axis in rates if axis is not colours]
    panels = None
    if others:
        panels = others.pop(0)
        _check_place(panels, MAX_PANELS, "panels")
    dashes = None
    rest = [*others, *rates]
    if rest and _may_have_dashes(rest[0], len(colours.values)):
        dashes = rest.pop(0)
    return FacetPlaces(colours, panels, dashes, rest)


def _may_have_dashes(axis: FacetAxis, colours: int) -> bool:
    """Whether dashes can distinguish the values of `axis`, beside that many colours."""
    count = len(axis.values)
    if axis.key == LR and colours * count > MAX_LINES_WITH_RATES:
        return False
    return count <= MAX_DASHES and colours <= MAX_COLOURS_WITH_DASHES


def _check_place(axis: FacetAxis, limit: int, place: str) -> None:
    count = len(axis.values)
    if count > limit:
        problem = f"{count} values, and a figure has at most {limit} {place}"
        raise ValueError(f"{axis.key}: {problem}: choose some by `where`, as {axis.key}=[...]")


def _panel_names(places: FacetPlaces) -> list[str]:
    if places.panels is None:
        return [""]
    return places.panels.values


def _lines(
    results: Sequence[Result], table: pd.DataFrame, places: FacetPlaces, chosen: Sequence[str] = ()
) -> list[Line]:
    """A line for each setting that is shown, with the curves of its runs and members.

    Args:
        chosen: the keys that are drawn at their best value.
    """
    curves = {}
    for run, result in enumerate(results):
        for member, curve in result.metrics.groupby("member"):
            curves[run, member] = curve.assign(run=run)
    lines: dict[tuple[str, str], Line] = {}
    for row, (run, member) in enumerate(zip(table["run"], table["member"], strict=True)):
        colour, panel, dash = (_value(axis, row) for axis in places[:3])
        colour = colour or str(results[run].config.name)
        name = ", ".join(filter(None, (colour, dash)))
        choice = _text(table.iloc[row].to_dict(), chosen)
        line = lines.setdefault((panel, name), Line(colour, name, [], dash, panel, choice))
        line.curves.append(curves[run, member])
    return list(lines.values())


def _value(axis: FacetAxis | None, row: int) -> str:
    if axis is None:
        return ""
    return str(axis.texts.iloc[row])


def _choose(results: Sequence[Result], axes: Sequence[FacetAxis]) -> Best:
    """The best values of axes that have no place.

    Raises:
        ValueError: nothing was learnt, so that no value is best.
    """
    keys = [axis.key for axis in axes]
    value = criterion(results)
    if value == "time":
        problem = "no place in this figure: choose one of its values by `where`"
        raise ValueError(f"{keys[0]}: {problem}, as {keys[0]}=...")
    return best(as_results(results), keys, value.removesuffix("_to"))


def _title(axes: Sequence[FacetAxis], value: str) -> str:
    """The axes that are drawn at their best value, with the values that were tried."""
    tried = []
    for axis in axes:
        values = [text.rpartition(" = ")[2] for text in axis.values]
        tried.append(f"{axis.key} at its best of {', '.join(values)}")
    measure = MEASURES[value].title.format(target="the target")
    return f"{'; '.join(tried)}, by {measure}"
