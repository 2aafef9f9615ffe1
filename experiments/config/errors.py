"""Errors of configs, in one line: the place, what was expected, what was given, and a
suggestion.
"""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from laggard.simulator.errors import InvalidSettingError

EXPECTED = {
    "float_type": "a number",
    "finite_number": "a finite number",
    "int_type": "a whole number",
    "bool_type": "a boolean",
    "string_type": "a string",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "none_required": "null",
    "literal_error": "{expected}",
    "greater_than": "a number > {gt}",
    "greater_than_equal": "a number >= {ge}",
    "less_than": "a number < {lt}",
    "less_than_equal": "a number <= {le}",
    "too_short": "at least {min_length} in the list",
    "string_too_long": "at most {max_length} characters",
    "string_pattern_mismatch": "letters, digits, spaces and . _ - after a first letter or digit",
}


class ConfigError(ValueError):
    """A config that cannot be run; its text is one line.

    Attributes:
        key: the dotted key at fault; empty where the whole file is.
        problem: what is wrong with it.
        where: the file, where it is known.
        others: further problems of the same config.
    """

    def __init__(
        self, key: str, problem: str, where: str = "", others: "Iterable[ConfigError]" = ()
    ) -> None:
        super().__init__(printable(": ".join(part for part in (where, key[:200], problem) if part)))
        self.key, self.problem, self.where, self.others = key, problem, where, tuple(others)

    def relocate(self, *, key: str | None = None, where: str | None = None) -> "ConfigError":
        """The same problem under another key, or in another file, and the others there too."""
        place = self.where if where is None else where
        others = [other.relocate(where=place) for other in self.others]
        return ConfigError(self.key if key is None else key, self.problem, place, others)


UNEXPECTED = (ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError)
"""What a part may raise when it is built from values outside of its ranges: reported as an error of
the config.
"""


def describe_failure(error: BaseException) -> str:
    """An error in one line, as `cannot be built: MemoryError: ...`."""
    first = str(error).strip().partition("\n")[0]
    return f"cannot be built: {type(error).__name__}" + f": {first:.200}" * bool(first)


def error_line(error: Exception) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def unknown_key(key: str, known: Iterable[str]) -> ConfigError:
    """The refusal of an unknown key, with the key that was probably meant."""
    hint = suggest(key, known) or f"expected one of {', '.join(known)}"
    return ConfigError(key, f"unknown key; {hint}")


def unknown_name(key: str, got: object, known: Iterable[str]) -> ConfigError:
    """The refusal of a name that stands in no table, with the one that was probably meant."""
    said = f"expected one of {', '.join(known)}, got {format_value(got)}"
    hint = suggest(str(got), known)
    if isinstance(got, dict) and isinstance(name := got.get("name"), str) and name in known:
        hint = f"write {key}: {name}, with its keys beside it"
    return ConfigError(key, "; ".join(filter(None, (said, hint))))


SYNONYMS = {"learning_rate": "lr", "step_size": "lr", "world_size": "workers"}
"""Names that other tools have for a key, where they do not resemble its own."""


def suggest(word: str, known: Iterable[str]) -> str:
    """`did you mean ...?`, or nothing where no known word is close."""
    words = list(known)
    other = SYNONYMS.get(word)
    close = [other] if other in words else difflib.get_close_matches(word, words, n=1)
    return f"did you mean {close[0]}?" if close else ""


def printable(text: str) -> str:
    r"""A text in one line without what a terminal acts on: line breaks, escapes and their like are
    spelt out.

    Example:
        >>> print(printable("two\nlines, \x1b[31mred"))
        two\nlines, \x1b[31mred
    """
    if text.isprintable():
        return text
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text
    )


def format_value(value: object) -> str:
    """A value as a config would spell it, cut where it is long.

    Example:
        >>> format_value(True), format_value(None), format_value("1e-3"), format_value(17)
        ('true', 'null', "'1e-3'", '17')
    """
    plain = {True: "true", False: "false", None: "null"}
    text = (
        plain[value] if value is None or isinstance(value, bool) else " ".join(repr(value).split())
    )
    return text if len(text) <= 160 else text[:157] + "..."


def translate_error(error: ValidationError, document: Mapping[str, Any]) -> ConfigError:
    """The problems that pydantic found in `document`, each under its dotted key: the first one,
    with the others.
    """
    problems: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for item in error.errors(include_url=False):
        problems.setdefault(_path(item["loc"], document, item["type"]), []).append(item)
    first, *others = [_translate(path, items) for path, items in problems.items()]
    return ConfigError(first.key, first.problem, first.where, others)


def _translate(path: tuple[str, ...], items: Sequence[Mapping[str, Any]]) -> ConfigError:
    """The problem at one key; `items` are several where its type is a union."""
    first = items[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, ConfigError):
        return cause.relocate(key=".".join(filter(None, (*path, cause.key))))
    if first["type"] == "missing":
        return ConfigError(".".join(path), "missing: it has no default")
    if cause is not None:
        return error_at(".".join(path), cause)
    expected = dict.fromkeys(map(_expectation_of, items))  # one per branch of a union
    return ConfigError(
        ".".join(path), f"expected {' or '.join(expected)}, got {format_value(first['input'])}"
    )


def refused_setting(owner: str, error: InvalidSettingError) -> ConfigError:
    """The error of a setting that the part at `owner` does not accept."""
    key = ".".join(filter(None, (owner, error.field)))
    return ConfigError(key, f"expected {error.expected}, got {format_value(error.got)}")


def error_at(key: str, error: Exception) -> ConfigError:
    """An error of a part at `key` as a `ConfigError`; one like `alpha = 0.0: expected ...` is
    blamed on `key.alpha`.
    """
    if isinstance(error, InvalidSettingError):
        return refused_setting(key, error)
    named = re.fullmatch(r"(\w+) = ([^=]*): (expected [^:]*)", str(error))
    if named is None:
        return ConfigError(key, str(error))
    name, got, expected = named.groups()
    return ConfigError(f"{key}.{name}", f"{expected}, got {got}")


def _expectation_of(item: Mapping[str, Any]) -> str:
    wanted = EXPECTED.get(item["type"])
    if (
        item["type"] == "int_type"
        and isinstance(given := item.get("input"), float)
        and given.is_integer()
    ):
        return f"a whole number, as in {int(given)}" if abs(given) < 1e15 else "a whole number"
    return wanted.format(**item.get("ctx", {})) if wanted else item["msg"]


def _path(location: tuple[int | str, ...], document: Any, kind: str) -> tuple[str, ...]:
    """The keys of `location` that stand in `document`; pydantic names the branches of unions among
    them.
    """
    path: list[str] = []
    for depth, step in enumerate(location):
        there = step in document if isinstance(document, Mapping) else isinstance(step, int)
        if there and isinstance(document, Mapping | list):
            document = document[step]  # type: ignore[index]
            path.append(str(step))
        elif kind == "missing" and depth == len(location) - 1:
            path.append(str(step))
    return tuple(path)
