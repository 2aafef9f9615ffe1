"""Grids: the runs that a config expands to, and the members of the ensemble that each run trains at once.

There is one way to write a grid (`experiments/axes.py`), and the engine's second fact sorts its axes: no event time
depends on a tensor. Numbers of the learning rule, and its seed, move no event: they become members of one run, inside
a variant too. Names there, variants of several keys, and everything else become runs.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, product
from typing import Any, NamedTuple

from experiments.axes import Axis, Option, axes
from experiments.config import Checks, Config, parse
from experiments.documents import put
from experiments.errors import ConfigError, Refused


class Run(NamedTuple):
    """A config that is simulated at once, with its coordinates in the sweep that it belongs to."""

    config: Config
    labels: Mapping[str, Any]


def runs(config: Config) -> list[Run]:
    """The runs of a config, each keeping under `sweep` only what its ensemble spans.

    Every member of every ensemble is validated as a config of its own first; what several have in common is parsed,
    built and held against the rest once.

    Raises:
        ConfigError: one of them cannot be run, or two of them are the same; names the axis where that is to blame.
    """
    checks = Checks()
    found: dict[tuple[Any, ...], Run] = {}
    for options, numbers in _branches(axes(config.sweep)):
        inner = _ensemble(config, options, numbers, checks)
        outer = [axis for axis in numbers if axis not in inner]
        for more in product(*(axis.options for axis in outer)):
            run = _run(config, [*options, *more], inner, checks)
            same = found.setdefault(checks.identity(run.config), run)
            if same is not run:
                raise ConfigError("sweep", f"{said(run)} is the same run as {said(same)}: leave one of them out")
    return list(found.values())


def said(run: Run) -> str:
    """A run's coordinates, as people read them; without any, its name."""
    return ", ".join(f"{key} = {label}" for key, label in run.labels.items()) or run.config.name


def members(config: Config) -> list[dict[str, Any]]:
    """The swept values of each member of a run's ensemble: the product of its axes, the first the slowest."""
    every = product(*(axis.options for axis in axes(config.sweep)))
    return [dict(chain.from_iterable(option.settings.items() for option in options)) for options in every]


def filled(document: Mapping[str, Any]) -> Config:
    """The config of a document whose `sweep` may supply what it lacks: its first values stand in for the swept keys.

    Raises:
        ConfigError: as in `parse`.
    """
    sweep = document.get("sweep") or {}
    first = [axis.options[0]._replace(settings=axis.sure) for axis in axes(sweep)]
    return _parsed({**document, "sweep": sweep}, first, Checks())


def _branches(swept: Sequence[Axis]) -> Iterator[tuple[list[Option], list[Axis]]]:
    """The options of axes that move events, in each combination, and the axes of numbers left open beside them."""
    numbers = [axis for axis in swept if _are_numbers(axis)]
    for options in product(*(axis.options for axis in swept if not _are_numbers(axis))):
        own = [axis for option in options for axis in option.axes]
        for deeper, more in _branches(own) if own else [([], [])]:
            yield [*options, *deeper], [*numbers, *more]


def _are_numbers(axis: Axis) -> bool:
    """Whether an axis sets numbers below `learning`, and nothing else."""
    return not axis.named and all(
        key.startswith("learning.") and isinstance(value, int | float) and not isinstance(value, bool)
        for option in axis.options
        for key, value in option.settings.items()
    )


def _ensemble(config: Config, options: Sequence[Option], numbers: Sequence[Axis], checks: Checks) -> list[Axis]:
    """Those axes of numbers that the members of one run may differ in: it depends on the rule, which variants name."""
    if not numbers:
        return []
    learning = _parsed(config.given(), [*options, *(axis.options[0] for axis in numbers)], checks).learning
    keys = [[key.removeprefix("learning.") for key in axis.options[0].settings] for axis in numbers]
    return [axis for axis, own in zip(numbers, keys, strict=True) if all(map(learning.per_member, own))]


def _run(config: Config, outer: Sequence[Option], inner: Sequence[Axis], checks: Checks) -> Run:
    """The run at the options `outer`; its own values of the inner axes are the first member's."""
    first: Config | None = None
    given = config.given()
    for values in product(*(axis.options for axis in inner)):
        member = _parsed(given, [*outer, *values], checks)
        checks.agree(member)
        first = first or member
    run = parse({**first.given(), "sweep": _spanned(inner)}, checks=checks) if inner else first
    checks.fit(run)
    return Run(run, dict(chain.from_iterable(option.labels.items() for option in outer)))


def _spanned(inner: Sequence[Axis]) -> dict[str, Any]:
    """The `sweep` of a run: its ensemble's axes, and those of several keys together under `zip`."""
    number = {key: int if key == "learning.seed" else float for axis in inner for key in axis.options[0].settings}
    lists = [
        {key: [number[key](option.settings[key]) for option in axis.options] for key in axis.options[0].settings}
        for axis in inner
    ]
    together = [of for of in lists if len(of) > 1]
    spanned: dict[str, Any] = {}
    for of in lists:
        spanned |= of if len(of) == 1 else {"zip": together}
    return spanned


def _parsed(document: Mapping[str, Any], options: Sequence[Option], checks: Checks) -> Config:
    """The config of `document` with what `options` set; errors in it are blamed on the option that set the key."""
    settings = [(key, value, option) for option in options for key, value in option.settings.items()]
    settings.sort(key=lambda setting: setting[0].count("."))  # a whole part before a key in it
    try:
        for key, value, _ in settings:
            document = put(document, key, value)
        return parse(document, checks=checks)
    except Refused as error:
        raise ConfigError(f"{_place(key, settings)}", error.problem) from None
    except ConfigError as error:
        raise error.moved(key=_place(error.key, settings)) from None


def _place(key: str, settings: Sequence[tuple[str, Any, Option]]) -> str:
    for swept, _, option in settings:
        if key == swept or key.startswith(f"{swept}."):
            return f"{option.place.removesuffix(f'.{swept}')}.{key}"
    return key
