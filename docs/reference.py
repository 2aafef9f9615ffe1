"""The code's description as Markdown: every key of a config, the methods that use it, and the names
of the packages.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from inspect import cleandoc, isclass, isfunction
from itertools import groupby
from textwrap import dedent, indent
from typing import Any

from equations import is_equation, latex_of

import laggard
import laggard.simulator
from laggard.experiments.config.config import Config
from laggard.experiments.config.errors import format_value
from laggard.experiments.config.listing import (
    MAPPINGS,
    PATHS,
    SECTIONS,
    TABLE_ROW,
    WITH_UNIT,
    ConfigSchema,
)
from laggard.experiments.config.parts import ALGORITHM, NamedChoice
from laggard.experiments.config.schema import Part
from laggard.simulator import Algorithm, Cluster, InvalidSettingError, Timing
from laggard.simulator.errors import HUGE, MOST_COUNT

Schema = Mapping[str, Any]
HEADING = ("key", "type", "default", "unit", "range", "what it says")
UNIT = re.compile(
    r"\((s|bytes|bytes/s|operations/s)\)|\bin (updates|gradients|iterations|pixels|models|`unit`)"
)
SIGNS = {"exclusiveMinimum": ">", "minimum": ">=", "exclusiveMaximum": "<", "maximum": "<="}
USUAL = (MOST_COUNT, HUGE)
"""The limits of counts and of numbers that the page gives once for all."""
WORKERS = 4
LAYERS = Timing(depth=WORKERS).layers()
SERVER_KEYS = (
    *(f"cluster.{key}" for key in ("apply_seconds", "receive_seconds", "reply_seconds")),
    *(f"cluster.network.{key}" for key in ("server_bandwidth", "server_latency", "colocated")),
)


def has_own_models(method: Algorithm) -> bool:
    """Whether several nodes have a whole model each."""
    try:
        method.check_cluster(Cluster(WORKERS))
    except InvalidSettingError:
        return False  # the method takes a single worker
    return len(method.models(WORKERS)) > 1 and not method.slices(WORKERS, WORKERS, LAYERS)


HEEDED: Mapping[str, tuple[Sequence[str], Callable[[Algorithm], bool]]] = {
    "methods with a server": (
        SERVER_KEYS,
        lambda method: any(rank < 0 for rank in method.roles(WORKERS)),
    ),
    "methods whose servers recover": (
        ("cluster.server_crashes", "cluster.checkpoint"),
        lambda method: method.recovers,
    ),
    "methods whose nodes have models of their own": (("evaluate.nodes",), has_own_models),
}
"""The keys of a config that not all methods heed: a name for those that do, the keys, and how to
tell.
"""
VIEWS = "laggard.experiments.results.result.Shown"
"""What `Result` and `Results` have in common."""
EXTENSION = [
    "laggard.simulator.timing.distributions.Distribution",
    "laggard.simulator.timing.slowdowns.Slowdown",
    "laggard.simulator.network.topology.Topology",
    "laggard.simulator.learning.rules.damping.Compensation",
    "laggard.simulator.learning.rules.optimizers.Optimizer",
    "laggard.simulator.learning.rules.schedules.Schedule",
    "laggard.models.Network",
    "laggard.models.Partition",
    "laggard.simulator.testing.check_algorithm",
]
"""The base classes and protocols of plugins, besides an algorithm and a task."""


def fill(text: str) -> str:
    """A page, with `<!-- keys -->` and other comments of that kind replaced by what they name."""
    generated = {"keys": keys, "heeded": heeded, "api": api}
    names = "|".join(generated)  # other comments, as those around a question's numbers, stay
    return re.sub(
        rf"^<!-- ({names}) -->$",
        lambda match: "\n".join(generated[match[1]]()),
        text,
        flags=re.MULTILINE,
    )


def keys() -> Iterator[str]:
    """Every key of a config: those of its mappings, and those of each entry that it may name."""
    config = schema_of(Config)
    yield from table("", config["properties"], config)
    for name in ("cluster", "stop", "evaluate", "record", "tune", "search", "halving"):
        part = schema_of(MAPPINGS[name][0])
        place = PATHS.get(name, name).removesuffix(".KEY")
        yield from ("", f"## {place}", "", *table(place, part["properties"], part))
    for title, choice in SECTIONS.items():
        yield from section(title, choice)


def section(title: str, choice: NamedChoice) -> Iterator[str]:
    """The keys that all entries of a choice have, and each entry with its description and its own
    keys.
    """
    name, place = title.rstrip(")").split(" (")
    places, *more = place.split("; ")
    shown = "; ".join((", ".join(f"`{each}`" for each in places.split(", ")), *more))
    owner = places.split(", ")[0].rpartition(".")[0]
    schemas = {entry: schema_of(part) for entry, part in choice.parts.items()}
    first, *others = schemas.values()
    common = {
        key: described
        for key, described in first["properties"].items()
        if others and all(other["properties"].get(key) == described for other in others)
    }
    yield from (
        "",
        f"(keys-{name})=",
        f"## {name.capitalize()}: {shown}",
        "",
        *table(owner, common, first),
    )
    for entry, part in choice.parts.items():
        own = {
            key: described
            for key, described in schemas[entry]["properties"].items()
            if key not in common
        }
        yield from (
            "",
            f"### {entry}",
            "",
            *description(part),
            "",
            *table(owner, own, schemas[entry]),
        )
    for key, inner in {
        key: inner for schema in schemas.values() for key, inner in nested(schema)
    }.items():
        yield from (
            "",
            f"### `{owner}.{key}`",
            "",
            *table(f"{owner}.{key}", inner["properties"], inner),
        )


def nested(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """The mappings inside of an entry that are no choice of their own, such as a card of the
    network.
    """
    for key, described in schema["properties"].items():
        for name in re.findall(r"'#/\$defs/(\w+)'", str(described)):
            part = {**schema["$defs"][name], "$defs": schema["$defs"]}
            if not any("const" in each for each in part["properties"].values()):
                yield key, part
                yield from ((f"{key}.{inner}", within) for inner, within in nested(part))


def schema_of(part: type[Part]) -> dict[str, Any]:
    """The JSON schema of a part, as `laggard schema` has it."""
    part.model_rebuild()
    return part.model_json_schema(schema_generator=ConfigSchema)


def description(part: type[Part]) -> Iterator[str]:
    """What the docstring of an entry says, without what the table of its keys has."""
    text = cleandoc(part.__doc__ or "")
    text = re.sub(
        r"^(Attributes|Args|Raises|Example):\n( .*\n?|\n(?= ))*", "", text, flags=re.MULTILINE
    )
    for paragraph in text.split("\n\n"):
        for literal, group in groupby(paragraph.splitlines(), is_literal):
            lines = list(group)
            if not literal:
                yield from map(escape_line, lines)
            elif all(map(is_equation, lines)):
                for line in lines:
                    yield from ("", "$$", latex_of(line), "$$", "")
            else:
                yield from ("", *indent(dedent("\n".join(lines)), "    ").splitlines(), "")
        yield ""


def is_literal(line: str) -> bool:
    """Whether a line of a docstring is shown as it stands: one that is indented, or has aligned
    columns.
    """
    return bool(line.startswith("    ") or TABLE_ROW.match(line))


def table(place: str, properties: Schema, schema: Schema) -> list[str]:
    """A row for each key, without empty columns; nothing without keys."""
    rows = [
        row(f"{place}.{key}".lstrip("."), described, schema)
        for key, described in properties.items()
        if "const" not in described
    ]
    columns = [cells for cells in zip(HEADING, *rows, strict=True) if any(cells[1:])]
    lines = zip(*((heading, ":--", *cells) for heading, *cells in columns), strict=True)
    return [
        " | ".join(("", *(re.sub(r"\|", r"\\|", cell) for cell in line), "")).strip()
        for line in lines
    ]


def row(place: str, described: Schema, schema: Schema) -> list[str]:
    """The cells of the key at a dotted place: its name, type, default, unit, range and
    description.
    """
    key, text = place.rpartition(".")[2], described.get("description", "")
    limits = {
        word: limit
        for one in (described, *described.get("anyOf", []))
        for word, limit in one.items()
        if word in SIGNS
    }
    default = f"`{in_yaml(described['default'])}`" if "default" in described else ""
    only = [
        f" Of [{name}](#{name.replace(' ', '-')})."
        for name, (of, _) in HEEDED.items()
        if place in of
    ]
    return [
        f"`{key}`",
        type_of(described, schema),
        "required" if key in schema.get("required", ()) else default,
        next((physical or counted for physical, counted in UNIT.findall(text)), "").strip("`"),
        ", ".join(
            f"{SIGNS[word]} {in_short(limits[word])}"
            for word in SIGNS
            if limits.get(word, HUGE) not in USUAL
        ),
        escape(text) + "." * (not text.endswith(".")) + "".join(only),
    ]


def in_yaml(value: Any) -> str:
    """A default as a config spells it."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {in_yaml(each)}' for key, each in value.items())}}}"
    return value if isinstance(value, str) and value else format_value(value)


