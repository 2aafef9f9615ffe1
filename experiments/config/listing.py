"""Lists for users and editors: the names in a config with their keys, and the JSON schema.

`laggard new` is here too: a plugin template with a config and a test.
"""

import keyword
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from importlib.util import find_spec
from inspect import cleandoc, isclass
from pathlib import Path
from string import Template
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from laggard.docstrings import describe_keys
from laggard.experiments.config import cluster, parts, task
from laggard.experiments.config.config import Config
from laggard.experiments.config.document import examples, question
from laggard.experiments.config.errors import ConfigError, format_value, suggest, unknown_name
from laggard.experiments.config.installed import describe_owner, installed_plugins
from laggard.experiments.config.load import BASE, SCALES
from laggard.experiments.config.parts import NamedChoice
from laggard.experiments.config.places import MAX_PLACES, places
from laggard.experiments.config.schema import Part
from laggard.experiments.config.search import HALVING, RANGE_KINDS, SearchPart
from laggard.experiments.references import works_of
from laggard.models.generated import RANGES
from laggard.simulator.errors import Settings, limits_of
from laggard.units import quantities_of

SECTIONS = {
    "methods (algorithm.name)": parts.ALGORITHM,
    "laws (cluster.compute.law; each with per and speed)": cluster.COMPUTE,
    "presets (cluster.preset)": cluster.PRESET,
    "slowdowns (cluster.slowdowns)": cluster.SLOWDOWN,
    "failures (cluster.server_crashes, cluster.checkpoint, cluster.members)": cluster.FAILURES,
    "topologies (cluster.network.topology)": cluster.NETWORK,
    "compensations (learning.compensation)": parts.COMPENSATION,
    "clipping (learning.clip)": parts.CLIP,
    "optimizers (learning.optimizer; each with lr and weight_decay)": parts.LEARNING,
    "schedules (learning.schedule; several in a list multiply)": parts.SCHEDULE,
    "models (task.model)": task.TASK,
    "data (task.dataset)": task.DATASET,
    "partitions (task.partition)": task.PARTITION,
    "losses (task.loss; each with a regularizer)": task.LOSS,
}
"""Title -> entries; the title's first word is the name of the section."""
MAPPINGS: Mapping[str, Sequence[type[Part]]] = {
    "config": [Config],
    "cluster": [cluster.ClusterPart],
    "stop": [parts.StopPart],
    "evaluate": [parts.EvaluatePart],
    "record": [parts.RecordPart],
    "tune": [parts.TunePart],
    "search": [SearchPart],
    "halving": [HALVING],
    "network": list(cluster.NETWORK.parts.values()),
    "learning": list(parts.LEARNING.parts.values()),
    "compress": [parts.CompressPart],
    "heloco": [parts.HeLoCoPart],
    "cgad": [parts.CGADPart],
    "task": [part for part in task.TASK.parts.values() if issubclass(part, task.SupervisedPart)],
}
"""Mapping of a config -> the parts that may fill it; it is listed with their common keys."""
PATHS = {
    "config": "KEY",
    "network": "cluster.network.KEY",
    "compress": "algorithm.compress.KEY",
    "heloco": "algorithm.heloco.KEY",
    "cgad": "algorithm.cgad.KEY",
    "search": "sweep.search.KEY",
    "halving": "sweep.search.halving.KEY",
}
KEY = re.compile(r"\b(?:algorithm|(?:cluster|learning|task)\.[a-z_.]+)")
ATTRIBUTE_LINE = re.compile(r"\s+[\w, .-]+: ")
TABLE_ROW = re.compile(r".*\S {2,}\S")
"""A line of an attribute, and a row of a table, in a docstring."""


def describe_entries(words: Sequence[str] = ()) -> Iterator[str]:
    """Lines on the sections, entries and mappings in `words`; by default on all sections.

    Raises:
        ConfigError: a word is none of them.
    """
    titles = _names_of_sections()
    if not words:
        yield from _section_lines(SECTIONS)
    for word in words:
        if word == "examples":
            yield from _example_lines()
        elif word in MAPPINGS:
            yield from _mapping_lines(word)
        elif word in titles:
            yield from _section_lines([titles[word]])
        else:
            for title, part in find_entries(word, [*titles, *MAPPINGS]):
                yield from _entry_lines(word, title, part)


