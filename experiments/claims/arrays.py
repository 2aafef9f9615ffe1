"""The arrays that a claim is decided by: taken from its runs, stored beside its row, and read back
without the runs.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from laggard.experiments.results.files import ResultError, whole_file
from laggard.experiments.results.result import Result

PROBE = "probe"
"""The name of the array of a study that has a probe instead of runs."""


@dataclass(frozen=True)
class StudyArrays:
    """A study as `decide` sees it: statistics of its runs, each of which is computed once and kept.

    Attributes:
        results: its runs; None where only the arrays are at hand.
        arrays: what has been taken from them, by the statistic and its arguments.
    """

    results: Sequence[Result] | None
    arrays: dict[str, xr.DataArray] = field(default_factory=dict)

    def take(self, name: str, compute: Callable[[Sequence[Result]], xr.DataArray]) -> xr.DataArray:
        """The array called `name`, computed from the runs unless it is there.

        Raises:
            ResultError: it is not there, and there are no runs.
        """
        if name not in self.arrays:
            if self.results is None:
                raise ResultError(
                    f"{name}: is not among the stored arrays; reproduce the claim to compute it"
                )
            self.arrays[name] = compute(self.results)
        return self.arrays[name]


Statistic = Callable[..., xr.DataArray]


def statistic(function: Statistic) -> Statistic:
    """Have a statistic of runs also take a `StudyArrays`, which keeps what it gives."""
    given = signature(function)

    @wraps(function)
    def of_study(results: Any, *args: Any, **kwargs: Any) -> xr.DataArray:
        if not isinstance(results, StudyArrays):
            return function(results, *args, **kwargs)
        _, *said = given.bind(results, *args, **kwargs).arguments.items()
        name = f"{function.__name__}({', '.join(f'{key}={value!r}' for key, value in said)})"
        return results.take(name, lambda runs: function(runs, *args, **kwargs))

    return of_study


def as_studies(found: Mapping[str, Any]) -> dict[str, StudyArrays]:
    """What studies gave, runs or the array of a probe, as `decide` takes it."""
    return {
        name: StudyArrays(None, {PROBE: given})
        if isinstance(given, xr.DataArray)
        else StudyArrays(given)
        for name, given in found.items()
    }


def probed(study: StudyArrays) -> xr.DataArray:
    """The array of a study that has a probe instead of runs."""
    return study.arrays[PROBE]


def write_arrays(path: Path, studies: Mapping[str, StudyArrays]) -> None:
    """Store what was taken from the studies: by study and statistic, dimensions, coordinates and
    numbers.
    """
    document = {
        name: {key: _as_document(array) for key, array in sorted(study.arrays.items())}
        for name, study in studies.items()
        if study.arrays
    }
    with whole_file(path) as part:
        part.write_text(
            json.dumps(document, indent=None, separators=(",", ":")) + "\n", encoding="utf-8"
        )


def read_arrays(path: Path) -> dict[str, StudyArrays] | None:
    """The studies whose arrays were stored in a file; None where it is not there.

    Raises:
        ResultError: the file holds something else.
    """
    if not path.is_file():
        return None
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return {
            name: StudyArrays(None, {key: _as_array(array) for key, array in arrays.items()})
            for name, arrays in document.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ResultError(
            f"{path}: holds no arrays of a claim ({error}); remove it, and reproduce again"
        ) from None


def _as_document(array: xr.DataArray) -> dict[str, Any]:
    coords = {str(name): array[name].values.tolist() for name in array.dims}
    return {"dims": list(array.dims), "coords": coords, "values": _strict(array.values.tolist())}


def _as_array(document: Mapping[str, Any]) -> xr.DataArray:
    return xr.DataArray(
        np.array(document["values"], float), dims=document["dims"], coords=document["coords"]
    )


def _strict(values: Any) -> Any:
    """Numbers that JSON has as they are, and those that it lacks as texts: nan, inf, -inf."""
    if isinstance(values, list):
        return [_strict(value) for value in values]
    return values if math.isfinite(values) else str(values)
