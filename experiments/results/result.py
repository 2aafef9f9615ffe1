"""A finished run, read lazily: a file is read and checked when it is first used."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from laggard.experiments.config.config import Config, digest_of_settings, parse
from laggard.experiments.config.errors import ConfigError
from laggard.experiments.config.files import hash_of
from laggard.experiments.config.grid import RunSpec
from laggard.experiments.results.files import ResultError, read_table, read_weights
from laggard.experiments.results.store import (
    FILES,
    MANIFEST,
    MESSAGES,
    MODELS,
    NOTES,
    OPTIONAL,
    RESTORES,
    read_manifest,
)
from laggard.models.published import hash_of_files
from laggard.simulator.recording.messages import MESSAGE_COLUMNS
from laggard.simulator.recording.outcome import NOTE_COLUMNS, RESTORE_COLUMNS

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor


class TimeWindow(NamedTuple):
    """An interval of virtual time (s), with its start and without its end."""

    start: float = 0.0
    end: float = math.inf

    def meets(self, begins: "pd.Series", ends: "pd.Series") -> "pd.Series":
        """Whether each interval overlaps the window."""
        return (begins < self.end) & (ends >= self.start)


class Shown:
    """Tables, figures and exports of `Result` and `Results`.

    The modules that make them import this one, so they are imported here by name, on first use.
    None of them imports torch.
    """

    def table(
        self,
        rows: Sequence[str] | None = None,
        columns: str | None = None,
        value: Sequence[str] | None = None,
        target: float | None = None,
        best: Sequence[str] | None = None,
        by: str | None = None,
        against: Mapping[str, Any] | None = None,
        format: str | None = None,
    ) -> "pd.DataFrame | str":
        """The table that `laggard table` prints, its cells as text; `attrs` holds `question` and
        `notes`.

        Args:
            rows: keys whose settings are rows. Default: all swept keys but seeds.
            columns: a key whose settings are columns.
            value: the measures, such as `accuracy`, `time_to` and `staleness`.
            target: test accuracy (0 to 1) or test loss that `time_to` and its like wait for.
            best: keys of which each row has only the best setting.
            by: `accuracy`, `loss`, `time` or `updates`, which decides the best setting.
            against: settings from which cells are differences, as in `{"method": "sync"}`.
            format: `text`, `markdown`, `csv` or `latex`, for what the command prints.

        Raises:
            ValueError: a key, value or seed is unknown, or a swept key is in neither `rows` nor
                `columns`.
        """
        tables = import_module("laggard.experiments.results.tables")
        if format is not None and format not in tables.FORMATS:
            raise ValueError(f"format: expected one of {', '.join(tables.FORMATS)}, got {format}")
        table = tables.tabulate(self, rows, columns, value, target, best, by, against)
        if format is not None:
            text: str = tables.FORMATS[format](table)
            return text
        frame: pd.DataFrame = table.frame
        return frame

    @property
    def summary(self) -> "pd.DataFrame":
        """A row per run and member, indexed by `run`: `laggard.summary` with `wall_seconds`."""
        frame: pd.DataFrame = _notebook().timed_summary(self)
        return frame

    @property
    def plot(self) -> Any:
        """The figures by name, as in `results.plot.staleness()`; `results.plot()` draws
        `comparison`.
        """
        return _notebook().Plots(self)

    def export(self, to: str, folder: "str | Path") -> Path:
        """Write each run and member for another program into a folder; return the folder.

        Args:
            to: tensorboard, wandb (offline, for `wandb sync`) or mlflow.

        Raises:
            ConfigError: the program is unknown or not installed.
        """
        exporters = import_module("laggard.experiments.exporters")
        path: Path = exporters.write_runs(self, to, folder)
        return path

    def _repr_html_(self) -> str:
        return str(_notebook().html_of(self))


def _notebook() -> Any:
    return import_module("laggard.experiments.notebook")


@dataclass(frozen=True)
class Result(Shown):
    """A finished run; a file is checked against the manifest when it is first used.

    Attributes:
        path: its folder.
        manifest: the hashes of its files, and how the run ended.
        labels: its coordinates in the sweep, if it belongs to one.
        given: the run's config, if it has been parsed already.
        only: the members to which the result is restricted; None for all.

    Raises:
        ResultError: a file is missing or was changed; names the file.
    """

    path: Path
    manifest: Mapping[str, Any]
    labels: Mapping[str, Any] = field(default_factory=dict)
    given: Config | None = None
    only: Sequence[int] | None = None
    # shared by copies that `replace` makes: a file is checked once for all of them
    _checked: set[str] = field(default_factory=set, repr=False, compare=False)

    @cached_property
    def config(self) -> Config:
        """The resolved config."""
        if self.given is not None:
            return self.given
        settings = self.manifest["settings"]
        try:
            config = parse(settings, stored=True)
        except ConfigError as error:
            problem = ": ".join(filter(None, (error.key, error.problem)))
            message = f"{self.path / MANIFEST}: this version cannot read it: {problem}"
            raise ResultError(message) from None
        if digest_of_settings(settings) != self.manifest["resolved"]:
            raise ResultError(f"{self.path / MANIFEST}: its digest is not the one of its settings")
        return config

    def file(self, name: str) -> Path:
        """The path of one of its files, after a check of its hash on first use.

        Raises:
            ResultError: it is missing or was changed.
        """
        path = self.path / name
        if name in self._checked:
            return path
        if not path.is_file():
            raise ResultError(f"{path}: missing, though {MANIFEST} lists it: run it again")
        if hash_of(path) != self.manifest["files"].get(name):
            problem = f"its SHA-256 is not the one in {MANIFEST}"
            raise ResultError(f"{path}: it was changed after the run: {problem}")
        self._checked.add(name)
        return path

    def verify(self) -> "Result":
        """Check every file that was not checked yet; return the result itself.

        Raises:
            ResultError: a file is missing or was changed.
        """
        for name in FILES:
            self.file(name)
        for name in OPTIONAL:
            if self._has(name):
                self.file(name)
        return self

    def setting(self, key: str) -> Any:
        """The value of a dotted key of the stored config, which is not checked.

        Raises:
            ValueError: the config has no such key.
        """
        value: Any = self.manifest["settings"] if self.given is None else self.given
        for name in key.split("."):
            try:
                value = value[name] if isinstance(value, Mapping) else getattr(value, name)
            except (KeyError, AttributeError):
                raise ValueError(f"{key}: the config of the run has no such key") from None
        return value

    @property
    def version(self) -> str:
        """The version of laggard that simulated it."""
        return str(self.manifest["versions"]["laggard"])

    @property
    def tables(self) -> list[str]:
        """The names of its tables' files."""
        return [name for name in self.manifest["files"] if name.endswith(".parquet")]

    @cached_property
    def metrics(self) -> "pd.DataFrame":
        """A row per evaluation and member: `time` (s), `updates`, `samples`, `epoch`, `bytes`,
        `member`, `train_loss`, the task's measures, and a column per swept key.
        """
        return self._select_members(self._table("metrics")).assign(**self.labels)

    @cached_property
    def updates(self) -> "pd.DataFrame":
        """A row per gradient that has ended: `time` (s, of that end), `worker`, `target` (the node
        at whose model it was taken), `started` and `computed` (s), `version_read`, `version`,
        `staleness`, `mixings` (of that model since the read), `status`, `arrived` (s, first at
        another node; NaN where messages were not recorded). Shards and stages of a pipeline have a
        row each.
        """
        return self._table("updates")

    @cached_property
    def workers(self) -> "pd.DataFrame":
        """A row per `worker`: seconds `computing`, `sending`, `waiting`, `down`."""
        return self._table("workers")

    @cached_property
    def nodes(self) -> "pd.DataFrame":
        """A row per evaluation, node and member, where nodes have models of their own: `time` (s),
        `updates`, `node`, `member`, `distance` to the mean model, push-sum `weight`, under
        `evaluate.nodes` the task's measures, and a column per swept key of the ensemble.
        """
        return self._select_members(self._table("nodes"))

    @cached_property
    def messages(self) -> "pd.DataFrame":
        """A row per message in order of sending, with `record.messages`; else empty.

        `sent`, `arrived` (s; NaN where it was lost or is in flight), `sender`, `receiver`, `bytes`,
        `status`, `content` (token, weights, gradient, sum, other), `gradients` (the number it
        carries), `gradient` (the row in `updates` of the first, or -1).
        """
        return self._optional_table(MESSAGES, MESSAGE_COLUMNS)

    @cached_property
    def restores(self) -> "pd.DataFrame":
        """A row per crash of a server: `time` and `back` (s; NaN where the run ended before),
        `server`, `version` (updates it had made), `lost` (updates it lost); empty where no server
        crashes.
        """
        return self._optional_table(RESTORES, RESTORE_COLUMNS)

    @cached_property
    def notes(self) -> "pd.DataFrame":
        """A row per number that the method noted and member: `time` (s), `updates`, `node` (its
        rank), `name`, `member`, `value`, and a column per swept key of the ensemble; empty where it
        noted none.
        """
        return self._select_members(self._optional_table(NOTES, NOTE_COLUMNS))

    @property
    def has_messages(self) -> bool:
        """Whether the run recorded its messages."""
        return self._has(MESSAGES)

    @cached_property
    def swept(self) -> list[str]:
        """The keys in which the members of its ensemble differ."""
        if not self.setting("sweep"):
            return []
        return list(RunSpec(self.config).members[0])

    @cached_property
    def members(self) -> "pd.DataFrame":
        """A row per member of the ensemble, with its swept values."""
        import pandas as pd

        rows = []
        for member, values in enumerate(RunSpec(self.config).members):
            rows.append({"member": member, **self.labels, **values})
        return self._select_members(pd.DataFrame(rows))

    @cached_property
    def weights(self) -> "Tensor":
        """The final models `(ensemble, params)` of all members."""
        return read_weights(self.file("weights.safetensors"))

    @cached_property
    def models(self) -> "Tensor | None":
        """The evaluated models `(evaluations, ensemble, params)`, with `evaluate.keep_models`, or
        None.
        """
        if not self._has(MODELS):
            return None
        return read_weights(self.file(MODELS))

    def _has(self, name: str) -> bool:
        return name in self.manifest["files"]

    def _table(self, name: str) -> "pd.DataFrame":
        return read_table(self.file(f"{name}.parquet"))

    def _optional_table(self, name: str, columns: Iterable[str]) -> "pd.DataFrame":
        import pandas as pd

        if self._has(name):
            return read_table(self.file(name))
        return pd.DataFrame(columns=list(columns))

    def _select_members(self, table: "pd.DataFrame") -> "pd.DataFrame":
        if self.only is None:
            return table
        selected = table["member"].isin(self.only)
        return table[selected].reset_index(drop=True)


