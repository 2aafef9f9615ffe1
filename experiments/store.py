"""Results on disk: what a run's folder is called, and how it is read back once its manifest vouches for it."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from experiments.config import Config, parse
from experiments.documents import read
from experiments.errors import ConfigError, shown
from experiments.grid import members
from experiments.identity import digest, run_id
from simulator.messages import COLUMNS as MESSAGE_COLUMNS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SCHEMA = 2
MANIFEST = "manifest.json"
TABLES = ("metrics", "updates", "workers", "nodes")
FILES = ("config.yaml", *(f"{table}.parquet" for table in TABLES), "weights.safetensors")
MESSAGES = "messages.parquet"
OPTIONAL = (MESSAGES, "models.safetensors")
"""Files that a run has where its config asks for them; the manifest lists those that it has."""


VOUCHED = {"run": str, "config": str, "status": str, "files": dict, "mileage": dict, "diverged": list}
"""What every manifest says, and in which form."""


class ResultError(ValueError):
    """A folder that is no finished run, or not as its run left it; the text is one line that names the file."""


def folder(config: Config, out: str | Path) -> Path:
    """Where the run is kept: `<out>/<name>/<run id>`."""
    return Path(out) / config.name / run_id(config)


@dataclass(frozen=True)
class Result:
    """A finished run; a file is read when it is first asked for, and refused unless its SHA-256 is the manifest's.

    Attributes:
        path: its folder.
        manifest: what vouches for it, and how it went.
        labels: its coordinates in the sweep that it was run for, if any.
        given: its config, where the one that was run is at hand.
        only: the members that it is restricted to; None for all of them.

    Raises:
        ResultError: on reading a file that is missing or not as the run left it; names the file.
    """

    path: Path
    manifest: Mapping[str, Any]
    labels: Mapping[str, Any] = field(default_factory=dict)
    given: Config | None = None
    only: Sequence[int] | None = None
    _vouched: set[str] = field(default_factory=set, repr=False, compare=False)

    @cached_property
    def config(self) -> Config:
        """As it was resolved."""
        if self.given is not None:
            return self.given
        if "settings" in self.manifest:
            return _config(self.path / MANIFEST, self.manifest["settings"], self.manifest["config"])
        return self._written_config()

    def file(self, name: str) -> Path:
        """The path of one of its files, which is as the run left it.

        Raises:
            ResultError: it is not, or it is missing.
        """
        path = self.path / name
        if name not in self._vouched:
            if not path.is_file():
                raise ResultError(f"{path}: missing, though {MANIFEST} lists it: run it again")
            if hash_of(path) != self.manifest["files"].get(name):
                raise ResultError(f"{path}: not as the run left it: its SHA-256 is not the one in {MANIFEST}")
            self._vouched.add(name)
        return path

    def verified(self) -> "Result":
        """The same, once every file has been found as the run left it.

        Raises:
            ResultError: one is not.
        """
        for name in (*FILES, *(optional for optional in OPTIONAL if optional in self.manifest["files"])):
            self.file(name)
        return self

    @cached_property
    def metrics(self) -> "pd.DataFrame":
        """A row per evaluation and member: `time` (s), `updates`, `samples`, `epoch`, `member`, `train_loss`,
        the task's measures, and a column per swept key.
        """
        return self._of_members(self._table("metrics")).assign(**self.labels)

    @cached_property
    def updates(self) -> "pd.DataFrame":
        """A row per gradient whose fate is known: `time` (s, of that fate), `worker`, `target` (the node at whose model
        it was taken), `started` and `computed` (s), `version_read`, `version`, `staleness`, `mixings` (of that model
        since the read), `status`, `arrived` (s, first at another node; NaN where messages were not recorded). Shards
        and stages of a pipeline have a row each.
        """
        table = self._table("updates")
        return table if "arrived" in table else table.assign(arrived=float("nan"))

    @cached_property
    def workers(self) -> "pd.DataFrame":
        """A row per `worker`: seconds `computing`, `sending`, `waiting`, `down`."""
        return self._table("workers")

    @cached_property
    def nodes(self) -> "pd.DataFrame":
        """A row per evaluation, node and member, where nodes have models of their own: `time` (s), `updates`, `node`,
        `member`, `distance` to the mean model, push-sum `weight`, and under `evaluate.nodes` the task's measures.
        """
        return self._of_members(self._table("nodes"))

    @property
    def tables(self) -> list[str]:
        """The names of its tables' files."""
        return [name for name in self.manifest["files"] if name.endswith(".parquet")]

    @cached_property
    def swept(self) -> list[str]:
        """The keys in which the members of its ensemble differ."""
        return [key for member in members(self.config)[:1] for key in member]

    @cached_property
    def messages(self) -> "pd.DataFrame":
        """A row per message, in the order of their sending; none where `record.messages` did not ask for them.

        `sent`, `arrived` (s; NaN where it was lost or is in flight), `sender`, `receiver`, `bytes`, `status`, `content`
        (token, weights, gradient, sum, other), `gradients` (how many it carries), `gradient` (the row in `updates` of
        the first, or -1).
        """
        if self.recorded:
            return self._table("messages")
        import pandas as pd

        return pd.DataFrame(columns=list(MESSAGE_COLUMNS))

    @property
    def recorded(self) -> bool:
        """Whether the run recorded its messages."""
        return MESSAGES in self.manifest["files"]

    @cached_property
    def members(self) -> "pd.DataFrame":
        """A row per member of the ensemble, with its swept values."""
        import pandas as pd

        rows = [{"member": index, **self.labels, **values} for index, values in enumerate(members(self.config))]
        return self._of_members(pd.DataFrame(rows))

    @cached_property
    def weights(self) -> Tensor:
        """The final models `(ensemble, params)`, of every member."""
        return self._tensor("weights.safetensors")

    @cached_property
    def models(self) -> Tensor | None:
        """The models evaluated `(evaluations, ensemble, params)`, under `evaluate.keep_models`, or None."""
        name = "models.safetensors"
        return self._tensor(name) if name in self.manifest["files"] else None

    def plot(self, path: str | Path | None = None) -> "Figure":
        """The figure of this run by itself, saved to `path` if there is one."""
        from experiments.figures import comparison

        return comparison([self], path=path, target=self.config.evaluate.target_accuracy)

    def _of_members(self, table: "pd.DataFrame") -> "pd.DataFrame":
        return table if self.only is None else table[table["member"].isin(self.only)].reset_index(drop=True)

    def _table(self, name: str) -> "pd.DataFrame":
        import pyarrow as pa
        from pyarrow import parquet

        path = self.file(f"{name}.parquet")
        try:
            return parquet.read_table(path).to_pandas()
        except pa.ArrowException:
            raise ResultError(f"{path}: no Parquet table, though {MANIFEST} vouches for it") from None

    def _tensor(self, name: str) -> Tensor:
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        path = self.file(name)
        try:
            return load_file(path)["weights"]
        except (SafetensorError, KeyError):
            raise ResultError(f"{path}: no safetensors file of weights, though {MANIFEST} vouches for it") from None

    def _written_config(self) -> Config:
        path = self.file("config.yaml")
        try:
            return _config(path, read(path), self.manifest["config"])
        except ConfigError as error:
            raise ResultError(f"{path}: {error.problem}") from None


