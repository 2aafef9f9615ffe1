"""Errors of configs in one line: the place, what was expected, what came, and a suggestion."""

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
UNEXPECTED = (ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError)
"""Errors that a part may raise when it is built from values out of range: errors of the config."""
SYNONYMS = {"learning_rate": "lr", "step_size": "lr", "world_size": "workers"}
"""Names that other tools have for a key and that do not resemble it."""
MAX_VALUE_TEXT = 160
UNKNOWN_KEY = "unknown key"


class ConfigError(ValueError):
    """A config that cannot be run; its text is one line.

    Attributes:
        key: the dotted key at fault; empty where the whole file is.
        problem: what was expected, and what came.
        where: the file, if known.
        others: further problems of the same config.
    """

    def __init__(
        self, key: str, problem: str, where: str = "", others: "Iterable[ConfigError]" = ()
    ) -> None:
        super().__init__(printable(": ".join(part for part in (where, key[:200], problem) if part)))
        self.key = key
        self.problem = problem
        self.where = where
        self.others = tuple(others)

    def relocate(self, *, key: str | None = None, where: str | None = None) -> "ConfigError":
        """A copy of this error with another key or file; `others` get the file too."""
        if key is None:
            key = self.key
        if where is None:
            where = self.where
        others = [other.relocate(where=where) for other in self.others]
        return ConfigError(key, self.problem, where, others)


def describe_failure(error: BaseException) -> str:
    """An error in one line, as `cannot be built: MemoryError: ...`."""
    text = f"cannot be built: {type(error).__name__}"
    first_line = str(error).strip().partition("\n")[0]
    if first_line:
        text = f"{text}: {first_line:.200}"
    return text


def error_line(error: BaseException) -> str:
    """An error in one line: its kind and text; of a file that cannot be used, its name and why.

    Example:
        >>> error_line(OSError(28, "No space left on device", "updates.parquet"))
        'updates.parquet: No space left on device'
        >>> error_line(ZeroDivisionError("division by zero"))
        'ZeroDivisionError: division by zero'
    """
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def unknown_key(key: str, known: Iterable[str]) -> ConfigError:
    """The refusal of an unknown key, with the key that was probably meant."""
    hint = suggest(key, known) or f"expected one of {', '.join(known)}"
    return ConfigError(key, f"{UNKNOWN_KEY}; {hint}")


def unknown_name(key: str, got: object, known: Iterable[str]) -> ConfigError:
    """The refusal of an unknown name, with the name that was probably meant."""
    problem = f"expected one of {', '.join(known)}, got {format_value(got)}"
    hint = suggest(str(got), known)
    name = got.get("name") if isinstance(got, dict) else None
    is_plugin = isinstance(name, str) and ":" in name
    if isinstance(got, dict) and (is_plugin or name in list(known)):
        hint = f"write {key}: {got['name']}, with its keys beside it"
    if hint:
        problem = f"{problem}; {hint}"
    return ConfigError(key, problem)


def suggest(word: str, known: Iterable[str]) -> str:
    """`did you mean ...?`, or an empty text if no known word is close.

    Example:
        >>> suggest("every", ["every_epochs", "every_updates", "nodes"])
        'did you mean every_epochs or every_updates?'
    """
    words = list(known)
    matches = difflib.get_close_matches(word, words, n=1)
    if SYNONYMS.get(word) in words:
        matches = [SYNONYMS[word]]
    if not matches:  # `every` of every_epochs, every_updates, ...
        matches = [name for name in words if word and name.startswith(f"{word}_")]
    if not matches:
        return ""
    return f"did you mean {' or '.join(matches)}?"


def printable(text: str) -> str:
    r"""A text in one line, with line breaks, escapes and other control characters spelt out.

    Example:
        >>> print(printable("two\nlines, \x1b[31mred"))
        two\nlines, \x1b[31mred
    """
    if text.isprintable():
        return text
    characters = []
    for character in text:
        if not character.isprintable():
            character = character.encode("unicode_escape").decode()
        characters.append(character)
    return "".join(characters)


def format_value(value: object) -> str:
    """A value as a config would spell it, cut where it is long.

    Example:
        >>> format_value(True), format_value(None), format_value("1e-3"), format_value(17)
        ('true', 'null', "'1e-3'", '17')
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    text = " ".join(repr(value).split())
    if len(text) > MAX_VALUE_TEXT:
        text = f"{text[: MAX_VALUE_TEXT - 3]}..."
    return text


def translate_error(
    error: ValidationError, document: Mapping[str, Any], place: str = ""
) -> ConfigError:
    """The problems that pydantic has with `document`, each under its dotted key: the first one,
    with the others.

    Args:
        place: the dotted key of the document.
    """
    problems: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for item in error.errors(include_url=False):
        path = _path(item["loc"], document, item["type"])
        problems.setdefault(path, []).append(item)
    translated = []
    for path, items in problems.items():
        # where an item of a list is wrong, the types that are no lists report a problem too
        if any(len(other) > len(path) and other[: len(path)] == path for other in problems):
            continue
        key = ".".join(filter(None, (place, *path)))
        translated.append(_translate(key, items))
    first, *others = translated
    return ConfigError(first.key, first.problem, first.where, others)


def _translate(key: str, items: Sequence[Mapping[str, Any]]) -> ConfigError:
    """The problem at one key; there are several items where its type is a union."""
    first = items[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, ConfigError):
        return cause.relocate(key=".".join(filter(None, (key, cause.key))))
    if first["type"] == "missing":
        return ConfigError(key, "missing: it has no default")
    if cause is not None:
        return error_at(key, cause)
    expected = dict.fromkeys(map(_expectation, items))  # one per branch of a union
    got = format_value(first["input"])
    return ConfigError(key, f"expected {' or '.join(expected)}, got {got}")


def refused_setting(owner: str, error: InvalidSettingError) -> ConfigError:
    """The error of a setting that the part at `owner` does not accept."""
    key = ".".join(filter(None, (owner, error.field)))
    return ConfigError(key, f"expected {error.expected}, got {format_value(error.got)}")


def error_at(key: str, error: Exception) -> ConfigError:
    """An error of a part at `key` as a `ConfigError`.

    An error like `alpha = 0.0: expected ...` is reported under `key.alpha`.
    """
    if isinstance(error, InvalidSettingError):
        return refused_setting(key, error)
    match = re.fullmatch(r"(\w+) = ([^=]*): (expected [^:]*)", str(error))
    if match is None:
        return ConfigError(key, str(error))
    name, got, expected = match.groups()
    return ConfigError(f"{key}.{name}", f"{expected}, got {got}")


def _expectation(item: Mapping[str, Any]) -> str:
    kind, value = item["type"], item.get("input")
    if kind == "int_type" and isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return f"a whole number, as in {int(value)}"
    if kind in EXPECTED:
        return EXPECTED[kind].format(**item.get("ctx", {}))
    return str(item["msg"])


def _path(location: tuple[int | str, ...], document: Any, kind: str) -> tuple[str, ...]:
    """The keys of `location` that occur in `document`, without the names of union branches that
    pydantic adds.
    """
    path: list[str] = []
    for step in location:
        if isinstance(document, Mapping):
            has_step = step in document
        else:
            has_step = isinstance(document, list) and isinstance(step, int)
        if has_step:
            document = document[step]
            path.append(str(step))
    if kind == "missing":  # the last key is missing in the document
        path.append(str(location[-1]))
    return tuple(path)
