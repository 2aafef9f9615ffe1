"""What a config may name, and `laggard new`: an entry of one's own with a config and a test."""

import keyword
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from importlib.util import find_spec
from inspect import cleandoc
from pathlib import Path
from string import Template
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from laggard.experiments.config import clusters, datasets, parts, tasks
from laggard.experiments.config.config import Config
from laggard.experiments.config.documents import examples
from laggard.experiments.config.editors import describe_keys
from laggard.experiments.config.errors import ConfigError, format_value, suggest, unknown_name
from laggard.experiments.config.load import question
from laggard.experiments.config.parts import NamedChoice
from laggard.experiments.config.schema import Described, Part
from laggard.experiments.references import works_of

SECTIONS = {
    "methods (algorithm.name)": parts.ALGORITHM,
    "laws (cluster.compute.law)": clusters.COMPUTE,
    "presets (cluster.preset)": clusters.PRESET,
    "slowdowns (cluster.slowdowns)": clusters.SLOWDOWN,
    "failures (cluster.server_crashes, cluster.checkpoint)": clusters.FAILURES,
    "topologies (cluster.network.topology)": clusters.NETWORK,
    "compensations (learning.compensation)": parts.COMPENSATION,
    "clipping (learning.clip)": parts.CLIP,
    "optimizers (learning.optimizer; each with lr and weight_decay)": parts.LEARNING,
    "schedules (learning.schedule; several in a list multiply)": parts.SCHEDULE,
    "models (task.model)": tasks.TASK,
    "data (task.dataset)": datasets.DATASET,
    "partitions (task.partition)": datasets.PARTITION,
    "losses (task.loss; each with a regularizer)": tasks.LOSS,
}
"""Title -> entries; the title's first word is the name of the section."""
MAPPINGS: Mapping[str, Sequence[type[Part]]] = {
    "config": [Config],
    **{
        key: [Config.model_fields[key].metadata[0].func.model]
        for key in ("cluster", "stop", "evaluate", "record")
    },
    "network": list(clusters.NETWORK.parts.values()),
    "learning": list(parts.LEARNING.parts.values()),
    "task": [part for part in tasks.TASK.parts.values() if issubclass(part, tasks.SupervisedPart)],
}
"""What holds keys -> the parts that may fill it, whose common keys are its own."""
KEY = re.compile(r"\b(?:algorithm|(?:cluster|learning|task)\.[a-z_.]+)")
ATTRIBUTE_LINE = re.compile(r"\s+[\w, .-]+: ")
TABLE_ROW = re.compile(r".*\S {2,}\S")
"""How an entry's line begins, and an attribute's in a docstring."""


def describe_entries(words: Sequence[str] = ()) -> Iterator[str]:
    """Lines on the sections, entries and mappings that `words` name; without any, on all sections.

    Raises:
        ConfigError: a word is none of them.
    """
    keys = {key.rpartition(".")[2]: title for title in SECTIONS for key in KEY.findall(title)}
    sections = keys | {title.split()[0]: title for title in SECTIONS}
    if not words:
        yield from lines(SECTIONS)
    for word in words:
        if word == "examples":
            yield from describe_examples()
        elif word in MAPPINGS:
            yield from describe_mapping(word)
        elif word in sections:
            yield from lines({sections[word]: SECTIONS[sections[word]]})
        else:
            for title, part in find_entries(word, "laggard list", [*sections, *MAPPINGS]):
                yield from describe_fully(word, title, part)


def find_entries(
    name: str, command: str, sections: Iterable[str] = ()
) -> list[tuple[str, type[Described]]]:
    """The entries called `name`, each with the title of its section.

    Raises:
        ConfigError: there is none; names the `command`, and what is called like it, also among
            `sections`.
    """
    entries = [
        (title, choice.parts[name]) for title, choice in SECTIONS.items() if name in choice.parts
    ]
    if not entries:
        known = [*sections, *(each for choice in SECTIONS.values() for each in choice.parts)]
        names = f"expected one of {', '.join(sections)}, or" if sections else "expected"
        hint = suggest(name, known) or f"{names} a name that `laggard list` shows"
        raise ConfigError("", f"{format_value(name)}: nothing is called so; {hint}", command)
    return entries


def describe_examples() -> Iterator[str]:
    """The configs that laggard brings, which any command takes as `example:NAME`, and the question
    of each.
    """
    yield "examples (laggard run example:NAME, or base: example:NAME)"
    for name, file in examples().items():
        yield f"  {name}: {question(file)}"


def describe_mapping(name: str) -> Iterator[str]:
    """The keys of a mapping, each with its default and what it means."""
    first, *others = MAPPINGS[name]
    meanings = describe_keys(first) | {
        key: of.description for key, of in first.model_fields.items() if of.description
    }
    yield f"{name} ({ {'config': 'KEY', 'network': 'cluster.network.KEY'}.get(name, f'{name}.KEY') })"
    for key, field in first.model_fields.items():
        if (
            key in meanings
            and not key.endswith("_sha256")
            and all(key in part.model_fields for part in others)
        ):
            yield f"  {_key(key, field)}: {meanings[key]}"


