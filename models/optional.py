"""Packages that only some features need: laggard's extras install them."""

from importlib import import_module
from types import ModuleType


class MissingPackageError(ImportError):
    """A package of one of laggard's extras is not installed."""


def import_optional(module: str, extra: str) -> ModuleType:
    """Import a module of a package that only some features need.

    Args:
        module: its full name, such as `sklearn.datasets`.
        extra: the extra of laggard that installs the package.

    Raises:
        MissingPackageError: the package is not installed.
    """
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != package:  # the package is there, but lacks one of its own dependencies
            raise
        message = f"{package} is not installed: pip install 'laggard[{extra}]'"
        raise MissingPackageError(message, name=package) from None
