"""A table as text for a terminal, Markdown, CSV and LaTeX; whatever a label holds stays text."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

    from laggard.experiments.results.tables import Table


def text(table: "Table") -> str:
    """Aligned for a terminal, the question above and the notes below."""
    lines = table.lines()
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    return "\n".join([*([table.question, ""] if table.question else []), *rows, "", *table.notes])


def markdown(table: "Table") -> str:
    """A table of GitHub's Markdown, the question above and the notes below."""
    heading, *body = [[_escape_markdown(cell) for cell in line] for line in table.lines()]
    rule = ["---"] * len(table.rows) + ["---:"] * (len(heading) - len(table.rows))
    rows = [f"| {' | '.join(line)} |" for line in (heading, rule, *body)]
    title = [f"**{_escape_markdown(table.question)}**", ""] if table.question else []
    return "\n".join(
        [*title, *rows, "", *(f"{_escape_markdown(note)}  " for note in table.notes)]
    ).rstrip()


def _escape_markdown(text: str) -> str:
    """Text in which no sign is Markdown or HTML; an underscore within a word is none."""
    return re.sub(r"[\\`*\[\]<|~$&#]|(?<!\w)_|_(?!\w)", r"\\\g<0>", text)


def csv(table: "Table") -> str:
    """A line per cell with its numbers, for other programs; in units of the tables: seconds, shares
    of 1.
    """
    records = table.records.rename(columns=_defuse)
    return str(records.map(_defuse).to_csv(index=False)).rstrip("\n")


def _defuse(cell: Any) -> Any:
    """A cell that a spreadsheet takes for text, not for a formula."""
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in tuple("=+-@") else cell


def latex(table: "Table") -> str:
    """A `tabular` with the rules of booktabs; the question and the notes are comments above it."""
    heading, *body = [[_escape_latex(cell) for cell in line] for line in table.lines()]
    columns = "l" * len(table.rows) + "r" * (len(heading) - len(table.rows))
    rows = [f"{' & '.join(line)} \\\\" for line in body]
    notes = [f"% {note}" for note in (table.question, *table.notes) if note]
    top = [
        f"\\begin{{tabular}}{{{columns}}}",
        "\\toprule",
        f"{' & '.join(heading)} \\\\",
        "\\midrule",
    ]
    return "\n".join([*notes, *top, *rows, "\\bottomrule", "\\end{tabular}"])


def _escape_latex(cell: str) -> str:
    plain = {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "|": r"\textbar{}",
    }
    plain |= {"[": "{[}", "*": "{*}"}  # after the end of a row they would be its options
    signs = {"±": r"$\pm$", ">": "$>$", "<": "$<$"}
    return "".join(
        plain.get(sign) or signs.get(sign) or (f"\\{sign}" if sign in "&%$#_{}" else sign)
        for sign in cell
    )


FORMATS: dict[str, Callable[["Table"], str]] = {
    "text": text,
    "md": markdown,
    "csv": csv,
    "latex": latex,
}


def format_setting(value: Any) -> str:
    """A setting in a table; `-` where a run has none."""
    if value is None or value != value:
        return "-"
    return f"{value:g}" if isinstance(value, float) else str(value)


def format_table(table: "pd.DataFrame") -> str:
    """The table, aligned for a terminal: strings to the left, numbers to the right."""
    columns = []
    for name in table:
        texts = isinstance(table[name].iloc[0], str)
        cells = [name.replace("_", " "), *(format_cell(name, value) for value in table[name])]
        width = max(map(len, cells))
        columns.append([cell.ljust(width) if texts else cell.rjust(width) for cell in cells])
    return "\n".join("  ".join(row).rstrip() for row in zip(*columns, strict=True))


def format_cell(name: str, value: Any, missing: str = "-") -> str:
    """A value of a summary in its column."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_) or (
        isinstance(value, int | np.integer) and name not in WRITTEN
    ):
        return str(value).lower()  # seeds and sizes in full
    if value is None or value != value:
        return "not reached" if name == "time_to_target" else missing
    return WRITTEN.get(name, "{:g}").format(round(value, 1) if name == "updates" else value)


WRITTEN = {
    "time_to_target": "{:.4g} s",
    "accuracy": "{:.2%}",
    "loss": "{:.4g}",
    "time": "{:.4g} s",
    "updates": "{:,.10g}",
    "staleness": "{:.2f}",
    "waiting": "{:.0%}",
}
"""How the columns of a summary are written."""
