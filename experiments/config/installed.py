"""Plugins of installed packages, by the names that packages give them (entry points).

A package names them in its metadata, in a group for each kind, `laggard.algorithm` and so on:

    [project.entry-points."laggard.algorithm"]
    my_method = "my_package.module:MyMethod"

A config then has `algorithm: my_method`. No package is imported before a config names its entry.
"""

import os
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
    return [entry for entry in _all_entries(_packages_on_path()) if entry.group in groups]


def describe_owner(entry: EntryPoint) -> str:
    """The package of an entry point."""
    if entry.dist is None:
        return "an unknown package"
    return f"{entry.dist.name} {entry.dist.version}"


@lru_cache(maxsize=4)
def _all_entries(packages: tuple[tuple[str, int], ...]) -> list[EntryPoint]:
    """The entry points of laggard's groups of all packages on Python's path.

    Reading them takes 10 ms and more, so they are read again only if `packages` have changed.
    """
    found = entry_points()
    groups = [group for group in found.groups if group.startswith(GROUP_PREFIX)]
    return [entry for group in groups for entry in found.select(group=group)]


def _packages_on_path() -> tuple[tuple[str, int], ...]:
    """The places of Python's path that may hold packages, and when each was last changed.

    Each config adds its folder to the path, and such a folder rarely holds a package.
    """
    places = [(place, _last_change(place)) for place in sys.path]
    return tuple(each for each in places if _may_hold_packages(*each))


def _last_change(place: str) -> int:
    try:
        return os.stat(place).st_mtime_ns  # noqa: PTH116, making a Path takes longer than the call
    except OSError:
        return 0


@lru_cache(maxsize=1024)
def _may_hold_packages(place: str, changed: int) -> bool:
    """Whether metadata of a package may lie in a place of the path, last changed at `changed`."""
    try:
        names = os.listdir(place)  # noqa: PTH208, as above
    except OSError:  # an archive, the current directory as an empty name, or nothing
        return True
    return any(name.lower().endswith(("-info", ".egg")) for name in names)
