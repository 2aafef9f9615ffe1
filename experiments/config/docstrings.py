"""The meanings and ranges of keys, read from the docstrings and types of what a part describes."""

import re
from collections.abc import Iterator
from inspect import cleandoc, getmro, isclass
from typing import Any

from laggard.models.generated import RANGES
from laggard.simulator.errors import Settings, limits_of

SECTION = re.compile(r"^(?:Attributes|Args):\n((?: .*\n?|\n(?= ))*)", flags=re.MULTILINE)
KEY_LINES = re.compile(r"^    (\w+(?:, \w+)*): (.*(?:\n {5,}.*)*)", flags=re.MULTILINE)
JSON_LIMITS = {
    "above": "exclusiveMinimum",
    "least": "minimum",
    "below": "exclusiveMaximum",
    "most": "maximum",
}
"""The limits of a range, as JSON schema calls them."""


def describe_keys(part: type, *others: Any) -> dict[str, str]:
    """The meaning of each key, from the docstrings of a part and of what it describes.

    Args:
        others: classes and functions; the last counts most.
    """
    meanings: dict[str, str] = {}
    *describes, recipe = others
    for item in (*describes, part, recipe):
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


def limits_of_keys(recipe: Any) -> dict[str, dict[str, float]]:
    """The range of each key that has one, in the words of JSON schema."""
    if recipe in RANGES:
        ranges = RANGES[recipe].items()
        return {key: {"minimum": low, "maximum": high} for key, (low, high) in ranges}
    if not (isclass(recipe) and issubclass(recipe, Settings)):
        return {}
    result = {}
    for key, _, limits in limits_of(recipe):  # type: ignore[arg-type]  # mypy: a class is hashable
        if limits is None:
            continue
        values = limits._asdict()
        result[key] = {
            word: values[name] for name, word in JSON_LIMITS.items() if values[name] is not None
        }
    return result