def _names_of_sections() -> dict[str, str]:
    """The names that a user may call a section by -> its title.

    Laws are `laws`, and by their place in a config `law`, `compute` and `cluster.compute`.
    """
    names: dict[str, str] = {}
    for title, choice in SECTIONS.items():
        for key in KEY.findall(title):
            owner, _, word = key.rpartition(".")
            places_of_key = [key, word]
            if word == choice.tag and "." in owner:
                places_of_key += [owner, owner.rpartition(".")[2]]
            names |= dict.fromkeys(places_of_key, title)
    return names | {title.split()[0]: title for title in SECTIONS}


def find_entries(name: str, sections: Iterable[str]) -> list[tuple[str, type[Part]]]:
    """The entries called `name`, each with the title of its section.

    Raises:
        ConfigError: the name is unknown; suggests an entry or one of `sections`.
    """
    entries = [
        (title, choice.parts[name]) for title, choice in SECTIONS.items() if name in choice.parts
    ]
    if not entries:
        problem = f"{format_value(name)}: unknown name; {_hint(name, list(sections))}"
        raise ConfigError("", problem, "laggard list")
    return entries


def _hint(name: str, sections: Sequence[str]) -> str:
    """The remedy for a name that no section or entry has."""
    keys = places(Config).get(name.rpartition(".")[2], {})
    if keys:
        return f"it is a key, {' or '.join(list(keys)[:MAX_PLACES])}: `laggard schema` describes it"
    for mapping, mapped in MAPPINGS.items():
        if any(name in _choices(part) for part in mapped):
            return f"see `laggard list {mapping}`"
    is_term = " " in name or "_" in name  # a term of the field, such as direct all-reduce
    known = [*sections, *(entry for choice in SECTIONS.values() for entry in choice.parts)]
    spelling = suggest(name, known)
    if spelling and not is_term:
        return spelling
    words = re.compile(rf"\b{re.escape(name)}\b", re.IGNORECASE)
    for choice in SECTIONS.values():
        for entry, part in choice.parts.items():
            if words.search(_one_line(part.__doc__ or "")):
                return f"see `laggard list {entry}`"
    if spelling:
        return spelling
    return f"expected one of {', '.join(sections)}, or a name that `laggard list` shows"


def _choices(part: type[Part]) -> set[Any]:
    """The words that keys of a mapping may have as values."""
    words: set[Any] = set()
    for field in part.model_fields.values():
        words |= set(_literal_values(field.annotation))
    return words


def _example_lines() -> Iterator[str]:
    yield "examples (laggard list example:NAME prints one, laggard run example:NAME runs it)"
    for name, file in examples().items():
        yield f"  {name}: {question(file)}"


def _mapping_lines(name: str) -> Iterator[str]:
    """The keys of a mapping, each with its default and meaning."""
    first, *others = MAPPINGS[name]
    meanings = describe_keys(*first.describes, first, first.recipe)
    yield f"{name} ({PATHS.get(name, f'{name}.KEY')})"
    for key, field in first.model_fields.items():
        meaning = field.description or meanings.get(key)
        is_common = all(key in part.model_fields for part in others)
        if meaning and is_common and not key.endswith("_sha256"):
            yield f"  {_key(key, field)}: {meaning}"


def _section_lines(titles: Iterable[str]) -> Iterator[str]:
    """The entries of sections: name, first sentence, keys with their defaults, and source."""
    for title in titles:
        yield title
        choice = SECTIONS[title]
        for name, part in choice.parts.items():
            yield f"  {name}: {describe_entry(part)}"
        for entry in installed_plugins(choice.kinds):
            yield f"  {entry.name}: {entry.value}, of {describe_owner(entry)}"


