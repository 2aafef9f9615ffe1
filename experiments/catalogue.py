"""What a config may name: every entry of every table, in one line, or one entry with all that is said of it."""

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from inspect import cleandoc
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from experiments import parts, tasks
from experiments.choice import Choice
from experiments.errors import ConfigError, meant, shown
from experiments.schema import Described

ROOMS = {
    "methods (algorithm.name)": parts.ALGORITHM,
    "laws (cluster.compute.law)": parts.COMPUTE,
    "slowdowns (cluster.slowdowns)": parts.SLOWDOWN,
    "topologies (cluster.network.topology)": parts.NETWORK,
    "compensations (learning.compensation)": parts.COMPENSATION,
    "optimizers (learning.optimizer)": parts.LEARNING,
    "schedules (learning.schedule)": parts.SCHEDULE,
    "models (task.model)": tasks.TASK,
    "data (task.dataset)": tasks.DATASET,
    "partitions (task.partition)": tasks.PARTITION,
}
"""Title -> entries; the title's first word is what the room is called."""
NAMED = re.compile(r"\s+[\w, ]+: ")
"""How an entry's line begins, and an attribute's in a docstring."""


def listing(words: Sequence[str] = ()) -> Iterator[str]:
    """The rooms and entries that `words` name; without any, all rooms.

    Raises:
        ConfigError: a word is neither a room nor an entry.
    """
    rooms = {title.split()[0]: title for title in ROOMS}
    if not words:
        yield from lines(ROOMS)
    for word in words:
        entries = [(title, choice.parts[word]) for title, choice in ROOMS.items() if word in choice.parts]
        if word in rooms:
            yield from lines({rooms[word]: ROOMS[rooms[word]]})
        elif not entries:
            known = [*rooms, *(name for choice in ROOMS.values() for name in choice.parts)]
            hint = meant(word, known) or f"expected one of {', '.join(rooms)}, or a name that one of them lists"
            raise ConfigError("", f"{shown(word)}: nothing is called so; {hint}", "laggard list")
        for title, part in entries:
            yield from whole(word, title, part)


def lines(rooms: Mapping[str, Choice]) -> Iterator[str]:
    """The entries of rooms: name, first sentence, keys with their defaults, and source."""
    for title, choice in rooms.items():
        yield title
        for name, part in choice.parts.items():
            yield f"  {name}: {described(part)}"


def whole(name: str, title: str, part: type[Described]) -> Iterator[str]:
    """All that is said of one entry, and its keys."""
    text = re.sub(r"^(Raises|Example):\n( .*\n?|\n(?= ))*", "", cleandoc(part.__doc__ or ""), flags=re.MULTILINE)
    paragraphs = [""]
    for line in text.strip().splitlines():
        if line and paragraphs[-1] and not (line.startswith(" ") and NAMED.match(line)):
            paragraphs[-1] += f" {line.strip()}"
        else:
            paragraphs.append(line)
    yield f"{name} {title[title.index('(') :]}"
    yield from (f"  {paragraph}".rstrip() for paragraph in paragraphs[1:])
    if keys := _keys(part):
        yield from ("", f"  {keys}")


def described(part: type[Described]) -> str:
    """An entry in one line."""
    text = cleandoc(part.__doc__ or "")
    first = _one_line(re.split(r"(?<=\.)\s|\n\n", text, maxsplit=1)[0])
    source = re.search(r"^Source: (.*?)(?=\n\n|\Z)", text, flags=re.MULTILINE | re.DOTALL)
    return " ".join(piece for piece in (first, _keys(part), source and _one_line(source[0])) if piece)


def wrapped(lines: Iterable[str], width: int) -> Iterator[str]:
    """Lines as a terminal of so many columns shows them best: entries hang below their names, rooms stand apart."""
    for number, line in enumerate(lines):
        indent = line[: len(line) - len(line.lstrip())]
        if number and line and not indent:
            yield ""
        hang = indent + "    " * bool(NAMED.match(line))
        yield from textwrap.wrap(line, width, subsequent_indent=hang, break_long_words=False) or [""]


def _keys(part: type[Described]) -> str:
    """`[required, other = its default]`; where a key takes one of a few values, all of them, the default first."""
    said = [_key(key, field) for key, field in part.model_fields.items() if key in part.settings]
    return f"[{', '.join(said)}]" if said else ""


def _key(key: str, field: FieldInfo) -> str:
    default = [] if field.is_required() else [field.default]
    values = default + [value for value in _values(field.annotation) if value not in default]
    return f"{key} = {' | '.join(map(shown, values))}" if values else key


def _values(hint: Any) -> list[Any]:
    """The values that a type lists, if it does."""
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    return [value for branch in get_args(hint) for value in _values(branch)]


def _one_line(text: str) -> str:
    return " ".join(text.split())
