"""Results on disk: what a run's folder is called, and how it is read back once its manifest vouches for it."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from experiments.config import Config, parse
from experiments.documents import read
from experiments.errors import ConfigError
from experiments.grid import members
from experiments.identity import digest, run_id
from simulator.messages import COLUMNS as MESSAGE_COLUMNS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SCHEMA = 2
MANIFEST, INDEX = "manifest.json", "sweep.json"
TABLES = ("metrics", "updates", "workers", "nodes")
FILES = ("config.yaml", *(f"{table}.parquet" for table in TABLES), "weights.safetensors")
MESSAGES = "messages.parquet"
OPTIONAL = (MESSAGES, "models.safetensors")
"""Files that a run has where its config asks for them; the manifest lists those that it has."""


class ResultError(ValueError):
    """A folder that is no finished run, or not as its run left it; the text is one line that names the file."""


def folder(config: Config, out: str | Path) -> Path:
    """Where the run is kept: `<out>/<name>/<run id>`."""
    return Path(out) / config.name / run_id(config)


@dataclass(frozen=True)
class Result:
    """A finished run; its tables are read when they are first asked for.

    Attributes:
        path: its folder.
        config: as it was resolved.
        manifest: what vouches for it, and how it went.
        labels: its coordinates in the sweep that it was run for, if any.
    """

    path: Path
    config: Config
    manifest: Mapping[str, Any]
    labels: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def metrics(self) -> "pd.DataFrame":
        """A row per evaluation and member: `time` (s), `updates`, `samples`, `epoch`, `member`, `train_loss`,
        the task's measures, and a column per swept key.
        """
        return self._table("metrics").assign(**self.labels)

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
        return self._table("nodes")

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
        return pd.DataFrame(rows)

    @cached_property
    def weights(self) -> Tensor:
        """The final models `(ensemble, params)`."""
        from safetensors.torch import load_file

        return load_file(self.path / "weights.safetensors")["weights"]

    @cached_property
    def models(self) -> Tensor | None:
        """The models evaluated `(evaluations, ensemble, params)`, under `evaluate.keep_models`, or None."""
        from safetensors.torch import load_file

        name = "models.safetensors"
        return load_file(self.path / name)["weights"] if name in self.manifest["files"] else None

    def plot(self, path: str | Path | None = None) -> "Figure":
        """The figure of this run by itself, saved to `path` if there is one."""
        from experiments.figures import comparison

        return comparison([self], path=path, target=self.config.evaluate.target_accuracy)

    def _table(self, name: str) -> "pd.DataFrame":
        from pyarrow import parquet

        return parquet.read_table(self.path / f"{name}.parquet").to_pandas()


def load_result(path: str | Path) -> Result:
    """The finished run in a folder; every file is checked against the manifest first.

    Raises:
        ResultError: no finished run, written in another schema, or a file that is missing or not the run's own.
    """
    path = Path(path)
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        schema, files, config = manifest["schema"], manifest["files"], manifest["config"]
    except OSError:
        raise ResultError(f"{path}: no finished run: it has no {MANIFEST}") from None
    except (ValueError, KeyError, TypeError):
        raise ResultError(f"{path / MANIFEST}: not the manifest of a run") from None
    if schema != SCHEMA:
        raise ResultError(f"{path / MANIFEST}: expected schema {SCHEMA}, got {schema!r}: run it again")
    for name in (*FILES, *(optional for optional in OPTIONAL if optional in files)):
        if not (path / name).is_file():
            raise ResultError(f"{path / name}: missing, though {MANIFEST} lists it: run it again")
        if hash_of(path / name) != files.get(name):
            raise ResultError(f"{path / name}: not as the run left it: its SHA-256 is not the one in {MANIFEST}")
    return Result(path, _config(path / "config.yaml", config), manifest)


def load_results(path: str | Path) -> list[Result]:
    """The runs of the sweep last started in a folder `<out>/<name>`, with their coordinates.

    In a folder without a sweep they are all finished runs below it; a run's own folder holds just that run.

    Raises:
        ResultError: as in `load_result`, or where no run of the sweep is finished.
    """
    path = Path(path)
    if not (path / INDEX).is_file():
        below = sorted(run.parent for run in path.glob(f"[!.]*/{MANIFEST}"))  # dots lead the folders of runs under way
        return [load_result(run) for run in below] if below else [load_result(path)]
    try:
        entries = [(path / entry["run"], dict(entry["labels"])) for entry in json.loads((path / INDEX).read_bytes())]
    except (ValueError, KeyError, TypeError):
        raise ResultError(f"{path / INDEX}: not the index of a sweep") from None
    finished = [(run, labels) for run, labels in entries if (run / MANIFEST).is_file()]
    if not finished:
        raise ResultError(f"{path}: none of its {len(entries)} runs is finished")
    return [replace(load_result(run), labels=labels) for run, labels in finished]


def kept(config: Config, out: str | Path) -> Result | None:
    """The finished run of a config, if it is there and intact, with its messages if the config asks for them."""
    try:
        result = load_result(folder(config, out))
    except ResultError:
        return None
    wanted = result.manifest["config"] == digest(config) and (result.recorded or not config.record.messages)
    return replace(result, config=config) if wanted else None


def hash_of(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _config(path: Path, expected: str) -> Config:
    try:
        config = parse(read(path), kept=True)
    except ConfigError as error:
        raise ResultError(f"{path}: this version cannot read it: {error.key}: {error.problem}") from None
    if digest(config) != expected:
        raise ResultError(f"{path}: its digest is not the one in {MANIFEST}")
    return config