def in_short(limit: float) -> str:
    """A limit of a range."""
    return "2^63" if limit == 2**63 else f"{limit:g}"


def type_of(described: Schema, schema: Schema) -> str:
    """The type of a key in words: names of types, values, and the section of the entries that it
    may name.
    """
    if "anyOf" in described:
        found = dict.fromkeys(
            name
            for one in described["anyOf"]
            if one != WITH_UNIT  # the page says it once, of all units
            for name in type_of(one, schema).split(", ")
        )
        return ", ".join(link_entries(list(found)))
    if "$ref" in described:
        target = schema["$defs"][described["$ref"].rpartition("/")[2]]
        return next(
            (f"`{each['const']}`" for each in target["properties"].values() if "const" in each),
            "mapping",
        )
    if "enum" in described:
        return ", ".join(f"`{value}`" for value in described["enum"])
    if "items" in described:
        items = type_of(described["items"], schema) or "values"
        return f"list of ({items})" if ", " in items else f"list of {items}"
    if described.get("pattern") == ":" or any(
        each.get("pattern") for each in described.get("properties", {}).values()
    ):
        return "`module:Name`"
    return "mapping" if described.get("type") == "object" else str(described.get("type", ""))


def link_entries(names: Sequence[str]) -> list[str]:
    """The names, with a link in place of those of all entries of a section."""
    for title, choice in SECTIONS.items():
        entries = {f"`{name}`" for name in choice.parts}
        if entries <= set(names):
            name = title.split()[0]
            return [
                f"one of [{name}](#keys-{name})",
                *(other for other in names if other not in entries),
            ]
    return list(names)