def _entry_lines(name: str, title: str, part: type[Part]) -> Iterator[str]:
    """The full description of one entry, its keys, and the works that it names."""
    docstring = cleandoc(part.__doc__ or "")
    text = re.sub(r"^(Raises|Example):\n( .*\n?|\n(?= ))*", "", docstring, flags=re.MULTILINE)
    paragraphs = [""]
    for line in text.strip().splitlines():
        is_attribute = line.startswith(" ") and ATTRIBUTE_LINE.match(line)
        is_row = TABLE_ROW.match(line) or TABLE_ROW.match(paragraphs[-1])
        if line and paragraphs[-1] and not is_attribute and not is_row:
            paragraphs[-1] += f" {line.strip()}"
        else:
            paragraphs.append(line)
    yield f"{name} {title[title.index('(') :]}"
    for paragraph in paragraphs[1:]:
        yield f"  {paragraph}".rstrip()
    keys = _keys(part)
    if keys:
        yield from ("", f"  {keys}")
    works = works_of(part.__doc__ or "")
    if works:
        yield ""
    for work in works:
        yield f"  {work}"


def describe_entry(part: type[Part]) -> str:
    """The first sentence, the keys and the source of an entry, in one line."""
    text = cleandoc(part.__doc__ or "")
    first_sentence = re.split(r"(?<=\.)\s|\n\n", text, maxsplit=1)[0]
    pieces = [_one_line(first_sentence), _keys(part)]
    source = re.search(r"^Source: (.*?)(?=\n\n|\Z)", text, flags=re.MULTILINE | re.DOTALL)
    if source:
        pieces.append(_one_line(source[0]))
    return " ".join(filter(None, pieces))


