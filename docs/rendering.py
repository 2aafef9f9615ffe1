"""A Sphinx extension: docstrings as the parser of autodoc takes them, and equations that need no network."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from laggard.experiments.config.catalogue import TABLE_ROW

SECTIONS = ("Args:", "Attributes:", "Example:", "Raises:", "Returns:", "Yields:")
RANGE = re.compile(r"Annotated\[(.*?), Range\(.*?\)\]")
ENTRY = re.compile(r" {4}[\w, .]+: ")


def setup(app: Any) -> dict[str, bool]:
    """Register what this module has."""
    app.connect("autodoc-process-docstring", process_docstring, priority=400)  # before napoleon
    app.connect("autodoc-process-signature", process_signature)
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math, None))
    return {"parallel_read_safe": True}


def process_docstring(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Rewrite the lines of a docstring in place."""
    if what == "property" and lines:  # else its first words count as its type
        lines[0] = lines[0].replace(": ", " – ", 1)
    lines[:] = list(restructure(lines))


def process_signature(
    app: Any, what: str, name: str, thing: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """A signature without the ranges of its arguments, which the page of keys has."""
    return signature and RANGE.sub(r"\1", signature), returns


def restructure(lines: Sequence[str]) -> Iterator[str]:
    """Lines of a docstring as reStructuredText: words in backticks are code, what is indented or aligned is kept."""
    section, literal, code = "", False, False
    for line in lines:
        if line in SECTIONS or (line and not line.startswith(" ")):
            section = line if line in SECTIONS else ""
        if line in SECTIONS or section == "Example:" or not line:
            literal = literal and not line
            yield line
            continue
        kept = not section and bool(line.startswith("    ") or TABLE_ROW.match(line))
        if kept != literal:
            yield from ("", "::", "") if kept else ("",)
        literal = kept
        if kept:
            yield line if line.startswith("    ") else f"    {line}"
            continue
        head = match[0] if section and (match := ENTRY.match(line)) else ""
        pieces = line[len(head) :].split("`")
        text = "``".join(
            piece if code ^ bool(index % 2) else re.sub(r"([*|_\\\\])", r"\\\1", piece)
            for index, piece in enumerate(pieces)
        )
        code ^= len(pieces) % 2 == 0
        if section in ("Args:", "Attributes:"):  # of which a name is all up to the first space
            head = head.replace(", ", ",")
        yield head + text


def visit_math(translator: Any, node: Any) -> None:
    """Write an equation as MathML, which browsers draw themselves."""
    from docutils import nodes  # tests of the rest have no Sphinx
    from docutils.utils.math.latex2mathml import tex2mathml

    translator.body.append(tex2mathml(node.astext(), as_block=isinstance(node, nodes.math_block)))
    raise nodes.SkipNode
