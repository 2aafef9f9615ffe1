"""`sweep.search`: random search over ranges.

    search:
      learning.lr: {log_uniform: [0.001, 1]}       the logarithm is uniform; or {uniform: [a, b]}
      task.batch: {integer: [8, 64]}               a whole number, both ends included
      learning.optimizer: {choice: [sgd, adam]}    one of the values
      runs: 20                                     number of different settings
      seed: 0                                      of the draws
      members: 100                                 maximal number of settings in one run
      only: [0, 7]                                 keep only the draws with these numbers
      halving: {from: 1, to: 27}                   rungs of growing budget (`rungs.py`)

Source: Bergstra, Bengio (2012), Random search for hyper-parameter optimization, JMLR 13.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field, ValidationError, create_model

from laggard.experiments.config.document import check_dotted
from laggard.experiments.config.errors import (
    ConfigError,
    format_value,
    translate_error,
    unknown_key,
)
from laggard.experiments.config.schema import Count, Part, Seed

KeyValues = dict[str, Any]
GROWING = {"stop.epochs": float, "stop.updates": int, "stop.gradients": int, "stop.time": float}
"""The keys that a rung of halving sets, and the type of their values."""
COMPARED = {"test_accuracy": 1, "test_loss": -1, "train_loss": -1}
"""Columns of the metrics by which halving compares settings, and 1 where greater is better."""
Budget = Annotated[float, Field(gt=0, lt=1e30)]
_HALVING_KEYS: dict[str, Any] = {
    "key": (Literal[tuple(GROWING)], "stop.epochs"),
    "from": (Budget, ...),  # a keyword of Python, so this is not a class
    "to": (Budget, ...),
    "factor": (Annotated[int, Field(ge=2, lt=2**63)], 3),
    "by": (Literal[tuple(COMPARED)], "test_accuracy"),
}
_HALVING_DOC = """Rungs of growing budget; the best settings of a rung go on to the next.

Attributes:
    key: the limit of a run that grows.
    from: the first budget.
    to: the last budget.
    factor: the ratio of the budgets of two rungs, and of their numbers of settings.
    by: the measure at the end of a run by which settings are compared.
"""
HALVING = create_model("HalvingPart", __base__=Part, __doc__=_HALVING_DOC, **_HALVING_KEYS)


class SearchPart(Part):
    """The keys of a search that are not ranges.

    Attributes:
        runs: number of different settings.
        seed: the seed of the draws.
        members: maximal number of settings in one run; by default all that can share it.
        only: the numbers of the draws to keep, from 0; by default all.
        halving: rungs: the best settings go on to a larger budget.
    """

    runs: Count
    seed: Seed = 0
    members: Count | None = None
    only: list[int] | None = None
    halving: HALVING | None = None  # type: ignore[valid-type]


DRAWS_PER_RUN = 100
"""Draws for each setting that is asked for, after which no other is expected: of n equally likely
settings, each is among 100 n draws but for a probability of e^-100.
"""
DIGITS = 6
"""Significant digits of a drawn number, the same on every machine: logarithms of two machines may
differ in the last bit.
"""
RANGE_KINDS = ("uniform", "log_uniform", "integer", "choice")


class KeyRange(NamedTuple):
    """The range of a key: `kind`, and its two ends or, of a choice, its values."""

    kind: str
    values: Sequence[Any]

    def at(self, share: float) -> Any:
        """The value at a share of the range, 0 <= share < 1; for a choice, its index."""
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
        """The value of a key for the result of `at`."""
        if self.kind == "choice":
            return self.values[drawn]
        return drawn


class SearchDraws(NamedTuple):
    """The draws of a search.

    Attributes:
        ranges: key -> range.
        points: number of a draw -> key -> value, as `KeyRange.at` gives it.
        members: the maximal number of settings in one run.
    """

    ranges: dict[str, KeyRange]
    points: dict[int, KeyValues]
    members: int

    def values(self, keys: Sequence[str], point: KeyValues) -> KeyValues:
        """The values of some keys at a point."""
        return {key: self.ranges[key].value(point[key]) for key in keys}


def draw_settings(search: Any, place: str) -> list[tuple[KeyValues, list[KeyValues]]]:
    """The settings of a search, grouped by run: the run's settings, and the additional ones of each
    member.

    Number n of a key is the n-th number of the key's own stream, by seed and key: a larger budget
    keeps the settings of a smaller one, and another key does not change this one's numbers. A
    setting that was drawn before is left out. Numbers below `learning` are the members'; settings
    that agree in all other keys share a run. Runs and members are in the order of their values.

    Raises:
        ConfigError: a range or number is malformed, or there are fewer different settings.
    """
    draws = _draw(search, place)
    inner = [
        key
        for key, limits in draws.ranges.items()
        if all(is_rule_number(key, value) for value in limits.values)
    ]
    outer = [key for key in draws.ranges if key not in inner]
    groups: dict[tuple[Any, ...], list[KeyValues]] = {}
    for index, point in enumerate(draws.points.values()):
        # in the order of drawing, so that a larger budget adds runs and keeps the others
        group = (tuple(point[key] for key in outer), index // draws.members)
        groups.setdefault(group, []).append(point)
    result = []
    for _, points in sorted(groups.items()):
        points.sort(key=lambda point: [point[key] for key in inner])
        members = [draws.values(inner, point) for point in points]
        result.append((draws.values(outer, points[0]), members))
    return result


def numbered_draws(search: Any, place: str) -> dict[int, KeyValues]:
    """The number of each draw of a search, as `only` names it, and the settings drawn.

    Raises:
        ConfigError: as in `draw_settings`.
    """
    draws = _draw(search, place)
    keys = list(draws.ranges)
    return {number: draws.values(keys, point) for number, point in draws.points.items()}


def is_rule_number(key: str, value: Any) -> bool:
    """Whether a dotted key stands below `learning` and the value is a number."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and key.startswith("learning.")