def wrap(lines: Iterable[str], width: int) -> Iterator[str]:
    """Lines wrapped to `width` columns, with blank lines between sections."""
    for number, line in enumerate(lines):
        indent = line[: len(line) - len(line.lstrip())]
        if number and line and not indent:
            yield ""
        if ATTRIBUTE_LINE.match(line):
            indent += "    "
        wrapped = textwrap.wrap(
            line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
        yield from wrapped or [""]


def _keys(part: type[Part]) -> str:
    """`[required, other = its default]`; a key of few values shows all, the default first."""
    keys = [_key(key, field) for key, field in part.model_fields.items() if key in part.settings]
    if not keys:
        return ""
    return f"[{', '.join(keys)}]"


def _key(key: str, field: FieldInfo) -> str:
    values = []
    if not field.is_required():
        values.append(field.default)
    for value in _literal_values(field.annotation):
        if value not in values:
            values.append(value)
    if not values:
        return key
    return f"{key} = {' | '.join(map(format_value, values))}"


def _literal_values(hint: Any) -> list[Any]:
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    return [value for branch in get_args(hint) for value in _literal_values(branch)]


def _one_line(text: str) -> str:
    return " ".join(text.split())


# --- the JSON schema

DIALECT = "https://json-schema.org/draft/2020-12/schema"
JSON_LIMITS = {
    "above": "exclusiveMinimum",
    "least": "minimum",
    "below": "exclusiveMaximum",
    "most": "maximum",
}
"""The limits of a range, as JSON schema calls them."""
WITH_UNIT = {
    "type": "string",
    "pattern": r"^\s*[-+.\d]+(e[-+]?\d+)?\s*\D",
    "description": "with its unit",
}
SEARCH = "dotted key -> the range that it is drawn from, instead of a grid's values"


class ConfigSchema(GenerateJsonSchema):
    """Pydantic's generator, which also looks into choices and into docstrings."""

    def model_schema(self, schema: Any) -> JsonSchemaValue:
        part = schema["cls"]
        json_schema = super().model_schema(schema)
        properties = json_schema.get("properties", {})
        meanings = describe_keys(*part.describes, part, part.recipe)
        limits = limits_of_keys(part.recipe)
        quantities = quantities_of(*part.describes, part.recipe)
        for key, value in properties.items():
            value |= limits.get(key, {})
            if key in meanings:
                value.setdefault("description", meanings[key])
            if key in quantities and "anyOf" in value:
                value["anyOf"].append(WITH_UNIT)
            elif key in quantities:
                value["anyOf"] = [{"type": value.pop("type")}, WITH_UNIT]
        if part is cluster.ClusterPart:  # expanded before the keys are parsed
            presets = {"enum": list(cluster.PRESETS), "description": "a cluster by name"}
            properties["preset"] = presets
        return json_schema

    def function_plain_schema(self, schema: Any) -> JsonSchemaValue:
        """Any part of a choice, or a plugin, which has a colon in its name and its own keys."""
        choice: NamedChoice = schema["function"]["function"].__self__
        forms: list[JsonSchemaValue] = []
        if float in choice.also:
            forms += [{"type": "number"}, WITH_UNIT]
        if type(None) in choice.also:
            forms.append({"type": "null"})
        for part in choice.parts.values():
            part.model_rebuild()
            forms.append(self.generate_inner(part.__pydantic_core_schema__))
        plugin = {"type": "string", "pattern": ":"}
        properties = {choice.tag: plugin}
        forms.append({"type": "object", "properties": properties, "required": [choice.tag]})
        if choice.tag == "name":
            forms += [{"enum": list(choice.parts)}, plugin]
        return {"anyOf": forms}

    def tagged_union_schema(self, schema: Any) -> JsonSchemaValue:
        return {"anyOf": super().tagged_union_schema(schema)["oneOf"]}


def config_schema() -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of a config: keys, types, ranges and defaults."""
    schema = Config.model_json_schema(schema_generator=ConfigSchema)
    search = _search_schema()
    schema["$defs"] |= search.pop("$defs")
    for part in [search, *schema["$defs"].values()]:
        part.pop("required", None)  # a key may be swept, or stand in the base
    schema["properties"]["sweep"]["properties"] = {"search": search}
    base = {"type": "string", "description": "the config that this one changes"}
    schema["properties"][BASE] = base
    changes = {"type": "object", "description": "name -> dotted keys that `--scale NAME` changes"}
    schema["properties"][SCALES] = changes
    return {"$schema": DIALECT, **schema}


def _search_schema() -> dict[str, Any]:
    """The JSON schema of `sweep.search`."""
    ends = {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}
    kinds: dict[str, Any] = dict.fromkeys(RANGE_KINDS, ends)
    kinds["choice"] = {"type": "array", "minItems": 1}
    limits = {
        "type": "object",
        "properties": kinds,
        "additionalProperties": False,
        "minProperties": 1,
    }
    schema: dict[str, Any] = SearchPart.model_json_schema(schema_generator=ConfigSchema)
    return {**schema, "additionalProperties": limits, "description": SEARCH}


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


# --- templates of plugins

TEMPLATES = Path(str(files("laggard.experiments"))) / "templates"


def new(kind: str, name: str, folder: str | Path = ".") -> Sequence[Path]:
    """Write a plugin template `<name>.py`, with `<name>.yaml` and `test_<name>.py`; all run.

    Args:
        kind: algorithm, compensation, dataset, law, model or topology.
        name: the name of the module, in snake case. Its class has the same name in CamelCase, a
            data set's function the name itself.

    Raises:
        ConfigError: the kind is unknown, the name is invalid, or one of the files exists already.
        OSError: the folder cannot be written.
    """
    kinds = sorted(path.name for path in TEMPLATES.iterdir() if path.is_dir())
    if kind not in kinds:
        raise unknown_name("KIND", kind, kinds).relocate(where="laggard new")
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) or keyword.iskeyword(name):
        problem = f"expected a name in snake case, as my_{kind}, got {name!r}"
        raise ConfigError("NAME", problem, "laggard new")
    # the module first
    sources = sorted((TEMPLATES / kind).glob("*.txt"), key=lambda path: path.name != "name.py.txt")
    targets = {Path(folder) / source.stem.replace("name", name): source for source in sources}
    for target in targets:
        if target.exists():
            raise ConfigError("", "exists already: nothing is written", str(target))
    if find_spec(name) is not None:
        problem = f"there is a module {name} already: choose another name, as my_{name}"
        raise ConfigError("NAME", problem, "laggard new")
    class_name = "".join(word.capitalize() for word in name.split("_"))
    for target, source in targets.items():
        template = Template(source.read_text(encoding="utf-8"))
        with target.open("x", encoding="utf-8") as file:
            file.write(template.substitute({"name": name, "Class": class_name}))
    return list(targets)