def opened(path: str | Path) -> Result:
    """The finished run in a folder, by its manifest alone: each file is checked when it is first read.

    Raises:
        ResultError: no finished run, or written in another schema.
    """
    path = Path(path)
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    except OSError:
        raise ResultError(f"{path}: no finished run: it has no {MANIFEST}") from None
    except ValueError:
        raise ResultError(f"{path / MANIFEST}: not the manifest of a run") from None
    if not isinstance(manifest, dict) or "schema" not in manifest:
        raise ResultError(f"{path / MANIFEST}: not the manifest of a run")
    if manifest["schema"] != SCHEMA:
        raise ResultError(f"{path / MANIFEST}: expected schema {SCHEMA}, got {shown(manifest['schema'])}: run it again")
    if not all(isinstance(manifest.get(key), kind) for key, kind in VOUCHED.items()):
        raise ResultError(f"{path / MANIFEST}: not the manifest of a run")
    return Result(path, manifest)


def load_result(path: str | Path) -> Result:
    """The finished run in a folder; every file is checked against the manifest first.

    Raises:
        ResultError: no finished run, written in another schema, or a file that is missing or not the run's own.
    """
    result = opened(path).verified()
    return replace(result, given=result._written_config())


def kept(config: Config, out: str | Path) -> Result | None:
    """The finished run of a config, if it is there and intact, with its messages if the config asks for them."""
    try:
        result = opened(folder(config, out))
        lacks = config.record.messages and not result.recorded
        if lacks or result.manifest["config"] != digest(config):
            return None
        return replace(result.verified(), given=config)
    except ResultError:
        return None


def hash_of(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _config(path: Path, document: Mapping[str, Any], expected: str) -> Config:
    try:
        config = parse(document, kept=True)
    except ConfigError as error:
        raise ResultError(f"{path}: this version cannot read it: {error.key}: {error.problem}") from None
    if digest(config) != expected:
        raise ResultError(f"{path}: its digest is not the one in {MANIFEST}")
    return config
