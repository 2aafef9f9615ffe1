"""A claim of a paper: the question, the runs that answer it, the numbers taken from them, and what
decides it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import xarray as xr

from laggard.experiments.claims.arrays import StudyArrays
from laggard.experiments.claims.exhibits import ClaimTable, Picture
from laggard.experiments.claims.statistics import SEED, at, mean
from laggard.experiments.config.document import put
from laggard.experiments.config.errors import ConfigError

Scale = Literal["smoke", "cpu", "paper"]
Basis = Literal["clock", "quadratic", "network"]
"""What a claim is shown on: the clock and the rules by themselves, a quadratic, or a network that
is trained.
"""


@dataclass(frozen=True)
class Paper:
    """Where a claim comes from.

    Attributes:
        key: what the paper is called on the command line, and its module: first author and year.
    """

    key: str
    authors: str
    year: int
    title: str
    where: str


@dataclass(frozen=True)
class Tuning:
    """Which runs choose the learning rate of these: the best of each setting, on seeds of their
    own.

    Attributes:
        on: the name of the runs that choose.
        over: the dotted key that is chosen.
        by: as `best` has it.
    """

    on: str
    over: str = "learning.lr"
    by: Literal["accuracy", "loss"] | None = None


@dataclass(frozen=True)
class Study:
    """Some runs of a claim: a config, and what each scale changes in it, by dotted keys.

    A scale that changes nothing has the config as it is.

    Attributes:
        tuned: by which other runs a learning rate is chosen for these.
        probe: what is computed along the runs in place of results: see `probes`; `decide` gets an
            array of it.
    """

    config: Mapping[str, Any]
    smoke: Mapping[str, Any] = field(default_factory=dict)
    cpu: Mapping[str, Any] = field(default_factory=dict)
    paper: Mapping[str, Any] = field(default_factory=dict)
    tuned: Tuning | None = None
    probe: Literal["closeness", "expansions", "leaving", "momentum", "variation"] | None = None

    def document(self, scale: Scale) -> dict[str, Any]:
        """The config's document at a scale.

        Raises:
            ConfigError: a changed key leads through something that holds no keys.
        """
        document: dict[str, Any] = dict(self.config)
        for key, value in getattr(self, scale).items():
            try:
                if key.startswith("sweep."):  # its own keys have dots in them
                    document["sweep"] = {
                        **document.get("sweep", {}),
                        key.removeprefix("sweep."): value,
                    }
                else:
                    document = put(document, key, value)
            except ConfigError as error:
                raise error.relocate(key=f"{scale}.{key}") from None
        return document


@dataclass(frozen=True)
class Joint:
    """A number that all seeds make together, as the setting at which their mean is least.

    Attributes:
        number: the number, of an array that has the dimension `seed`; further dimensions are left
            as they are.
        values: that array.
    """

    number: Callable[[xr.DataArray], xr.DataArray]
    values: xr.DataArray

    @property
    def value(self) -> xr.DataArray:
        """The number of the seeds that there are."""
        return self.number(self.values)

    def resample(self, draws: int) -> tuple[float, ...]:
        """The numbers that bootstrap samples of the seeds make.

        Each sample takes as many seeds as there are, with replacement, the same ones for all
        settings, for they are paired.

        Source: Efron (1979), Annals of Statistics 7.
        """
        count = self.values.sizes[SEED]
        generators = (np.random.default_rng([draw, count]) for draw in range(draws))
        chosen = xr.DataArray(
            [rng.integers(count, size=count) for rng in generators], dims=("draw", SEED)
        )
        return tuple(self.number(self.values.isel({SEED: chosen})).values.tolist())


def ratio_of_means(above: xr.DataArray, below: xr.DataArray) -> Joint:
    """The mean over seeds of one number over that of another: mean(above) / mean(below).

    The mean of each seed's ratio is another number: above 1 where both come from one distribution,
    the more so the more it varies. Where the mean below is infinite, as of a time that was not
    always reached, there is no ratio.

    Args:
        above, below: positive numbers, one a seed, of the same seeds.
    """

    def ratio(values: xr.DataArray) -> xr.DataArray:
        divisor = mean(at(values, part="below"))
        return mean(at(values, part="above")) / divisor.where(np.isfinite(divisor))

    return Joint(ratio, xr.concat([above, below], xr.Variable("part", ["above", "below"])))


StudyResults = Mapping[str, StudyArrays]
"""By the study's name, the statistics of its runs, or the array that its probe gave."""
NumberArrays = Mapping[str, xr.DataArray | Joint]
"""By name, what a claim's `decide` takes from its results: a number a seed, one number, or what the
figure shows.
"""


