"""YAML documents, and dotted keys into them. Documents are values: setting a key gives another one."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.errors import ConfigError, Refused, shown


def read(path: str | Path) -> dict[str, Any]:
    """The mapping in a YAML 1.2 file.

    Raises:
        ConfigError: the file cannot be read, is no YAML (with line and column), names a key twice, or holds no mapping.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is no text in UTF-8"
        raise ConfigError("", f"cannot be read: {reason}", str(path)) from None
    document = parsed(text, str(path))
    if not isinstance(document, dict):
        raise ConfigError("", f"expected a mapping of keys, got {shown(document)}", str(path))
    return document


def question(path: str | Path) -> str:
    """What a config asks: the first line of a YAML file, if it is a comment.

    Raises:
        OSError: the file cannot be read.
    """
    with Path(path).open(encoding="utf-8-sig") as file:
        first = next((line for line in map(str.strip, file) if line not in ("", "---")), "")
    return first.lstrip("# ") if first.startswith("#") else ""


def parsed(text: str, where: str) -> Any:
    """The value that YAML 1.2 `text` stands for: 1e-3 is a number, `yes` a text.

    Raises:
        ConfigError: no YAML, an unknown tag, or a key named twice; says where.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        return YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        spot = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(spot, (error.problem or error.context or "no YAML").split(" (original")[0], where) from None
    except (YAMLError, ValueError) as error:
        raise ConfigError("", f"no YAML: {str(error).splitlines()[0]}", where) from None


def text_of(document: Mapping[str, Any]) -> str:
    """`document` as YAML, in its own order, short lists and mappings on one line."""
    import io

    from ruamel.yaml import YAML

    yaml, stream = YAML(), io.StringIO()
    yaml.default_flow_style, yaml.width = None, 120
    yaml.dump(document, stream)
    return stream.getvalue()


def put(document: Any, key: str, value: Any) -> Any:
    """`document` with `value` at a dotted key; numbers are places in lists, and a name `x` stands for {name: x}.

    Raises:
        Refused: the key leads through something that holds no keys.

    Example:
        >>> put({"learning": {"compensation": "dc_asgd_a"}}, "learning.compensation.strength", 1.0)
        {'learning': {'compensation': {'name': 'dc_asgd_a', 'strength': 1.0}}}
    """
    first, _, rest = key.partition(".")
    if isinstance(document, list):
        if not (first.isdecimal() and int(first) < len(document)):
            raise Refused(first, f"expected a place from 0 to {len(document) - 1} in a list, got {shown(first)}")
        place = int(first)
        return [*document[:place], _deeper(document[place], rest, value), *document[place + 1 :]]
    if isinstance(document, str):
        document = {"name": document}
    if not isinstance(document, Mapping):
        raise Refused(first, f"unknown key: {shown(document)} has no keys")
    return {**document, first: _deeper(document.get(first, {}), rest, value)}


def _deeper(document: Any, rest: str, value: Any) -> Any:
    return put(document, rest, value) if rest else value