def escape_line(line: str) -> str:
    """A line of a paragraph, in which a sign or a number at the start begins no list."""
    return re.sub(r"^(\d*)([-+.]) ", r"\1\\\2 ", escape(line))


def escape(text: str) -> str:
    """Plain text with code in backticks as Markdown."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(
        piece if piece.startswith("`") else re.sub(r"([*_<$\\[\]])", r"\\\1", piece)
        for piece in pieces
    )


def heeded() -> Iterator[str]:
    """The methods that heed the keys of `HEEDED`."""
    methods = {
        name: part.model_validate({}).build(WORKERS) for name, part in ALGORITHM.parts.items()
    }
    for name, (of, heeds) in HEEDED.items():
        found = ", ".join(f"`{method}`" for method, built in methods.items() if heeds(built))
        yield from (
            "",
            f"### {name.capitalize()}",
            "",
            f"{', '.join(f'`{key}`' for key in of)}: {found}.",
        )


def api() -> Iterator[str]:
    """The names of daily use, those of the simulator, and the kinds of plugins, for autodoc."""
    names = [name for names in laggard.MODULES.values() for name in names]
    names += laggard.simulator.__all__
    names.sort(key=lambda name: (name[0].isupper(), name.lower()))  # functions first
    yield from ("## laggard", "", *directives([*(f"laggard.{name}" for name in names), VIEWS]))
    yield from ("", "## For plugins", "", *directives(EXTENSION))


def documented() -> set[str]:
    """The full names of the classes on that page."""
    names = re.findall(r"\.\. autoclass:: (\S+)", "\n".join(api()))
    things = [
        getattr(import_module(owner), own)
        for owner, _, own in (name.rpartition(".") for name in names)
    ]
    return {f"{thing.__module__}.{thing.__qualname__}" for thing in things}


def directives(names: Iterable[str]) -> Iterator[str]:
    """A directive for each class and function among the names."""
    yield from ("```{eval-rst}", ".. highlight:: none", "")  # equations are no Python
    for name in names:
        owner, _, own = name.rpartition(".")
        thing = getattr(import_module(owner), own)
        if isclass(thing):
            yield from (f".. autoclass:: {name}", "   :members:", "")
        elif isfunction(thing):
            yield from (f".. autofunction:: {name}", "")
    yield "```"
