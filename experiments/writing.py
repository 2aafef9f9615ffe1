"""A table as text, Markdown, CSV or LaTeX."""

from collections.abc import Callable

from experiments.tabulation import Table


def text(table: Table) -> str:
    """Aligned for a terminal, the question above and the notes below."""
    lines = table.lines()
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    title = [table.question, ""] if table.question else []
    return "\n".join([*title, *rows, "", *table.notes])


def markdown(table: Table) -> str:
    """A table of GitHub's Markdown, the question above and the notes below."""
    heading, *body = [[cell.replace("|", "\\|") for cell in line] for line in table.lines()]
    rule = ["---"] * len(table.rows) + ["---:"] * (len(heading) - len(table.rows))
    rows = [f"| {' | '.join(line)} |" for line in (heading, rule, *body)]
    title = [f"**{table.question}**", ""] if table.question else []
    return "\n".join([*title, *rows, "", *(f"{note}  " for note in table.notes)]).rstrip()


def csv(table: Table) -> str:
    """A line per cell with its numbers, for other programs; in units of the tables: seconds, shares of 1."""
    return table.records.to_csv(index=False).rstrip("\n")


def latex(table: Table) -> str:
    """A `tabular` with the rules of booktabs; the question and the notes are comments above it."""
    heading, *body = [[_escaped(cell) for cell in line] for line in table.lines()]
    columns = "l" * len(table.rows) + "r" * (len(heading) - len(table.rows))
    rows = [f"{' & '.join(line)} \\\\" for line in body]
    notes = [f"% {note}" for note in (table.question, *table.notes) if note]
    top = [f"\\begin{{tabular}}{{{columns}}}", "\\toprule", f"{' & '.join(heading)} \\\\", "\\midrule"]
    return "\n".join([*notes, *top, *rows, "\\bottomrule", "\\end{tabular}"])


def _escaped(cell: str) -> str:
    plain = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    signs = {"±": r"$\pm$", ">": "$>$", "<": "$<$"}
    return "".join(plain.get(sign) or signs.get(sign) or (f"\\{sign}" if sign in "&%$#_{}" else sign) for sign in cell)


FORMATS: dict[str, Callable[[Table], str]] = {"text": text, "md": markdown, "csv": csv, "latex": latex}