@dataclass(frozen=True)
class Criterion:
    """An inequality that was fixed before the runs: a number from each seed, and the bar that it
    must not pass.

    Attributes:
        number: its name among the numbers of `decide`, with at most the seeds left as a dimension.
        says: what it asks for, in words.
        at_most, at_least: the bar, or both of them.
        control: whether it asks for what the setting needs to say anything, and not for what the
            paper claims.

    Raises:
        ValueError: there is no bar.
    """

    number: str
    says: str
    at_most: float | None = None
    at_least: float | None = None
    control: bool = False

    def __post_init__(self) -> None:
        if self.at_most is None and self.at_least is None:
            raise ValueError(f"{self.says}: expected at_most, at_least or both")

    @property
    def bar(self) -> str:
        """The inequality, as a table shows it."""
        low = "" if self.at_least is None else f">= {self.at_least:g}"
        high = "" if self.at_most is None else f"<= {self.at_most:g}"
        return " and ".join(filter(None, (low, high)))


@dataclass(frozen=True)
class Claim:
    """A claim of a paper, and what decides it.

    Attributes:
        id: the letter of its paper and a number.
        says: what the paper says, in our words.
        basis: what it is shown on.
        mark: how that is known: read in the source, from secondary notes, recalled (context, never
            a bar), or derived.
        setting: in which setting it is tried here, and how that differs from the paper's.
        studies: runs by name.
        decide: from what the studies gave to numbers by name.
        criteria: what decides it; those that are no controls must all hold for the claim to hold.
        beside: numbers that are shown without a bar, each with what it is: counter-evidence, and
            the other question.
        notes: what a reader of the verdict must know.
        headline: what the first criterion's number is, in a few words.
        did: the setting in a sentence, for a card.
        changes: what was changed after a verdict had been seen, the first change first.
        grid: accuracies over `delay`, `optimiser`, `lr`, `seed` and perhaps `batch`, where they
            have a figure too.
    """

    id: str
    paper: Paper
    question: str
    says: str
    basis: Basis
    mark: Literal["read", "notes", "recalled", "derived"]
    setting: str
    studies: Mapping[str, Study]
    decide: Callable[[StudyResults], NumberArrays]
    criteria: tuple[Criterion, ...]
    beside: Mapping[str, str] = field(default_factory=dict)
    figure: Picture | None = None
    table: ClaimTable | None = None
    notes: str = ""
    headline: str = ""
    did: str = ""
    changes: tuple[str, ...] = ()
    grid: Callable[[StudyResults], xr.DataArray] | None = None

    @property
    def place(self) -> tuple[str, int]:
        """Where the claim stands in the order of all: A2 before A10 before B1."""
        return self.id[0], int(self.id[1:])


def paragraph(text: str) -> str:
    """A text that is written on several lines as one line, with single spaces."""
    return " ".join(text.split())


def log_grid(first: float, last: float, per_decade: int) -> list[float]:
    """Settings from `first` to `last`, so many a decade, to three digits.

    Example:
        >>> log_grid(0.001, 0.01, 4)
        [0.001, 0.00178, 0.00316, 0.00562, 0.01]
    """
    count = round(per_decade * np.log10(last / first)) + 1
    return [float(f"{first * 10 ** (step / per_decade):.3g}") for step in range(count)]
