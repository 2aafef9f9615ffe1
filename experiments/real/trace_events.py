"""Traces in Chrome's trace event format, repaired where their writers break its rules.

Source: Trace Event Format, Google. An array may lack its closing bracket, and the last event may be
followed by a comma.
"""

import json
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from laggard.experiments.config.errors import ConfigError
from laggard.files import BYTE_ORDER_MARKS, UnreadableFileError, decode, read_bytes

INVALID_ESCAPE = re.compile(r'\\(u(?![0-9a-fA-F]{4})|[^"\\/bfnrtu])')
TRAILING_COMMA = re.compile(r",(\s*[\]}])")
STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
MAX_CUTS = 1000
"""The number of ends of events that are tried, from the end of a file that was cut off."""


def read_trace(path: Path) -> Mapping[str, Any]:
    """The trace in a file, JSON or compressed JSON; a list of events counts as `traceEvents`.

    Repaired, each with a warning: bytes that are not UTF-8, backslashes that JSON does not know,
    trailing commas, and an end that is missing.

    Raises:
        ConfigError: the file cannot be read, or is not a trace; names the file.
    """
    try:
        content = read_bytes(path)
    except UnreadableFileError as error:
        raise ConfigError("", f"cannot be read: {error.reason}", str(path)) from None
    document, repairs = _load(path, content)
    if repairs:
        warnings.warn(f"{path}: repaired {', '.join(repairs)}", stacklevel=2)
    if isinstance(document, list):
        document = {"traceEvents": document}
    if isinstance(document, dict) and isinstance(document.get("traceEvents"), list):
        return document
    problem = "expected a list of events: this is not a Chrome trace"
    raise ConfigError("traceEvents", problem, str(path))


def _time_of(event: Any) -> float:
    """The time of an event; those without one, such as names of processes, come first."""
    moment = event.get("ts") if isinstance(event, dict) else None
    if isinstance(moment, int | float) and math.isfinite(moment):
        return moment
    return -math.inf


def _load(path: Path, content: bytes) -> tuple[Any, list[str]]:
    """The document, and what was repaired in it."""
    repairs = []
    try:
        if any(content.startswith(mark) for mark, _ in BYTE_ORDER_MARKS):
            text = decode(path, content)
        else:
            text = content.decode("utf-8")
    except (UnicodeDecodeError, UnreadableFileError):
        # names in other encodings; the events that count have ASCII names
        text = content.decode("utf-8-sig", errors="replace")
        repairs.append("bytes that are not UTF-8")
    try:
        return _parse_json(text), repairs
    except RecursionError:
        raise ConfigError(
            "", "expected a Chrome trace in JSON: nested too deep", str(path)
        ) from None
    except ValueError as error:
        first_error = error
    # `_close` is the last, since it drops events: other repairs may leave it none to drop
    for repair, what in (
        (_double_backslashes, "backslashes in strings"),
        (_drop_trailing_commas, "trailing commas"),
        (_close, "a missing end"),
    ):
        repaired = repair(text)
        if repaired is None or repaired == text:
            continue
        text = repaired
        repairs.append(what)
        try:
            return _parse_json(text), repairs
        except ValueError:
            continue
    problem = f"expected a Chrome trace in JSON: {first_error}, got {text[:20]!r} ..."
    raise ConfigError("", problem, str(path))


def _parse_json(text: str) -> Any:
    return json.loads(text, strict=False)  # not strict: line ends within strings


def _double_backslashes(text: str) -> str:
    return INVALID_ESCAPE.sub(r"\\\\\1", text)


def _drop_trailing_commas(text: str) -> str:
    """The text without commas before a closing bracket, except those within strings."""
    parts = []
    end = 0
    for string in STRING.finditer(text):
        parts.append(TRAILING_COMMA.sub(r"\1", text[end : string.start()]))
        parts.append(string[0])
        end = string.end()
    parts.append(TRAILING_COMMA.sub(r"\1", text[end:]))
    return "".join(parts)


def _close(text: str) -> str | None:
    """The text up to the last complete event, with the brackets that are missing."""
    start = text.lstrip()[:1]
    closing = "]" if start == "[" else "]}"
    end = len(text)
    for _ in range(MAX_CUTS):
        end = text.rfind("}", 0, end)
        if end < 0:
            return None
        candidate = text[: end + 1] + closing
        try:
            document = _parse_json(candidate)
        except ValueError:
            continue
        if isinstance(document, dict) and "traceEvents" not in document:
            return None
        return candidate
    return None


def complete_events(events: Sequence[Any]) -> Iterator[Mapping[str, Any]]:
    """The events that have a duration: complete ones (`X`), and pairs of a begin and an end.

    Yields:
        Events with `name`, `ts` and `dur` (microseconds), in order of `ts`, which a file need not
        have; a pair stands where its end does. An end with a name ends the last event of that name.
    """
    open_events: dict[tuple[Any, Any], list[Mapping[str, Any]]] = {}
    for event in sorted(events, key=_time_of):
        if not isinstance(event, dict):
            continue
        track = (event.get("pid"), event.get("tid"))
        phase = event.get("ph")
        if phase == "X":
            yield event
        elif phase == "B":
            open_events.setdefault(track, []).append(event)
        elif phase == "E" and open_events.get(track):
            opened = open_events[track]
            names = [begin.get("name") for begin in opened]
            place = len(opened) - 1
            if event.get("name") in names:
                place -= names[::-1].index(event["name"])
            begin = opened.pop(place)
            times = begin.get("ts"), event.get("ts")
            if all(isinstance(time, int | float) for time in times):
                yield {**begin, "dur": event["ts"] - begin["ts"]}
