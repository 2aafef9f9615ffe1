"""What a config may name: every entry of every table, in one line."""

import re
from collections.abc import Iterator, Mapping
from inspect import cleandoc

from pydantic.fields import FieldInfo

from experiments import parts
from experiments.errors import shown
from experiments.schema import Described

ROOMS = {
    "methods (algorithm.name)": parts.ALGORITHM,
    "laws (cluster.compute.law)": parts.COMPUTE,
    "slowdowns (cluster.slowdowns)": parts.SLOWDOWN,
    "topologies (cluster.network.topology)": parts.NETWORK,
    "compensations (learning.compensation)": parts.COMPENSATION,
    "optimizers (learning.optimizer)": parts.LEARNING,
    "schedules (learning.schedule)": parts.SCHEDULE,
    "models (task.model)": parts.TASK,
    "data (task.dataset)": parts.DATA,
    "partitions (task.partition)": parts.PARTITION,
}


def lines() -> Iterator[str]:
    """The tables with their entries: name, first sentence, keys with their defaults, and source."""
    for title, choice in ROOMS.items():
        yield title
        for name, part in choice.parts.items():
            yield f"  {name}: {described(part)}"


def described(part: type[Described]) -> str:
    """An entry in one line."""
    text = cleandoc(part.__doc__ or "")
    first = _one_line(re.split(r"(?<=\.)\s|\n\n", text, maxsplit=1)[0])
    source = re.search(r"^Source: (.*?)(?=\n\n|\Z)", text, flags=re.MULTILINE | re.DOTALL)
    keys = _keys({key: said for key, said in part.model_fields.items() if key in part.settings})
    return " ".join(piece for piece in (first, keys, source and _one_line(source[0])) if piece)


def _keys(fields: Mapping[str, FieldInfo]) -> str:
    said = [key if field.is_required() else f"{key} = {shown(field.default)}" for key, field in fields.items()]
    return f"[{', '.join(said)}]" if said else ""


def _one_line(text: str) -> str:
    return " ".join(text.split())
