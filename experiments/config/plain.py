"""Plain YAML: mappings, lists, strings, numbers, booleans and null, of a size that can be read at
once; dotted keys.
"""

import io
import re
from collections.abc import Mapping
from typing import Any
from unicodedata import category

from ruamel.yaml import YAML
from ruamel.yaml.constructor import ConstructorError, SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from laggard.experiments.config.errors import ConfigError, format_value

MOST_TEXT, MOST_VALUES, MOST_LEVELS = 100_000, 100_000, 100
"""The greatest length of a text, which takes seconds, number of its values with every alias written
out, and depth.
"""
TOO_DEEP = f"expected at most {MOST_LEVELS} levels, got more"
NOT_PLAIN = {
    f"tag:yaml.org,2002:{name}": name for name in ("binary", "omap", "pairs", "set", "timestamp")
}


def parse_yaml(text: str, where: str) -> Any:
    """The value that YAML 1.2 `text` stands for: 1e-3 is a number, `yes` a string.

    Raises:
        ConfigError: no YAML, not plain, too large, or a key named twice; says where.
    """
    if len(text) > MOST_TEXT:
        raise ConfigError(
            "", f"expected at most {MOST_TEXT:,} characters, got more: is it a config?", where
        )
    # slow to parse
    if any(len(re.findall(r"[\[{]", part)) > MOST_LEVELS for part in re.split(r"[\]}]", text)):
        raise ConfigError("", TOO_DEEP, where)
    yaml = YAML(typ="safe", pure=True)
    yaml.Constructor = Plain
    try:
        return yaml.load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        spot = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(
            spot, (error.problem or error.context or "no YAML").split(" (original")[0], where
        ) from None
    except RecursionError:
        raise ConfigError("", TOO_DEEP, where) from None
    except (YAMLError, ValueError) as error:
        raise ConfigError("", f"no YAML: {str(error).splitlines()[0]}", where) from None


def text_of(document: Mapping[str, Any]) -> str:
    """`document` as YAML, in its own order, short lists and mappings on one line."""
    yaml, stream = YAML(), io.StringIO()
    yaml.default_flow_style, yaml.width = None, 120
    yaml.dump(document, stream)
    return stream.getvalue()


class Plain(SafeConstructor):
    """Makes plain values, and refuses all others with their line and column."""

    def construct_document(self, node: Node) -> Any:
        _size(node, 1, {})
        return super().construct_document(node)

    def construct_object(self, node: Node, deep: bool = False) -> Any:
        try:
            value = super().construct_object(node, deep)
        except (KeyError, TypeError, ValueError, OverflowError):
            raise _refusal(
                node, f"expected a value as its tag {node.tag} says, got {node.value!r:.80}"
            ) from None
        if isinstance(value, int) and abs(value) > 2**64:
            raise _refusal(
                node, f"expected a whole number of at most 64 bits, got {node.value:.40}..."
            )
        if isinstance(value, str) and any(
            category(sign) in ("Cc", "Cs") and sign not in "\t\n\r" for sign in value
        ):
            raise _refusal(node, f"expected text without control characters, got {value!r:.80}")
        return value


def _size(node: Node, level: int, known: dict[int, int]) -> int:
    """How many values a node has with every alias written out: merging and printing would write
    them out.
    """
    if known.get(id(node)) == 0 or level > MOST_LEVELS:
        raise _refusal(node, TOO_DEEP)
    if id(node) in known:
        return known[id(node)]
    if node.tag in NOT_PLAIN:
        raise _refusal(
            node,
            f"expected text, a number, a list or a mapping, got a {NOT_PLAIN[node.tag]}: quote text",
        )
    known[id(node)] = 0  # until it is known: an alias within would be the node in itself
    parts: list[Node] = []
    if isinstance(node, SequenceNode):
        parts = node.value
    elif isinstance(node, MappingNode):
        if not all(isinstance(key, ScalarNode) for key, _ in node.value):
            raise _refusal(node, "expected keys that are text, got a list or a mapping as a key")
        parts = [value for _, value in node.value]
    size = known[id(node)] = 1 + sum(_size(part, level + 1, known) for part in parts)
    if size > MOST_VALUES:
        raise _refusal(
            node, f"expected at most {MOST_VALUES:,} values with every alias written out, got more"
        )
    return size


def _refusal(node: Node, problem: str) -> ConstructorError:
    return ConstructorError(None, None, problem, node.start_mark)


def check_dotted(key: Any, place: str) -> None:
    """Check the form of a dotted key.

    Raises:
        ConfigError: it is no text, one of its parts is empty, or it has too many.
    """
    if not isinstance(key, str) or not all(key.split(".")) or key.count(".") > MOST_LEVELS:
        raise ConfigError(
            place, f"expected a dotted key such as learning.lr, got {format_value(key)}"
        )


def put(document: Any, key: str, value: Any, whole: str = "") -> Any:
    """`document` with `value` at a dotted key; numbers are places in lists, and a name `x` stands
    for {name: x}.

    Args:
        whole: the key that errors name, where `key` is the rest of it.

    Raises:
        ConfigError: the key has an empty part or too many, or leads through something that holds no
            keys.

    Example:
        >>> put({"learning": {"compensation": "dc_asgd_a"}}, "learning.compensation.strength", 1.0)
        {'learning': {'compensation': {'name': 'dc_asgd_a', 'strength': 1.0}}}
    """
    first, _, rest = key.partition(".")
    if not whole:
        check_dotted(key, key)
    whole = whole or key
    if isinstance(document, list):
        if not (re.fullmatch("[0-9]{1,9}", first) and int(first) < len(document)):
            raise ConfigError(
                whole,
                f"expected a place from 0 to {len(document) - 1} in a list, got {format_value(first)}",
            )
        place = int(first)
        changed = put(document[place], rest, value, whole) if rest else value
        return [*document[:place], changed, *document[place + 1 :]]
    if isinstance(document, str):
        document = {"name": document}
    if not isinstance(document, Mapping):
        raise ConfigError(whole, f"unknown key: {format_value(document)} has no keys")
    return {**document, first: put(document.get(first, {}), rest, value, whole) if rest else value}
