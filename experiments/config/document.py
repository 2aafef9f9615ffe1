"""Documents: bounded YAML, dotted keys, and the files of configs.

A document holds mappings, lists, strings, numbers, booleans and null only. Its size is bounded, so
that any text is read or refused at once.
"""

import io
import re
from collections.abc import Mapping
from copy import deepcopy
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any
from unicodedata import category

from ruamel.yaml import YAML
from ruamel.yaml.constructor import ConstructorError, SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from laggard.experiments.config.errors import ConfigError, format_value, suggest

MAX_TEXT = 100_000  # characters, which are parsed in seconds
MAX_VALUES = 100_000  # with every alias expanded
MAX_LEVELS = 100
TOO_DEEP = f"expected at most {MAX_LEVELS} levels, got more"
REFUSED_TAGS = {
    f"tag:yaml.org,2002:{name}": name for name in ("binary", "omap", "pairs", "set", "timestamp")
}
EXAMPLE = "example:"


def parse_yaml(text: str, where: str) -> Any:
    """The value of YAML 1.2 `text`: 1e-3 is a number, `yes` a string.

    Raises:
        ConfigError: no YAML, a type that is refused, too large, or a key named twice; with its
            place.
    """
    if len(text) > MAX_TEXT:
        problem = f"expected at most {MAX_TEXT:,} characters, got more: is it a config?"
        raise ConfigError("", problem, where)
    # Many brackets in a row are slow to parse, so they are refused before.
    if any(len(re.findall(r"[\[{]", piece)) > MAX_LEVELS for piece in re.split(r"[\]}]", text)):
        raise ConfigError("", TOO_DEEP, where)
    try:
        return deepcopy(_value_of(text))  # callers change it
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = ""
        if mark:
            place = f"line {mark.line + 1}, column {mark.column + 1}"
        problem = error.problem or error.context or "not YAML"
        raise ConfigError(place, problem.split(" (original")[0], where) from None
    except RecursionError:
        raise ConfigError("", TOO_DEEP, where) from None
    except (YAMLError, ValueError) as error:
        raise ConfigError("", f"not YAML: {str(error).splitlines()[0]}", where) from None


@lru_cache(maxsize=256)
def _value_of(text: str) -> Any:
    """The value of `text`, cached: parsing is half of the time of `load`, and most texts recur."""
    yaml = YAML(typ="safe", pure=True)
    yaml.Constructor = BoundedConstructor
    return yaml.load(text)


def text_of(document: Mapping[str, Any]) -> str:
    """`document` as YAML, in its own order, with short lists and mappings on one line."""
    yaml = YAML()
    yaml.default_flow_style = None
    yaml.width = 120
    stream = io.StringIO()
    yaml.dump(document, stream)
    return stream.getvalue()


class BoundedConstructor(SafeConstructor):
    """Constructs plain values of bounded size; refuses others with their line and column."""

    def construct_document(self, node: Node) -> Any:
        _count_values(node, 1, {})
        return super().construct_document(node)

    def construct_object(self, node: Node, deep: bool = False) -> Any:
        try:
            value = super().construct_object(node, deep)
        except (KeyError, TypeError, ValueError, OverflowError):
            problem = f"expected a value of its tag {node.tag}, got {node.value!r:.80}"
            raise _refusal(node, problem) from None
        if isinstance(value, int) and abs(value) > 2**64:
            problem = f"expected a whole number of at most 64 bits, got {node.value:.40}..."
            raise _refusal(node, problem)
        if isinstance(value, str) and any(map(_is_control, value)):
            raise _refusal(node, f"expected text without control characters, got {value!r:.80}")
        return value


def _is_control(character: str) -> bool:
    return category(character) in ("Cc", "Cs") and character not in "\t\n\r"


def _count_values(node: Node, level: int, counts: dict[int, int]) -> int:
    """The number of values of a node, aliases expanded: merging and printing would expand them."""
    # a count of 0 marks a node under way: an alias within it stands for the node itself
    if counts.get(id(node)) == 0 or level > MAX_LEVELS:
        raise _refusal(node, TOO_DEEP)
    if id(node) in counts:
        return counts[id(node)]
    if node.tag in REFUSED_TAGS:
        problem = "expected text, a number, a list or a mapping"
        raise _refusal(node, f"{problem}, got a {REFUSED_TAGS[node.tag]}: quote text")
    counts[id(node)] = 0
    parts: list[Node] = []
    if isinstance(node, SequenceNode):
        parts = node.value
    elif isinstance(node, MappingNode):
        if not all(isinstance(key, ScalarNode) for key, _ in node.value):
            raise _refusal(node, "expected keys that are text, got a list or a mapping as a key")
        parts = [value for _, value in node.value]
    size = 1 + sum(_count_values(part, level + 1, counts) for part in parts)
    if size > MAX_VALUES:
        problem = f"expected at most {MAX_VALUES:,} values with all aliases expanded, got more"
        raise _refusal(node, problem)
    counts[id(node)] = size
    return size


