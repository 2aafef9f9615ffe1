"""A Sphinx extension: docstrings as the parser of autodoc takes them, and equations that need no
network.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from laggard.experiments.config.listing import TABLE_ROW

SECTIONS = ("Args:", "Attributes:", "Example:", "Raises:", "Returns:", "Yields:")
RANGE = re.compile(r"Annotated\[(.*?), Range\(.*?\)\]")
DEFAULTS = (
    (r", _\w+: [^,]*(?=\)$)", ""),
    (r"<function (\w+)>", r"\1"),
    (r"<factory>|<function <lambda>>", "..."),
)
"""What a signature has that nobody can write, and what is shown instead: private fields, functions,
factories.
"""
DOTTED = re.compile(r"\b[a-z_]\w*(?:\.\w+)+")
ENTRY = re.compile(r" {4}[\w, .]+: ")


def setup(app: Any) -> dict[str, bool]:
    """Register what this module has."""
    app.connect("autodoc-process-docstring", process_docstring, priority=400)  # before napoleon
    app.connect("autodoc-process-docstring", shorten_types, priority=600)  # after it
    app.connect("autodoc-process-signature", process_signature)
    app.connect("autodoc-skip-member", skip_member)
    app.connect("doctree-read", space_names)
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math, None))
    return {"parallel_read_safe": True}


def process_docstring(
    app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Rewrite the lines of a docstring in place."""
    if what == "property" and lines:  # else its first words count as its type
        lines[0] = lines[0].replace(": ", " – ", 1)
    lines[:] = list(restructure(lines))


def shorten_types(
    app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Take the ranges out of the types of attributes, and the modules of those that the page does
    not have.
    """
    from reference import documented

    known = documented()
    for index, line in enumerate(lines):
        if line.startswith(":vartype"):
            lines[index] = DOTTED.sub(
                lambda match: match[0] if match[0] in known else match[0].rpartition(".")[2],
                RANGE.sub(r"\1", line),
            )


def process_signature(
    app: Any,
    what: str,
    name: str,
    thing: Any,
    options: Any,
    signature: str | None,
    returns: str | None,
) -> tuple[str | None, str | None]:
    """A signature without what nobody can write, nor the ranges that the page of keys has; none of
    a protocol.
    """
    if getattr(thing, "_is_protocol", False):
        return "", returns
    if not signature:
        return signature, returns
    signature = RANGE.sub(r"\1", signature)
    for unreadable, shown in DEFAULTS:
        signature = re.sub(unreadable, shown, signature)
    return signature, returns


def skip_member(
    app: Any, what: str, name: str, thing: Any, skip: bool, options: Any
) -> bool | None:
    """Leave out the fields of a named tuple, which its attributes say better."""
    return True if type(thing).__name__ == "_tuplegetter" else None


def space_names(app: Any, doctree: Any) -> None:
    """Put back the spaces between names that share an entry."""
    from docutils.nodes import Text
    from sphinx.addnodes import literal_strong

    for node in doctree.findall(literal_strong):
        node.children = [Text(re.sub(r",(?=\w)", ", ", node.astext()))]


def restructure(lines: Sequence[str]) -> Iterator[str]:
    """Lines of a docstring as reStructuredText: words in backticks are code, what is indented or
    aligned is kept.
    """
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
