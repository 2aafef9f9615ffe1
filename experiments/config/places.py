"""The places of config keys: the error of an unknown key names where such a key belongs."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, get_args

from laggard.experiments.config.errors import SYNONYMS, UNKNOWN_KEY, ConfigError
from laggard.experiments.config.parts import NamedChoice
from laggard.experiments.config.schema import Part

MAX_PLACES = 6
Places = dict[str, dict[str, list[str]]]
"""The name of a key -> its dotted places -> the entries that have it there, if not all have it."""
EXPANDED = ("cluster.preset", "base", "sweep.seeds")
"""Keys that are expanded before a config is parsed."""


def name_places(error: ConfigError, root: type[Part]) -> ConfigError:
    """A copy of an error that names where unknown keys belong among the keys below `root`."""
    others = [name_places(other, root) for other in error.others]
    problem = error.problem
    if problem.startswith(UNKNOWN_KEY):
        problem = _remedy(error.key, problem, places(root))
    return ConfigError(error.key, problem, error.where, others)


def _remedy(key: str, problem: str, known: Places) -> str:
    words = [word for word in key.split(".") if not word.isdecimal()]
    if not words:  # a number instead of a name
        return problem
    places_of_name = known.get(SYNONYMS.get(words[-1], words[-1]), {})
    here = ".".join(words)
    if not places_of_name or places_of_name.get(here) == []:
        return problem
    if here in places_of_name:
        entries = ", ".join(places_of_name[here][:MAX_PLACES])
        return f"{UNKNOWN_KEY}; it is a key of {entries}"
    distances = {place: _distance(words, place.split(".")) for place in places_of_name}
    nearest = min(distances.values())
    matches = [place for place, distance in distances.items() if distance == nearest]
    elsewhere = " or ".join(
        _place_with_entries(place, places_of_name[place]) for place in matches[:MAX_PLACES]
    )
    _, _, hint = problem.partition("; ")
    if hint.startswith("did you mean"):
        is_beside = any(place.split(".")[:-1] == words[:-1] for place in matches)
        if is_beside:  # the hint names it
            return problem
        return f"{UNKNOWN_KEY} here; {hint} Or write {elsewhere}"
    return f"{UNKNOWN_KEY} here; write {elsewhere}"


def _place_with_entries(place: str, entries: Sequence[str]) -> str:
    """A place, with the entries that have it there, if not all have it."""
    if not entries:
        return place
    return f"{place} (a key of {', '.join(entries[:MAX_PLACES])})"


def _distance(one: Sequence[str], other: Sequence[str]) -> int:
    """The number of levels up and down from one dotted key to another."""
    shared = 0
    for word, same in zip(one[:-1], other[:-1], strict=False):
        if word != same:
            break
        shared += 1
    return len(one) + len(other) - 2 - 2 * shared


@cache
def places(root: Any) -> Places:
    """All keys below a part."""
    known: Places = {}
    for place in EXPANDED:
        known[place.rpartition(".")[2]] = {place: []}
    for place, entry in _walk(root, "", ""):
        entries = known.setdefault(place.rpartition(".")[2], {}).setdefault(place, [])
        if entry and entry not in entries:
            entries.append(entry)
    return known


def _walk(part: type[Part], place: str, entry: str) -> Iterator[tuple[str, str]]:
    """The dotted keys of a part and of the parts in it, each with the name of its entry."""
    for key, field in part.model_fields.items():
        yield f"{place}{key}", entry
        for name, inner in _parts_in([field.annotation, *field.metadata]):
            yield from _walk(inner, f"{place}{key}.", name)


def _parts_in(hints: Sequence[Any]) -> Iterator[tuple[str, type[Part]]]:
    """The parts that a key may hold; each has a name if there are several."""
    for hint in hints:
        if isinstance(hint, NamedChoice):
            yield from hint.parts.items()
        elif isinstance(hint, type) and issubclass(hint, Part):
            yield "", hint
        else:
            yield from _parts_in(_arguments(hint))


def _arguments(hint: Any) -> Sequence[Any]:
    return [*get_args(hint), *getattr(hint, "__metadata__", ())]
