"""The claims, a module a paper: what it says, the runs that try it, and the numbers that decide
it.
"""

from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from runpy import run_path

from laggard.experiments.claims.claim import Claim
from laggard.experiments.config.errors import ConfigError, suggest


def claims(names: Sequence[str] = (), folder: str | Path | None = None) -> list[Claim]:
    """The claims called `names`, by their id, their letter or their paper's key; all of them by
    default, in order.

    Args:
        folder: where modules with claims lie, each with a tuple `CLAIMS`; by default laggard's own.

    Raises:
        ConfigError: a name that is none, or a folder without claims.
    """
    found = sorted(_own() if folder is None else _of(Path(folder)), key=lambda claim: claim.place)
    there = {name for claim in found for name in _names(claim)}
    for name in names:
        if name not in there:
            hint = suggest(name, there) or f"expected one of {', '.join(sorted(there))}"
            raise ConfigError(name, f"no such claim or paper; {hint}")
    return [claim for claim in found if not names or _names(claim) & set(names)]


def _names(claim: Claim) -> set[str]:
    return {claim.id, claim.id[0], claim.paper.key}


def _own() -> Iterator[Claim]:
    for module in iter_modules(__path__):
        yield from import_module(f"{__name__}.{module.name}").CLAIMS


def _of(folder: Path) -> Iterator[Claim]:
    """The claims of the modules that lie in a folder.

    Raises:
        ConfigError: there are none.
    """
    paths = sorted(folder.glob("*.py"))
    if not paths:
        raise ConfigError("", "expected modules with claims there", str(folder))
    for path in paths:
        # From the source: bytecode of an older version that is of the same second and size would
        # pass for this one.
        yield from run_path(str(path), run_name=f"claims_of_{path.stem}")["CLAIMS"]
