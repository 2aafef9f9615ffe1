"""Distributions of `scipy.stats`, by name."""

import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from laggard.simulator.errors import InvalidSettingError, Settings
from laggard.simulator.timing.distributions.distribution import Seconds


@dataclass(frozen=True, init=False)
class Scipy(Settings):
    """Any continuous distribution of `scipy.stats`, such as `weibull_min` with its shape `c`.

    X = loc + scale Y, with Y the standard form of the distribution. Its mean must be finite and all
    times positive.

    Attributes:
        name: the distribution's name in `scipy.stats`; its shape parameters are further keys.
        loc: added to every duration (s).
        scale: the unit of the standard form (s).

    Source: Virtanen et al. (2020), `scipy.stats`.
    """

    name: str
    loc: float
    scale: float
    shapes: Sequence[tuple[str, float]]

    def __init__(self, name: str, loc: float = 0.0, scale: float = 1.0, **shapes: float) -> None:
        values = {"name": name, "loc": loc, "scale": scale, "shapes": tuple(shapes.items())}
        for field, value in values.items():
            object.__setattr__(self, field, value)
        super().__post_init__()
        self._check_numbers()
        self._check_times()

    @cached_property
    def _law(self) -> Any:
        """The distribution with its parameters."""
        from scipy import stats

        return getattr(stats, self.name)(loc=self.loc, scale=self.scale, **dict(self.shapes))

    @cached_property
    def mean(self) -> float:
        """The mean, by scipy (s)."""
        return float(self._law.mean())

    @cached_property
    def std(self) -> float:
        """The standard deviation, by scipy (s); infinite for a heavy tail."""
        return float(self._law.std())

    def draw(self, rng: np.random.Generator, n: int) -> Seconds:
        drawn: Seconds = self._law.rvs(size=n, random_state=rng)
        return drawn

    def _check_numbers(self) -> None:
        """Refuse unknown names, and shape parameters that are missing, unknown or no numbers."""
        from scipy import stats

        law = getattr(stats, self.name, None) if isinstance(self.name, str) else None
        if not isinstance(law, stats.rv_continuous):
            laws = vars(stats).items()
            names = [name for name, item in laws if isinstance(item, stats.rv_continuous)]
            close = difflib.get_close_matches(str(self.name), names, n=1)
            expected = "a continuous distribution of scipy.stats, as weibull_min"
            if close:
                expected = f"{expected}; did you mean {close[0]}?"
            raise InvalidSettingError("Scipy", "name", expected, self.name)
        known = [shape.strip() for shape in (law.shapes or "").split(",") if shape]
        given = dict(self.shapes)
        for key, value in {**given, "loc": self.loc, "scale": self.scale}.items():
            if key in given and key not in known:
                wanted = ", ".join(known) or "none"
                expected = f"only the shape parameters of {self.name}: {wanted}"
                raise InvalidSettingError("Scipy", key, expected, value)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number or not math.isfinite(value):
                raise InvalidSettingError("Scipy", key, "a finite number", value)
        for key in known:
            if key not in given:
                expected = f"a number, as a shape parameter of {self.name}"
                raise InvalidSettingError("Scipy", key, expected, None)

    def _check_times(self) -> None:
        """Refuse parameters without a distribution, times that are not positive, infinite means."""
        least = float(self._law.support()[0])
        if math.isnan(least):
            got = {**dict(self.shapes), "scale": self.scale}
            raise InvalidSettingError("Scipy", "name", f"parameters that {self.name} takes", got)
        if least < 0 or self._law.cdf(0.0) > 0:
            expected = f"a distribution of positive times; another loc may shift {self.name}"
            raise InvalidSettingError("Scipy", "name", expected, f"times from {least:g} s on")
        if not 0 < self.mean < math.inf:
            expected = "a distribution with a finite mean"
            raise InvalidSettingError("Scipy", "name", expected, f"{self.name} of mean {self.mean}")