def lines(sections: Mapping[str, NamedChoice]) -> Iterator[str]:
    """The entries of sections: name, first sentence, keys with their defaults, and source."""
    for title, choice in sections.items():
        yield title
        for name, part in choice.parts.items():
            yield f"  {name}: {describe_entry(part)}"


def describe_fully(name: str, title: str, part: type[Described]) -> Iterator[str]:
    """The full description of one entry, and its keys."""
    text = re.sub(
        r"^(Raises|Example):\n( .*\n?|\n(?= ))*",
        "",
        cleandoc(part.__doc__ or ""),
        flags=re.MULTILINE,
    )
    paragraphs = [""]
    for line in text.strip().splitlines():
        of_its_own = TABLE_ROW.match(line) or (line.startswith(" ") and ATTRIBUTE_LINE.match(line))
        if line and paragraphs[-1] and not of_its_own and not TABLE_ROW.match(paragraphs[-1]):
            paragraphs[-1] += f" {line.strip()}"
        else:
            paragraphs.append(line)
    yield f"{name} {title[title.index('(') :]}"
    yield from (f"  {paragraph}".rstrip() for paragraph in paragraphs[1:])
    if keys := _keys(part):
        yield from ("", f"  {keys}")
    if works := works_of(part.__doc__ or ""):
        yield from ("", *(f"  {work}" for work in works))


def describe_entry(part: type[Described]) -> str:
    """An entry in one line."""
    text = cleandoc(part.__doc__ or "")
    first = _one_line(re.split(r"(?<=\.)\s|\n\n", text, maxsplit=1)[0])
    source = re.search(r"^Source: (.*?)(?=\n\n|\Z)", text, flags=re.MULTILINE | re.DOTALL)
    return " ".join(
        piece for piece in (first, _keys(part), source and _one_line(source[0])) if piece
    )


def wrap(lines: Iterable[str], width: int) -> Iterator[str]:
    """Lines wrapped to `width` columns: continuation lines are indented, sections separated by
    blank lines.
    """
    for number, line in enumerate(lines):
        indent = line[: len(line) - len(line.lstrip())]
        if number and line and not indent:
            yield ""
        hang = indent + "    " * bool(ATTRIBUTE_LINE.match(line))
        yield from textwrap.wrap(
            line, width, subsequent_indent=hang, break_long_words=False, break_on_hyphens=False
        ) or [""]


def _keys(part: type[Described]) -> str:
    """`[required, other = its default]`; where a key takes one of a few values, all of them, the
    default first.
    """
    said = [_key(key, field) for key, field in part.model_fields.items() if key in part.settings]
    return f"[{', '.join(said)}]" if said else ""


def _key(key: str, field: FieldInfo) -> str:
    default = [] if field.is_required() else [field.default]
    values = default + [
        value for value in _default_values(field.annotation) if value not in default
    ]
    return f"{key} = {' | '.join(map(format_value, values))}" if values else key


def _default_values(hint: Any) -> list[Any]:
    """The values that a type lists, if it does."""
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    return [value for branch in get_args(hint) for value in _default_values(branch)]


def _one_line(text: str) -> str:
    return " ".join(text.split())


TEMPLATES = Path(str(files("laggard.experiments"))) / "templates"


def new(kind: str, name: str, folder: str | Path = ".") -> Sequence[Path]:
    """Write `<name>.py`, `<name>.yaml` and `test_<name>.py` into `folder`; they run as they are.

    Args:
        kind: algorithm, compensation, dataset, law, model or topology.
        name: of the module, in snake case; its class is called the same in CamelCase, a data set's
            function as it is.

    Raises:
        ConfigError: there is no such kind, the name is invalid, or one of the files exists already.
        OSError: the folder cannot be written.
    """
    kinds = sorted(path.name for path in TEMPLATES.iterdir() if path.is_dir())
    if kind not in kinds:
        raise unknown_name("KIND", kind, kinds).relocate(where="laggard new")
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) or keyword.iskeyword(name):
        raise ConfigError(
            "NAME", f"expected a name in snake case, as my_{kind}, got {name!r}", "laggard new"
        )
    sources = sorted((TEMPLATES / kind).glob("*.txt"), key=lambda path: path.name != "name.py.txt")
    files = {Path(folder) / source.stem.replace("name", name): source for source in sources}
    for file in files:
        if file.exists():
            raise ConfigError("", "exists already: nothing is written", str(file))
    if find_spec(name) is not None:
        raise ConfigError(
            "NAME",
            f"there is a module {name} already: choose another name, as my_{name}",
            "laggard new",
        )
    words = {"name": name, "Class": "".join(word.capitalize() for word in name.split("_"))}
    for file, source in files.items():
        with file.open("x", encoding="utf-8") as text:
            text.write(Template(source.read_text(encoding="utf-8")).substitute(words))
    return list(files)
