"""`sweep.search`: settings drawn at random from ranges, instead of a grid's.

search:
  learning.lr: {log_uniform: [0.001, 1]}       a number whose logarithm is uniform; or {uniform: [a, b]}
  task.batch: {integer: [8, 64]}               a whole number, both ends included
  learning.optimizer: {choice: [sgd, adam]}    one of the values
  runs: 20                                     how many different settings are drawn
  seed: 0                                      of the draws
  members: 100                                 at most so many settings train in one run
  only: [0, 7]                                 of all draws those with these numbers
  halving: {from: 1, to: 27}                   rungs of growing budget (`rungs.py`)

Source: Bergstra, Bengio (2012), Random search for hyper-parameter optimization, JMLR 13.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from laggard.experiments.config.errors import ConfigError, format_value, unknown_key
from laggard.experiments.config.plain import check_dotted

KeyValues = dict[str, Any]
BUDGET = {
    "runs": "how many different settings are drawn",
    "seed": "of the draws; 0 by default",
    "members": "how many settings train in one run at most; by default all that can",
    "only": "numbers of those draws that are kept, from 0; by default all",
    "halving": "rungs: the best settings go on to a larger budget",
}
"""The keys of a search that are no range, and what they say."""
DRAWS_PER_RUN = 100
"""Draws for each setting that is asked for, after which no other is expected: of n equally likely
settings, each is among 100 n draws but for a probability of e^-100.
"""
DIGITS = 6
"""Significant digits of a drawn number: the same on every machine, whose logarithms may differ in
the last bit.
"""


class KeyRange(NamedTuple):
    """What a key is drawn from: `kind`, and its two ends or, of a choice, its values."""

    kind: str
    values: Sequence[Any]

    def at(self, share: float) -> Any:
        """The value at a share, 0 <= share < 1, of the range; of a choice its place in the list."""
        if self.kind == "choice":
            return int(share * len(self.values))
        low, high = self.values
        if self.kind == "integer":
            return min(low + int(share * (high - low + 1)), high)
        if self.kind == "log_uniform":
            drawn = math.exp((1 - share) * math.log(low) + share * math.log(high))
        else:
            drawn = (1 - share) * low + share * high
        return min(max(float(f"{drawn:.{DIGITS}g}"), float(low)), float(high))

    def value(self, drawn: Any) -> Any:
        """The value of a key for what `at` gave."""
        return self.values[drawn] if self.kind == "choice" else drawn


def draw_settings(search: Any, place: str) -> list[tuple[KeyValues, list[KeyValues]]]:
    """The settings of a search by run: what each run sets, and what each member of its ensemble
    sets besides.

    Number n of a key is the n-th number of a stream of its own, by seed and key: a larger budget
    keeps the settings of a smaller one, and another key leaves this one's numbers as they are. A
    setting that was drawn before is left out. Numbers below `learning` are the members'; settings
    that agree in all other keys share a run. Runs and members are in the order of their values.

    Raises:
        ConfigError: no mapping of ranges, no number of runs, or fewer different settings than that.
    """
    ranges, points, most = _draw(search, place)
    inner = [
        key for key, of in ranges.items() if all(is_rule_number(key, value) for value in of.values)
    ]
    outer = [key for key in ranges if key not in inner]
    groups: dict[tuple[Any, ...], list[KeyValues]] = {}
    for place_in_order, point in enumerate(points.values()):
        apart = tuple(point[key] for key in outer)
        groups.setdefault((apart, place_in_order // most), []).append(point)
    each = [
        sorted(group, key=lambda point: [point[key] for key in inner])
        for _, group in sorted(groups.items())
    ]
    return [
        (_values(ranges, outer, own[0]), [_values(ranges, inner, point) for point in own])
        for own in each
    ]


def numbered_draws(search: Any, place: str) -> dict[int, KeyValues]:
    """The settings of a search by the number of their draw, which `only` names; as in
    `draw_settings`.
    """
    ranges, points, _ = _draw(search, place)
    return {number: _values(ranges, list(ranges), point) for number, point in points.items()}


def is_rule_number(key: str, value: Any) -> bool:
    """Whether a dotted key stands below `learning` and the value is a number."""
    return (
        key.startswith("learning.")
        and isinstance(value, int | float)
        and not isinstance(value, bool)
    )


def without_range(sweep: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """A sweep whose search, if it has one, draws no `key`; without the search where it was the
    last.
    """
    search = sweep.get("search")
    if not (isinstance(search, Mapping) and isinstance(search.get(key), Mapping)):
        return sweep
    left = {other: value for other, value in search.items() if other != key}
    rest = {axis: values for axis, values in sweep.items() if axis != "search"}
    return rest if set(left) <= set(BUDGET) else {**sweep, "search": left}


def _draw(search: Any, place: str) -> tuple[dict[str, KeyRange], dict[int, KeyValues], int]:
    """The ranges of a search, its draws by number, as `KeyRange.at` gives them, and how many one
    run trains at most.
    """
    if not isinstance(search, Mapping):
        raise ConfigError(
            place,
            f"expected ranges of dotted keys and a number of runs, got {format_value(search)}",
        )
    if "halving" in search and place != "sweep.search":
        raise ConfigError(f"{place}.halving", "expected in sweep.search alone, not in a variant")
    own = {key: search.get(key, 0 if key == "seed" else None) for key in BUDGET}
    own["members"] = own["runs"] if own["members"] is None else own["members"]
    for key, least in {"runs": 1, "seed": 0, "members": 1}.items():
        if (
            not isinstance(own[key], int)
            or isinstance(own[key], bool)
            or not least <= own[key] < 2**63
        ):
            raise ConfigError(
                f"{place}.{key}", f"expected an integer >= {least}, got {format_value(own[key])}"
            )
    written = {key: value for key, value in search.items() if key not in BUDGET}
    for key in written:
        check_dotted(key, place)
    ranges = {key: _range(value, f"{place}.{key}") for key, value in written.items()}
    if not ranges:
        raise ConfigError(
            place, "expected the range of a dotted key, as learning.lr: {log_uniform: [0.001, 1]}"
        )
    points = _different_points(ranges, own["runs"], own["seed"], place)
    numbers = range(own["runs"]) if own["only"] is None else own["only"]
    fine = (
        isinstance(numbers, range | list)
        and all(type(each) is int for each in numbers)
        and len(numbers)
    )
    if (
        not fine
        or len(set(numbers)) < len(numbers)
        or not 0 <= min(numbers) <= max(numbers) < own["runs"]
    ):
        problem = f"expected different numbers from 0 to {own['runs'] - 1}, got {format_value(own['only'])}"
        raise ConfigError(f"{place}.only", problem)
    return ranges, {number: points[number] for number in sorted(numbers)}, own["members"]


def _values(ranges: Mapping[str, KeyRange], keys: Sequence[str], point: KeyValues) -> KeyValues:
    return {key: ranges[key].value(point[key]) for key in keys}


RANGE_KINDS = ("uniform", "log_uniform", "integer", "choice")


def _range(value: Any, place: str) -> KeyRange:
    if not isinstance(value, Mapping) or len(value) != 1:
        problem = f"expected {{uniform: [a, b]}}, or with log_uniform, integer or choice, got {format_value(value)}"
        raise ConfigError(place, problem)
    ((kind, values),) = value.items()
    if kind not in RANGE_KINDS:
        raise unknown_key(str(kind), RANGE_KINDS).relocate(key=place)
    if kind == "choice":
        if (
            not isinstance(values, list)
            or not values
            or any(each in values[:at] for at, each in enumerate(values))
        ):
            raise ConfigError(
                f"{place}.choice",
                f"expected a list of different values, got {format_value(values)}",
            )
        return KeyRange(kind, values)
    number = int if kind == "integer" else int | float
    fine = (
        isinstance(values, list)
        and len(values) == 2
        and all(
            isinstance(end, number) and not isinstance(end, bool) and math.isfinite(end)
            for end in values
        )
    )
    if not fine or not values[0] < values[1] or (kind == "log_uniform" and values[0] <= 0):
        expected = {"integer": "two whole numbers a < b", "log_uniform": "two numbers 0 < a < b"}
        problem = f"expected {expected.get(kind, 'two numbers a < b')}, got {format_value(values)}"
        raise ConfigError(f"{place}.{kind}", problem)
    return KeyRange(kind, values)


def _different_points(
    ranges: Mapping[str, KeyRange], runs: int, seed: int, place: str
) -> list[KeyValues]:
    """The first `runs` different draws, as `KeyRange.at` gives them."""
    seeds = [np.random.SeedSequence(seed, spawn_key=tuple(key.encode())) for key in ranges]
    streams, limit = [np.random.default_rng(each) for each in seeds], DRAWS_PER_RUN * runs
    found: dict[tuple[Any, ...], None] = {}
    for _ in range(limit):
        found[
            tuple(
                of.at(stream.random()) for of, stream in zip(ranges.values(), streams, strict=True)
            )
        ] = None
        if len(found) == runs:
            return [dict(zip(ranges, point, strict=True)) for point in found]
    problem = f"expected at most {len(found)}, as many as there are different settings in {limit} draws, got {runs}"
    raise ConfigError(f"{place}.runs", problem)
