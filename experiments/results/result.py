"""A finished run, read lazily: each file when first used, after its hash was compared with the
manifest's.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import laggard
from laggard.experiments.config.config import Config, digest_of_settings, parse
from laggard.experiments.config.documents import read
from laggard.experiments.config.errors import ConfigError
from laggard.experiments.config.files import hash_of
from laggard.experiments.config.grid import RunSpec
from laggard.experiments.results.views import Views
from laggard.simulator.recording.messages import MESSAGE_COLUMNS
from laggard.simulator.recording.outcome import RESTORE_COLUMNS

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

SCHEMA = 3
MANIFEST = "manifest.json"
TABLES = ("metrics", "updates", "workers", "nodes")
FILES = ("config.yaml", *(f"{table}.parquet" for table in TABLES), "weights.safetensors")
SNAPSHOT = "snapshot.safetensors"
"""The last snapshot of a run, while it is simulated, and afterwards if that was asked for; no
manifest lists it.
"""
MESSAGES, MODELS, RESTORES = "messages.parquet", "models.safetensors", "restores.parquet"
OPTIONAL = (MESSAGES, MODELS, RESTORES)
"""Files that a run has where its config asks for them; the manifest lists those that it has."""


class ResultError(ValueError):
    """A folder that holds no finished run, or files that have changed; the text is one line that
    names the file.
    """


@dataclass(frozen=True)
class Result(Views):
    """A finished run; a file is read when it is first asked for, and refused unless its SHA-256 is
    the manifest's.

    Attributes:
        path: its folder.
        manifest: the hashes of its files, and how the run went.
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
    _checked: set[str] = field(default_factory=set, repr=False, compare=False)

    @cached_property
    def config(self) -> Config:
        """As it was resolved."""
        if self.given is not None:
            return self.given
        name = MANIFEST if "settings" in self.manifest else "config.yaml"
        try:
            document = self.manifest["settings"] if name == MANIFEST else read(self.file(name))
            config = parse(document, kept=True)
        except ConfigError as error:
            problem = ": ".join(part for part in (error.key, error.problem) if part)
            raise ResultError(
                f"{self.path / name}: this version cannot read it: {problem}"
            ) from None
        if digest_of_settings(document) != self.manifest.get("resolved", self.manifest["config"]):
            raise ResultError(f"{self.path / name}: its digest is not the one in {MANIFEST}")
        return config

    def file(self, name: str) -> Path:
        """The path of one of its files, which is as the run left it.

        Raises:
            ResultError: it is not, or it is missing.
        """
        path = self.path / name
        if name not in self._checked:
            if not path.is_file():
                raise ResultError(f"{path}: missing, though {MANIFEST} lists it: run it again")
            if hash_of(path) != self.manifest["files"].get(name):
                raise ResultError(
                    f"{path}: not as the run left it: its SHA-256 is not the one in {MANIFEST}"
                )
            self._checked.add(name)
        return path

    def verify(self) -> "Result":
        """The same result, after a check of every file against the manifest.

        Raises:
            ResultError: one is not.
        """
        for name in (
            *FILES,
            *(optional for optional in OPTIONAL if optional in self.manifest["files"]),
        ):
            self.file(name)
        return self

    @property
    def version(self) -> str:
        """The version of laggard that made it."""
        return str(self.manifest["versions"]["laggard"])

    @property
    def tables(self) -> list[str]:
        """The names of its tables' files."""
        return [name for name in self.manifest["files"] if name.endswith(".parquet")]

    @cached_property
    def metrics(self) -> "pd.DataFrame":
        """A row per evaluation and member: `time` (s), `updates`, `samples`, `epoch`, `member`,
        `train_loss`, the task's measures, and a column per swept key.
        """
        return self._of_members(self._table("metrics")).assign(**self.labels)

    @cached_property
    def updates(self) -> "pd.DataFrame":
        """A row per gradient that has ended: `time` (s, of that end), `worker`, `target` (the node
        at whose model it was taken), `started` and `computed` (s), `version_read`, `version`,
        `staleness`, `mixings` (of that model since the read), `status`, `arrived` (s, first at
        another node; NaN where messages were not recorded). Shards and stages of a pipeline have a
        row each.
        """
        table = self._table("updates")
        return table if "arrived" in table else table.assign(arrived=float("nan"))

    @cached_property
    def workers(self) -> "pd.DataFrame":
        """A row per `worker`: seconds `computing`, `sending`, `waiting`, `down`."""
        return self._table("workers")

    @cached_property
    def nodes(self) -> "pd.DataFrame":
        """A row per evaluation, node and member, where nodes have models of their own: `time` (s),
        `updates`, `node`, `member`, `distance` to the mean model, push-sum `weight`, and under
        `evaluate.nodes` the task's measures.
        """
        return self._of_members(self._table("nodes"))

    @cached_property
    def messages(self) -> "pd.DataFrame":
        """A row per message, in the order of their sending; none where `record.messages` did not
        ask for them.

        `sent`, `arrived` (s; NaN where it was lost or is in flight), `sender`, `receiver`, `bytes`,
        `status`, `content` (token, weights, gradient, sum, other), `gradients` (how many it
        carries), `gradient` (the row in `updates` of the first, or -1).
        """
        import pandas as pd

        return (
            self._table("messages")
            if self.has_messages
            else pd.DataFrame(columns=list(MESSAGE_COLUMNS))
        )

    @cached_property
    def restores(self) -> "pd.DataFrame":
        """A row per crash of a server: `time` and `back` (s; NaN where the run ended before),
        `server`, `version` (the updates that it had made), `lost` (how many of them are lost); none
        where servers do not crash.
        """
        import pandas as pd

        there = RESTORES in self.manifest["files"]
        return self._table("restores") if there else pd.DataFrame(columns=list(RESTORE_COLUMNS))

    @property
    def has_messages(self) -> bool:
        """Whether the run recorded its messages."""
        return MESSAGES in self.manifest["files"]

    @cached_property
    def swept(self) -> list[str]:
        """The keys in which the members of its ensemble differ."""
        return list(RunSpec(self.config).members[0])

    @cached_property
    def members(self) -> "pd.DataFrame":
        """A row per member of the ensemble, with its swept values."""
        import pandas as pd

        each = enumerate(RunSpec(self.config).members)
        return self._of_members(
            pd.DataFrame([{"member": index, **self.labels, **values} for index, values in each])
        )

    @cached_property
    def weights(self) -> "Tensor":
        """The final models `(ensemble, params)`, of every member."""
        return self._tensor("weights.safetensors")

    @cached_property
    def models(self) -> "Tensor | None":
        """The models evaluated `(evaluations, ensemble, params)`, under `evaluate.keep_models`, or
        None.
        """
        return self._tensor(MODELS) if MODELS in self.manifest["files"] else None

    def _of_members(self, table: "pd.DataFrame") -> "pd.DataFrame":
        return (
            table
            if self.only is None
            else table[table["member"].isin(self.only)].reset_index(drop=True)
        )

    def _table(self, name: str) -> "pd.DataFrame":
        import pyarrow as pa
        from pyarrow import parquet

        path = self.file(f"{name}.parquet")
        try:
            return parquet.read_table(path).to_pandas()
        except pa.ArrowException:
            raise ResultError(
                f"{path}: no Parquet table, though {MANIFEST} lists it as one"
            ) from None

    def _tensor(self, name: str) -> "Tensor":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        path = self.file(name)
        try:
            return load_file(path)["weights"]
        except (SafetensorError, KeyError):
            raise ResultError(
                f"{path}: no safetensors file of weights, though {MANIFEST} lists it as one"
            ) from None


def describe_versions(results: Iterable[Result]) -> str:
    """Which other versions of laggard made some of the results; empty where this one made all of
    them.
    """
    versions = Counter(result.version for result in results)
    others = {
        version: number for version, number in versions.items() if version != laggard.__version__
    }
    said = ", ".join(f"{number} by laggard {version}" for version, number in others.items())
    return (
        f"of {versions.total()} runs {said}; this is laggard {laggard.__version__}" if said else ""
    )
