"""What the keys of a config mean, by the docstrings of what they fill: for editors and the reference."""

import re
from collections.abc import Iterable
from inspect import cleandoc, getmro, isclass
from typing import Any

from laggard.experiments.config.schema import Described, Part
from laggard.models.generated import RANGES
from laggard.simulator.errors import Settings, limits_of

SECTION = re.compile(r"^(?:Attributes|Args):\n((?: .*\n?|\n(?= ))*)", flags=re.MULTILINE)
ENTRY = re.compile(r"^    (\w+(?:, \w+)*): (.*(?:\n {5,}.*)*)", flags=re.MULTILINE)
JSON_LIMITS = {"above": "exclusiveMinimum", "least": "minimum", "below": "exclusiveMaximum", "most": "maximum"}
"""The limits of a range, as JSON schema calls them."""


def describe_keys(part: type[Part]) -> dict[str, str]:
    """What each key of a part means, by the docstrings of the part and of what it builds; others are left out."""
    recipe = [part.recipe] if issubclass(part, Described) and "recipe" in vars(part) else []
    bases = (
        base for one in (*part.describes, part, *recipe) for base in reversed(getmro(one) if isclass(one) else [one])
    )
    return {key: text for base in bases for key, text in _described(base.__doc__ or "")}


def limits_of_keys(part: type[Part]) -> dict[str, dict[str, float]]:
    """The range of each key that has one, in the words of JSON schema."""
    recipe: Any = getattr(part, "recipe", None)
    if recipe in RANGES:
        return {key: {"minimum": least, "maximum": most} for key, (least, most) in RANGES[recipe].items()}
    if not (isclass(recipe) and issubclass(recipe, Settings)):
        return {}
    ranges = {key: limits._asdict() for key, _, limits in limits_of(recipe) if limits}  # type: ignore[arg-type]  # as there
    return {
        key: {word: limits[name] for name, word in JSON_LIMITS.items() if limits[name] is not None}
        for key, limits in ranges.items()
    }


def _described(docstring: str) -> Iterable[tuple[str, str]]:
    for section in SECTION.findall(cleandoc(docstring)):
        for keys, text in ENTRY.findall(section):
            yield from ((key, " ".join(text.split())) for key in keys.split(", "))
