"""Plugins of installed packages, by a name of their own: entry points, as packaging tools call them.

A package names them in its metadata, in a group for each kind, `laggard.algorithm` and so on:

    [project.entry-points."laggard.algorithm"]
    my_method = "my_package.module:MyMethod"

A config then has `algorithm: my_method`. No package is imported before a config names its entry.
"""

import sys
from collections.abc import Iterable
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points

from laggard.experiments.config.errors import ConfigError

GROUP_PREFIX = "laggard."


def find_installed(name: str, kinds: Iterable[type]) -> str | None:
    """The `module:Name` behind the name of an installed plugin, else None.

    Raises:
        ConfigError: two packages have that name.
    """
    entries = [entry for entry in installed_plugins(kinds) if entry.name == name]
    values = {entry.value for entry in entries}
    if len(values) > 1:
        owners = " and ".join(sorted(describe_owner(entry) for entry in entries))
        remedy = f"name one as {' or '.join(sorted(values))}"
        raise ConfigError("", f"expected one package with {name}, got {owners}: {remedy}")
    return next(iter(values), None)


def installed_plugins(kinds: Iterable[type]) -> list[EntryPoint]:
    """The entry points of all packages that can serve as one of `kinds`."""
    groups = {f"{GROUP_PREFIX}{kind.__name__.lower()}" for kind in kinds}
    return [entry for entry in _all_entries(tuple(sys.path)) if entry.group in groups]


def describe_owner(entry: EntryPoint) -> str:
    """The package that an entry point is of."""
    if entry.dist is None:
        return "an unknown package"
    return f"{entry.dist.name} {entry.dist.version}"


@lru_cache(maxsize=4)
def _all_entries(path: tuple[str, ...]) -> list[EntryPoint]:
    """The entry points of laggard's groups of all packages on a path; reading them takes 10 ms."""
    found = entry_points()
    groups = [group for group in found.groups if group.startswith(GROUP_PREFIX)]
    return [entry for group in groups for entry in found.select(group=group)]
