"""A claim of a paper as its YAML has it: the question, the runs that answer it, and the criterion that decides."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from experiments.claims.statistics import STATISTICS
from experiments.documents import put, read
from experiments.errors import ConfigError, Refused, meant, translated
from experiments.schema import Part

FOLDER = Path(__file__).parents[2] / "configs" / "claims"
PAPERS = "papers.yaml"
SCALES = ("smoke", "cpu", "paper")
Scale = Literal["smoke", "cpu", "paper"]
Number = Annotated[float, Field(allow_inf_nan=False, strict=False)]


class Paper(Part):
    """Where a claim comes from."""

    authors: str
    year: int
    title: str
    where: str


class Tuning(Part):
    """Which runs choose the learning rate of these: the best of each setting, on seeds of their own.

    Attributes:
        on: the name of the runs that choose.
        over: the dotted key that is chosen.
        by: accuracy, loss, time or updates, as `best` has it.
        target: of time and updates.
    """

    on: str
    over: str = "learning.lr"
    by: Literal["accuracy", "loss", "time", "updates"] | None = None
    target: Number | None = None


class Study(Part):
    """Some runs of a claim: a config, and what each scale changes in it, by dotted keys.

    A scale that is not there has the config as it is.

    Attributes:
        tuned: by which other runs a learning rate is chosen for these.
        probe: what is computed along the runs in place of results: see `probes`; expressions know it as an array.
    """

    config: dict[str, Any]
    smoke: dict[str, Any] = Field({})
    cpu: dict[str, Any] = Field({})
    paper: dict[str, Any] = Field({})
    tuned: Tuning | None = None
    probe: Literal["closeness", "momentum"] | None = None

    def document(self, scale: Scale) -> dict[str, Any]:
        """The config's document at a scale.

        Raises:
            ConfigError: a changed key leads through something that holds no keys.
        """
        document: dict[str, Any] = dict(self.config)
        for key, value in getattr(self, scale).items():
            try:
                if key.startswith("sweep."):  # its own keys have dots in them
                    document["sweep"] = {**document.get("sweep", {}), key.removeprefix("sweep."): value}
                else:
                    document = put(document, key, value)
            except Refused as error:
                raise ConfigError(f"{scale}.{key}", error.problem) from None
        return document


class Criterion(Part):
    """An inequality that was fixed before the runs: a number from each seed, and the bar that it must not pass.

    Attributes:
        says: what it asks for, in words.
        value: an expression over the statistics, with at most the seeds left as a dimension.
        at_most, at_least: the bar, or both of them.
    """

    says: str
    value: str
    at_most: Number | None = None
    at_least: Number | None = None

    @model_validator(mode="after")
    def _has_a_bar(self) -> Self:
        if self.at_most is None and self.at_least is None:
            raise Refused("at_most", "expected at_most, at_least or both")
        return self

    @property
    def bar(self) -> str:
        """The inequality, as a table shows it."""
        low = "" if self.at_least is None else f">= {self.at_least:g}"
        high = "" if self.at_most is None else f"<= {self.at_most:g}"
        return " and ".join(filter(None, (low, high)))


class Picture(Part):
    """The claim's figure: a statistic against one of its keys, a line for each value of another.

    Attributes:
        of: the statistic.
        x: its key along the axis; `log` where that is logarithmic.
        lines: its key that tells lines apart.
        label: what a line is called, with its value for `{}`; by default a name by itself, and a number with its key.
        y: what the axis upwards is called.
        lost: what is said of seeds whose value is infinite: that they never got there, or diverged.
    """

    of: str
    x: str
    lines: str | None = None
    label: str | None = None
    y: str
    xlabel: str | None = None
    log_x: bool = False
    log_y: bool = False
    lost: Literal["never", "diverged"] = "never"


class Claim(Part):
    """A claim of a paper, and what decides it.

    Attributes:
        id: the letter of its paper and a number.
        paper: its key in `papers.yaml`.
        says: what the paper says, in our words; `mark` is how that is known: read in the source, from secondary notes,
            recalled (context, never a bar), or derived.
        setting: in which setting it is tried here, and how that differs from the paper's.
        studies: runs by name; expressions know their results by it.
        statistics: expressions by name, each over the studies and the statistics before it.
        criteria: all must hold for the claim to be reproduced.
        beside: expressions that are shown without a bar: counter-evidence, and the other question.
        notes: what a reader of the verdict must know.
    """

    id: Annotated[str, Field(pattern=r"^[A-Z]\d+$")]
    question: str
    paper: str
    says: str
    mark: Literal["read", "notes", "recalled", "derived"]
    setting: str
    studies: Annotated[dict[str, Study], Field(min_length=1)]
    statistics: dict[str, str] = Field({})
    criteria: Annotated[list[Criterion], Field(min_length=1)]
    beside: dict[str, str] = Field({})
    figure: Picture | None = None
    notes: str = ""

    @model_validator(mode="after")
    def _names_are_its_own(self) -> Self:
        for part, names in (("studies", self.studies), ("statistics", self.statistics)):
            for name in names:
                taken = "a function" if name in STATISTICS else "a study" if part == "statistics" else ""
                if taken == "a function" or (taken and name in self.studies):
                    raise Refused(f"{part}.{name}", f"is the name of {taken} already: call it something else")
        return self


def claims(names: Sequence[str] = (), folder: Path = FOLDER) -> list[Claim]:
    """The claims called `names`, by their id or by their paper's; all of them by default, in order.

    Raises:
        ConfigError: a file that is no claim, or a name that is none.
    """
    if not folder.is_dir():
        raise ConfigError("", "no claims there; they are part of laggard's repository, not of its package", str(folder))
    paths = [path for path in folder.glob("*.yaml") if path.name != PAPERS]
    found = sorted((_read(path) for path in paths), key=lambda claim: (claim.id[0], int(claim.id[1:])))
    known = papers(folder)
    for claim in found:
        if claim.paper not in known:
            problem = f"no paper of {PAPERS}; {meant(claim.paper, known) or 'add it there'}"
            raise ConfigError("paper", f"{claim.paper!r} is {problem}", f"{claim.id}.yaml")
    all_names = {*(claim.id for claim in found), *(claim.paper for claim in found), *(each.id[0] for each in found)}
    for name in names:
        if name not in all_names:
            hint = meant(name, all_names) or f"expected one of {', '.join(sorted(all_names))}"
            raise ConfigError(name, f"no such claim or paper; {hint}")
    return [claim for claim in found if not names or {claim.id, claim.paper, claim.id[0]} & set(names)]


def papers(folder: Path = FOLDER) -> Mapping[str, Paper]:
    """The papers, by the keys that claims have for them."""
    path = folder / PAPERS
    return {key: _validated(Paper, document, f"{path.name}: {key}") for key, document in read(path).items()}


def _read(path: Path) -> Claim:
    claim = _validated(Claim, read(path), path.name)
    if claim.id != path.stem:
        raise ConfigError("id", f"expected {path.stem}, as the file is called, got {claim.id}", path.name)
    return claim


def _validated(kind: Any, document: Any, where: str) -> Any:
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        raise translated(error, document).moved(where=where) from None
