"""The meanings of arguments, read from docstrings."""

import re
from collections.abc import Iterator
from inspect import cleandoc, getmro, isclass
from typing import Any

SECTION = re.compile(r"^(?:Attributes|Args):\n((?: .*\n?|\n(?= ))*)", flags=re.MULTILINE)
KEY_LINES = re.compile(r"^    (\w+(?:, \w+)*): (.*(?:\n {5,}.*)*)", flags=re.MULTILINE)


def describe_keys(*recipes: Any) -> dict[str, str]:
    """The meaning of each argument, from the docstrings of classes, of their bases, and functions.

    Args:
        recipes: classes and functions; the last counts most.
    """
    meanings: dict[str, str] = {}
    for item in recipes:
        bases = reversed(getmro(item)) if isclass(item) else [item]
        for base in bases:
            meanings |= _keys_in(base.__doc__ or "")
    return meanings


def _keys_in(docstring: str) -> Iterator[tuple[str, str]]:
    """The keys in the sections `Attributes` and `Args` of a docstring, with their texts."""
    for section in SECTION.findall(cleandoc(docstring)):
        for keys, text in KEY_LINES.findall(section):
            for key in keys.split(", "):
                yield key, " ".join(text.split())
