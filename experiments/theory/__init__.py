"""Closed forms: staleness, seconds per update, stability, compensation; found by the class of the
algorithm.
"""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

from laggard.experiments.config.config import Config, parse
from laggard.experiments.config.errors import ConfigError
from laggard.experiments.config.plugins import hash_of_sources, look_in
from laggard.experiments.results.measures import method
from laggard.experiments.results.result import Result
from laggard.simulator import Algorithm, Cluster, InvalidSettingError

Found = TypeVar("Found")
Form = TypeVar("Form", bound=Callable[..., Any])


class Forms(Generic[Found]):
    """A closed form for each class of algorithm; an algorithm of one's own registers its own, as
    the others do.

    A class derived from one that has a form may behave otherwise: it has none until it registers
    one.

    Example:
        >>> from laggard.experiments.theory.staleness import STALENESS, constant
        >>> class Mine(Algorithm):
        ...     period = 5
        >>> @STALENESS.of(Mine)
        ... def every_period(algorithm, cluster):
        ...     return constant(algorithm.period - 1)
        >>> STALENESS(Mine(), Cluster(workers=2)).mean
        4
    """

    def __init__(self) -> None:
        self._forms: dict[type, Callable[..., Found | None]] = {}

    def of(self, *classes: type) -> Callable[[Form], Form]:
        """A decorator: the function is the closed form of these classes; it gives None where it
        does not hold.
        """

        def register(form: Form) -> Form:
            self._forms.update(dict.fromkeys(classes, form))
            return form

        return register

    def __call__(self, algorithm: Algorithm, *setting: Any) -> Found | None:
        """What theory says of an algorithm in a setting; None where it has no form."""
        form = self._forms.get(type(algorithm))
        return form(algorithm, *setting) if form else None


def build_algorithm(config: Any) -> tuple[Algorithm, Cluster] | None:
    """The algorithm and the cluster of a config, for mini-batches of its size; None for what is no
    `Config`.

    A result does not hold the source of entries of one's own, as an algorithm: where their modules
    are not on Python's path or in the current directory, or have changed since the run, None too,
    as where a file that it names has.
    """
    if not isinstance(config, Config):
        return None
    document = {"algorithm": config.algorithm.model_dump(), "cluster": config.cluster.model_dump()}
    own, stored = dict(_own_entries(document)), config
    if own:
        look_in(Path.cwd())
        try:
            if not all(_is_unchanged(*entry) for entry in own.items()):
                return None
            config = parse(document)
        except ConfigError:
            return None
    try:
        cluster = stored.model_copy(update={"cluster": config.cluster}).build_cluster()
        return config.algorithm.build(config.cluster.workers), cluster
    except (ConfigError, InvalidSettingError):
        return None


def _own_entries(document: Any) -> Iterator[tuple[str, str]]:
    """The modules of entries of one's own in a part of a config, with the SHA-256 of their
    sources.
    """
    if isinstance(document, list):
        for one in document:
            yield from _own_entries(one)
    elif isinstance(document, dict):
        if "sha256" in document:
            name = next(
                value for value in document.values() if isinstance(value, str) and ":" in value
            )
            yield name.partition(":")[0], document["sha256"]
        for value in document.values():
            yield from _own_entries(value)


def _is_unchanged(module: str, sha256: str) -> bool:
    """Whether a module has the same sources still; of one without a file, as a notebook, `parse`
    finds out.
    """
    try:
        return (hash_of_sources(module) or sha256) == sha256
    except OSError:
        return False


def name_of(result: Result) -> dict[str, Any]:
    """The columns that name a result in a table: what was swept, else its method."""
    return dict(result.labels) or {"method": method(result)}


def compare(theory: float, measured: float) -> dict[str, float]:
    """The columns `theory`, `measured` and `ratio` of measured to theory, NaN where theory is 0 or
    NaN.
    """
    return {
        "theory": theory,
        "measured": measured,
        "ratio": measured / theory if theory else math.nan,
    }