def _refusal(node: Node, problem: str) -> ConstructorError:
    return ConstructorError(None, None, problem, node.start_mark)


# --- dotted keys


def check_dotted(key: Any, place: str) -> None:
    """Check the form of a dotted key.

    Raises:
        ConfigError: it is not text, has an empty part, or has too many parts.
    """
    if not isinstance(key, str) or not all(key.split(".")) or key.count(".") > MAX_LEVELS:
        problem = f"expected a dotted key such as learning.lr, got {format_value(key)}"
        raise ConfigError(place, problem)


def put(document: Any, key: str, value: Any) -> Any:
    """A copy of `document` with `value` at a dotted key.

    Numbers in the key are indices of lists, and a name `x` stands for {name: x}.

    Raises:
        ConfigError: the key is malformed, or leads through a value without keys.

    Example:
        >>> put({"learning": {"compensation": "dc_asgd_a"}}, "learning.compensation.strength", 1.0)
        {'learning': {'compensation': {'name': 'dc_asgd_a', 'strength': 1.0}}}
    """
    check_dotted(key, key)
    return _put(document, key, value, key)


def _put(document: Any, key: str, value: Any, whole_key: str) -> Any:
    first, _, rest = key.partition(".")
    if isinstance(document, list):
        if not (re.fullmatch("[0-9]{1,9}", first) and int(first) < len(document)):
            problem = f"expected a place from 0 to {len(document) - 1} in a list"
            raise ConfigError(whole_key, f"{problem}, got {format_value(first)}")
        index = int(first)
        if rest:
            value = _put(document[index], rest, value, whole_key)
        return [*document[:index], value, *document[index + 1 :]]
    if isinstance(document, str):
        document = {"name": document}
    if not isinstance(document, Mapping):
        raise ConfigError(whole_key, f"unknown key: {format_value(document)} has no keys")
    if rest:
        value = _put(document.get(first, {}), rest, value, whole_key)
    return {**document, first: value}


# --- files


def examples() -> dict[str, Path]:
    """The example configs, by name."""
    root = Path(str(files("laggard") / "examples"))
    paths = [path for path in sorted(root.rglob("*.yaml")) if path.parent.name != "presets"]
    return {path.relative_to(root).with_suffix("").as_posix(): path for path in paths}


def find_config(name: str | Path, folder: Path | None = None) -> Path:
    """The file of a config: an example, or a path, which may be relative to `folder`.

    Raises:
        ConfigError: no example has that name, or several end in it.

    Example:
        >>> find_config("example:quickstart").name, find_config("example:methods/pipedream").name
        ('quickstart.yaml', 'pipedream.yaml')
    """
    text = str(name)
    if not text.startswith(EXAMPLE):
        return Path(name) if folder is None else folder / name
    paths = examples()
    wanted = text.removeprefix(EXAMPLE).removesuffix(".yaml")
    if wanted in paths:
        return paths[wanted]
    matches = [example for example in paths if example.rpartition("/")[2] == wanted]
    if len(matches) == 1:
        return paths[matches[0]]
    hint = suggest(wanted, paths) or "see `laggard list examples`"
    if matches:
        hint = f"it may be {' or '.join(matches)}"
    raise ConfigError("", f"expected the name of an example; {hint}", text)


def read(path: str | Path) -> dict[str, Any]:
    """The mapping in a YAML 1.2 file.

    Raises:
        ConfigError: the file cannot be read, is no YAML (with line and column), names a key twice,
            or holds no mapping.
    """
    try:
        with Path(path).open(encoding="utf-8") as file:
            text = file.read(MAX_TEXT + 1)
    except OSError as error:
        reason = f"cannot be read: {error.strerror}"
        name = str(path).removeprefix("configs/").removesuffix(".yaml")
        if isinstance(error, FileNotFoundError) and name in examples():
            reason = f"{reason}; laggard includes it as {EXAMPLE}{name}"
        raise ConfigError("", reason, str(path)) from None
    except ValueError:  # a path with a null character, or bytes that are not text
        raise ConfigError("", "cannot be read: not text in UTF-8", str(path)) from None
    document = parse_yaml(text, str(path))
    if not isinstance(document, dict):
        problem = f"expected a mapping of keys, got {format_value(document)}"
        raise ConfigError("", problem, str(path))
    return document


def question(path: str | Path) -> str:
    """The question of a config: the first line of its YAML file, if that is a comment.

    Raises:
        OSError: the file cannot be read.
    """
    with Path(path).open(encoding="utf-8-sig") as file:
        for line in map(str.strip, file):
            if line not in ("", "---"):
                return line.lstrip("# ") if line.startswith("#") else ""
    return ""
