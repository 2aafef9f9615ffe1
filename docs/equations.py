"""Equations of docstrings, which a terminal shows as they are written, in LaTeX for the site."""

import re
from collections.abc import Iterator

GREEK = ("alpha", "beta", "gamma", "mu", "pi", "tau")
FUNCTIONS = {"max": r"\max", "min": r"\min", "cos": r"\cos", "log2": r"\log_2", "sum": r"\sum"}
SIGNS = {
    "*": r"\odot ",
    "<-": r"\leftarrow ",
    "<=": r"\le ",
    ">=": r"\ge ",
    "!=": r"\ne ",
    "...": r"\ldots ",
    "..": r"\ldots ",
}
TOKEN = re.compile(
    r"""
    (?P<gap>\ {2,})
    | \((?P<over>\w)/(?P<under>\w)\)                      # (1/P)
    | (?P<word>[A-Z]-th\b)
    | \^(?P<power>-?\d+)
    | (?P<name>[A-Za-z][A-Za-z0-9]*)(?P<index>_\w+|_\{[^}]*\}|_\([^)]*\))?
    | (?P<sign>\*|<-|<=|>=|!=|\.{2,3})
    | (?P<other>.)
    """,
    re.VERBOSE,
)


def is_equation(line: str) -> bool:
    """Whether a line of a docstring says how something is computed."""
    return "<-" in line or " = " in line


def latex_of(line: str) -> str:
    """An equation as LaTeX.

    One letter, or a Greek letter's name, is a variable, and what follows its underscore an index.
    Longer names are words, upright. Two spaces or more separate equations.
    """
    latex = "".join(_pieces(line.strip()))
    latex = re.sub(r" \}\s*\\text\{ ", " ", latex)  # words that follow one another
    latex = re.sub(r"(?<=[({]) *\\text\{ ", r"\\text{", latex)
    return re.sub(r" \} *(?=[]),;.'}])", "}", latex)


def _pieces(line: str) -> Iterator[str]:
    for token in TOKEN.finditer(line):
        if token["gap"]:
            yield r"\qquad "
        elif token["over"]:
            yield rf"\frac{{{token['over']}}}{{{token['under']}}}"
        elif token["word"]:
            yield rf"\text{{ {token['word']} }}"
        elif token["power"]:
            yield rf"^{{{token['power']}}}"
        elif token["name"]:
            yield _named(token["name"], token["index"] or "")
        elif token["sign"]:
            yield SIGNS[token["sign"]]
        else:
            yield token["other"]


def _named(name: str, index: str) -> str:
    """A variable or a function with its index, or a word."""
    if name in FUNCTIONS:
        return f"{FUNCTIONS[name]}{_lowered(index)} "
    if name in GREEK:
        return rf"\{name}{_lowered(index)} "
    if len(name) == 1:
        return f"{name}{_lowered(index)}"
    if index and (len(index) == 2 or index[1] in "{("):
        return rf"\text{{ {name}}}{_lowered(index)} "
    return rf"\text{{ {name}{index} }}"


def _lowered(index: str) -> str:
    """An index below the line; further underscores separate its parts."""
    if not index:
        return ""
    parts = []
    for part in index[1:].strip("{}()").split("_"):
        is_pair = len(part) == 2 and part.isalpha()  # of two variables, as i and j
        parts.append(part if is_pair else latex_of(part))
    return f"_{{{','.join(parts)}}}"
