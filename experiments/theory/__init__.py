"""Closed forms of staleness, seconds per update and stability, found by the algorithm's class."""

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
    """A closed form for each class of algorithm; the algorithm of a plugin registers its own.

    A derived class may behave differently: it has no form until it registers one.

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
        """Register a function as the closed form of classes. It returns None where it does not
        hold.
        """

        def register(form: Form) -> Form:
            self._forms.update(dict.fromkeys(classes, form))
            return form

        return register

    def __call__(self, algorithm: Algorithm, *setting: Any) -> Found | None:
        """The value of the closed form in a setting; None where there is no form."""
        form = self._forms.get(type(algorithm))
        if form is None:
            return None
        return form(algorithm, *setting)


def build_algorithm(config: Any) -> tuple[Algorithm, Cluster] | None:
    """The algorithm and the cluster of a config; None if they cannot be built.

    They cannot be built for an object that is no `Config`, or if a plugin's module, or a file that
    the config names, is missing or has changed since the run. A result does not hold the sources of
    plugins: they are looked for on Python's path and in the current directory.
    """
    if not isinstance(config, Config):
        return None
    document = {"algorithm": config.algorithm.model_dump(), "cluster": config.cluster.model_dump()}
    plugins = dict(_plugins(document))
    stored = config
    if plugins:
        look_in(Path.cwd())
        try:
            for module, sha256 in plugins.items():
                if not _is_unchanged(module, sha256):
                    return None
            config = parse(document)
        except ConfigError:
            return None
    try:
        # with the stored task: the seconds of a mini-batch may depend on it
        cluster = stored.model_copy(update={"cluster": config.cluster}).build_cluster()
        return config.algorithm.build(config.cluster.workers), cluster
    except (ConfigError, InvalidSettingError):
        return None


def _plugins(document: Any) -> Iterator[tuple[str, str]]:
    """The modules of the plugins in a part of a config, with the SHA-256 of their sources."""
    values: list[Any] = []
    if isinstance(document, list):
        values = document
    elif isinstance(document, dict):
        values = list(document.values())
        if "sha256" in document:
            texts = [value for value in values if isinstance(value, str)]
            name = next(text for text in texts if ":" in text)
            yield name.partition(":")[0], document["sha256"]
    for value in values:
        yield from _plugins(value)


def _is_unchanged(module: str, sha256: str) -> bool:
    """Whether a module's sources are unchanged; `parse` checks one without a file (a notebook)."""
    try:
        return (hash_of_sources(module) or sha256) == sha256
    except OSError:
        return False


def name_of(result: Result) -> dict[str, Any]:
    """The columns that name a result in a table: what was swept, else its method."""
    return dict(result.labels) or {"method": method(result)}


def compare(theory: float, measured: float) -> dict[str, float]:
    """The columns `theory`, `measured` and their `ratio`, NaN where theory is 0 or NaN."""
    ratio = math.nan
    if theory:
        ratio = measured / theory
    return {"theory": theory, "measured": measured, "ratio": ratio}
