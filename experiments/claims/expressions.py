"""The expressions of a claim: names, numbers, arithmetic, comparisons and the functions of `statistics`."""

from collections.abc import Mapping
from typing import Any

from jinja2 import StrictUndefined, meta, nodes
from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from experiments.claims.statistics import STATISTICS
from experiments.errors import ConfigError

_language = ImmutableSandboxedEnvironment(undefined=StrictUndefined)


def used(expression: str) -> set[str]:
    """The names of statistics, studies and functions that an expression asks for."""
    return meta.find_undeclared_variables(_language.parse(f"{{{{ {expression} }}}}"))


def calls(expression: str, function: str) -> list[int]:
    """With how many arguments an expression calls a function, each time that it does."""
    tree = _language.parse(f"{{{{ {expression} }}}}")
    found = [call for call in tree.find_all(nodes.Call) if getattr(call.node, "name", None) == function]
    return [len(call.args) + len(call.kwargs) for call in found]


def evaluated(expression: str, names: Mapping[str, Any], where: str) -> Any:
    """What `expression` is, over `names`.

    Args:
        where: what to blame.

    Raises:
        ConfigError: it is no expression, knows no such name, or its values do not go together.
    """
    try:
        found = _language.compile_expression(expression, undefined_to_none=False)(**STATISTICS, **names)
        if isinstance(found, StrictUndefined):
            raise ConfigError(where, f"{expression!r}: {found._undefined_name!r} is not known here")
        return found
    except ConfigError:
        raise
    except (TemplateError, ValueError, TypeError, LookupError) as error:
        raise ConfigError(where, f"{expression!r}: {str(error).splitlines()[0]}") from None
