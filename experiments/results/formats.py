"""Numbers, settings and summaries as text."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from laggard.experiments.results.statistics import Estimate, interval

if TYPE_CHECKING:
    import pandas as pd

FORMATTED = {
    "time_to_target": "{:.4g} s",
    "accuracy": "{:.2%}",
    "loss": "{:.4g}",
    "time": "{:.4g} s",
    "updates": "{:,.10g}",
    "staleness": "{:.2f}",
    "waiting": "{:.0%}",
}
"""Columns of a summary -> the format of a value."""
MAX_MOVED = 0.1
"""The largest part of its half width by which an interval with `±` was moved off a bound."""

PREFIXES = {9: "G", 6: "M", 3: "k", 0: ""}


def format_setting(value: Any) -> str:
    """A setting in a table; `-` where a run has none."""
    if value is None or value != value:
        return "-"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def label_text(value: Any, key: str = "") -> str:
    """A setting in a sentence or a figure: `lr = 0.1`, `bandwidth = 1 MB/s`; without a key `0.1`.
    Text stands without its key; a key that a run lacks gives an empty text.
    """
    if isinstance(value, str):
        return value
    if value is None or value != value:
        return ""
    number = str(value)
    if isinstance(value, float):
        number = f"{value:g}"
    if not key:
        return number
    name = key.rpartition(".")[2]
    if name.endswith("bandwidth"):
        # as many digits as `:g` has, so that the labels of different values differ
        number = format_quantity(value, "B/s", digits=6)
    return f"{name} = {number}"


def format_quantity(value: float, unit: str, digits: int = 4) -> str:
    """A number with its unit and a prefix: 125 MB/s; inf is `unlimited`.

    Args:
        digits: significant digits.
    """
    if math.isinf(value):
        return "unlimited"
    powers = [power for power in PREFIXES if value >= 10**power]
    power = max(powers, default=0)
    return f"{value / 10**power:.{digits}g} {PREFIXES[power]}{unit}"


def format_table(table: "pd.DataFrame") -> str:
    """The table, aligned for a terminal: text to the left, numbers to the right."""
    columns = []
    for name in table:
        cells = [name.replace("_", " "), *(format_cell(name, value) for value in table[name])]
        width = max(map(len, cells))
        align = str.rjust
        if isinstance(table[name].iloc[0], str):
            align = str.ljust
        columns.append([align(cell, width) for cell in cells])
    rows = zip(*columns, strict=True)
    return "\n".join("  ".join(row).rstrip() for row in rows)


def format_cell(name: str, value: Any, missing: str = "-") -> str:
    """A value of a summary as text, in the format of the column `name`."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return str(value).lower()
    if isinstance(value, int | np.integer) and name not in FORMATTED:
        return str(value)  # seeds and sizes in full
    if value is None or value != value:
        return "not reached" if name == "time_to_target" else missing
    if name == "updates":
        value = round(value, 1)
    return FORMATTED.get(name, "{:g}").format(value)


def format_estimate(
    estimate: Estimate,
    scale: float = 1.0,
    unit: str = "",
    show_n: bool = True,
    is_share: bool = False,
) -> str:
    """An estimate in a table, its value times `scale`.

    Args:
        show_n: whether to print the number of seeds n. If all cells have the same n, a note below
            the table states it instead.
        is_share: whether it is at most 1, as in `statistics.interval`.

    Example:
        >>> format_estimate(Estimate(0.9836, 0.0012, "mean", 5, None, 0), 100, "%", is_share=True)
        '98.36 ± 0.12 % (n = 5)'
        >>> format_estimate(Estimate(7.5, float("nan"), "more", 5, 1, 2), 1, "s")
        '> 7.5 s (1 of 5, 2 diverged)'
        >>> format_estimate(Estimate(0.96, 0.19, "mean", 3, None, 0), 100, "%", is_share=True)
        '96 (62 to 100) % (n = 3)'
        >>> format_estimate(Estimate(5e4, 8e4, "mean", 3, None, 0), 1, "s")
        '50000 (10100 to 170000) s (n = 3)'
    """
    counts = _format_counts(estimate, show_n)
    if estimate.kind == "none":
        return f"-{counts}"
    if estimate.kind == "never":
        return f"never{counts}"
    value, half = estimate.value * scale, estimate.half * scale
    text = _format_number(value, half)
    low, high = interval(estimate, is_share)
    moved = abs(low - estimate.value + estimate.half)
    if estimate.kind == "difference":
        sign = "+" if value > 0 else ""  # a negative number brings its own
        text = f"{sign}{text}"
    elif moved > MAX_MOVED * estimate.half:
        ends = f"{_format_end(low * scale)} to {_format_end(high * scale)}"
        text = f"{text.partition(' ')[0]} ({ends})"
    elif estimate.kind == "median":
        text = f"median {text}"
    elif estimate.kind == "more":
        text = f"> {text}"
    if unit:
        text = f"{text} {unit}"
    return f"{text}{counts}"


def _format_counts(estimate: Estimate, show_n: bool) -> str:
    """The numbers of all seeds, of seeds that reached the target, and of diverged seeds, in
    brackets.
    """
    counts = []
    all_reached = estimate.kind in ("mean", "difference") and estimate.reached == estimate.n
    if estimate.reached is not None and not all_reached:
        counts.append(f"{estimate.reached} of {estimate.n}")
    elif show_n:
        counts.append(f"n = {estimate.n}")
    if estimate.diverged:
        counts.append(f"{estimate.diverged} diverged")
    if not counts:
        return ""
    return f" ({', '.join(counts)})"


def _format_end(value: float) -> str:
    """An end of an interval in three digits, without a power of ten if its mean has none."""
    text = f"{value:.3g}"
    if 1e3 <= abs(value) < 1e9:
        return f"{float(text):.0f}"
    return text


def _format_number(value: float, half: float) -> str:
    """A number with as many digits as its interval allows: two digits of the interval."""
    if not (math.isfinite(half) and half > 0):
        text = f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"
        return f"{text} ± 0" if half == 0 else text
    places = max(0, 1 - math.floor(math.log10(half)))
    if places > 6 or half >= 1e6:
        return f"{value:.4g} ± {half:.2g}"
    return f"{value:.{places}f} ± {half:.{places}f}"