def without_range(sweep: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """A sweep whose search does not draw `key`; without the search if no range is left."""
    search = sweep.get("search")
    if not (isinstance(search, Mapping) and isinstance(search.get(key), Mapping)):
        return sweep
    search = {other: value for other, value in search.items() if other != key}
    if set(search) <= set(SearchPart.model_fields):
        return {axis: values for axis, values in sweep.items() if axis != "search"}
    return {**sweep, "search": search}


def _draw(search: Any, place: str) -> SearchDraws:
    if not isinstance(search, Mapping):
        problem = "expected ranges of dotted keys and a number of runs"
        raise ConfigError(place, f"{problem}, got {format_value(search)}")
    if "halving" in search and place != "sweep.search":
        raise ConfigError(f"{place}.halving", "expected in sweep.search alone, not in a variant")
    keys = read_search(search, place)
    runs = keys.runs
    ranges = {}
    for key, value in search.items():
        if key not in SearchPart.model_fields:
            check_dotted(key, place)
            ranges[key] = _range(value, f"{place}.{key}")
    if not ranges:
        problem = "expected the range of a dotted key, as learning.lr: {log_uniform: [0.001, 1]}"
        raise ConfigError(place, problem)
    points = _different_points(ranges, runs, keys.seed, place)
    numbers = keys.only
    if numbers is None:
        numbers = list(range(runs))
    different = len(set(numbers)) == len(numbers)
    if not numbers or not different or min(numbers) < 0 or max(numbers) >= runs:
        problem = f"expected different numbers from 0 to {runs - 1}"
        raise ConfigError(f"{place}.only", f"{problem}, got {format_value(numbers)}")
    kept = {number: points[number] for number in sorted(numbers)}
    return SearchDraws(ranges, kept, keys.members or runs)


def read_search(search: Mapping[str, Any], place: str) -> SearchPart:
    """The keys of a search that are not ranges.

    Raises:
        ConfigError: one of them is missing, unknown or out of range.
    """
    keys = {key: value for key, value in search.items() if key in SearchPart.model_fields}
    try:
        return SearchPart.model_validate(keys)
    except ValidationError as error:
        raise translate_error(error, keys, place) from None


def _range(value: Any, place: str) -> KeyRange:
    if not isinstance(value, Mapping) or len(value) != 1:
        problem = "expected {uniform: [a, b]}, or with log_uniform, integer or choice"
        raise ConfigError(place, f"{problem}, got {format_value(value)}")
    ((kind, values),) = value.items()
    if kind not in RANGE_KINDS:
        raise unknown_key(str(kind), RANGE_KINDS).relocate(key=place)
    place = f"{place}.{kind}"
    if kind == "choice":
        valid = isinstance(values, list) and values
        if not valid or any(item in values[:index] for index, item in enumerate(values)):
            problem = f"expected a list of different values, got {format_value(values)}"
            raise ConfigError(place, problem)
        return KeyRange(kind, values)
    expected = {"integer": "two whole numbers a < b", "log_uniform": "two numbers 0 < a < b"}
    problem = f"expected {expected.get(kind, 'two numbers a < b')}, got {format_value(values)}"
    number = int if kind == "integer" else int | float
    if not isinstance(values, list) or len(values) != 2:
        raise ConfigError(place, problem)
    for end in values:
        if not isinstance(end, number) or isinstance(end, bool) or not math.isfinite(end):
            raise ConfigError(place, problem)
    low, high = values
    if not low < high or (kind == "log_uniform" and low <= 0):
        raise ConfigError(place, problem)
    return KeyRange(kind, values)


def _different_points(
    ranges: Mapping[str, KeyRange], runs: int, seed: int, place: str
) -> list[KeyValues]:
    """The first `runs` different draws, as `KeyRange.at` gives them."""
    streams = []
    for key in ranges:
        seeds = np.random.SeedSequence(seed, spawn_key=tuple(key.encode()))
        streams.append(np.random.default_rng(seeds))
    points: dict[tuple[Any, ...], None] = {}  # in the order of drawing
    max_draws = DRAWS_PER_RUN * runs
    for _ in range(max_draws):
        pairs = zip(ranges.values(), streams, strict=True)
        points[tuple(limits.at(stream.random()) for limits, stream in pairs)] = None
        if len(points) == runs:
            return [dict(zip(ranges, point, strict=True)) for point in points]
    problem = f"expected at most {len(points)} different settings, the most in {max_draws} draws"
    raise ConfigError(f"{place}.runs", f"{problem}, got {runs}")