def open_run(path: str | Path) -> Result:
    """The finished run in a folder; only its manifest is read.

    Raises:
        ResultError: there is no finished run, or its manifest was changed or has another schema.
    """
    path = Path(path)
    try:
        return Result(path, read_manifest(path / MANIFEST))
    except OSError:
        problem = "no such folder"
        if path.is_dir():
            problem = f"no finished run: it has no {MANIFEST}"
        raise ResultError(f"{path}: {problem}") from None


def load_result(path: str | Path) -> Result:
    """The finished run in a folder; every file is checked against the manifest.

    Raises:
        ResultError: there is no finished run, or a file is missing, was changed, or has another
            schema.
    """
    result = open_run(path).verify()
    return replace(result, given=result.config)


def find_run(spec: RunSpec, out: str | Path) -> Result | None:
    """The finished run of `spec` in `out`; None unless it is intact and records what the config
    asks.

    If the files of its data set exist, their hash must be that in the manifest.
    """
    try:
        result = open_run(spec.folder(out))
        if result.manifest["config"] != spec.digest:
            return None
        if spec.config.record.messages and not result.has_messages:
            return None
        data = hash_of_data(spec.config)
        if data is not None and result.manifest.get("data", data) not in (data, None):
            return None
        return replace(result.verify(), given=spec.config, labels=spec.labels)
    except ResultError:
        return None


def hash_of_data(config: Config) -> str | None:
    """The hash of the files of a published data set, such as MNIST, if they exist."""
    dataset = getattr(config.task, "dataset", None)
    if dataset is None:
        return None
    return hash_of_files(dataset.name)
