"""The files of a run: written whole or not at all; JSON with its own hash, Parquet, safetensors.

All Parquet files are read and written here.
"""

import hashlib
import json
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from laggard.experiments.config.errors import format_value
from laggard.simulator.recording.trace import TraceColumns

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from torch import Tensor

SCHEMA = 3
"""The version of manifests and indices."""
SEAL = "self"
"""The key of a file's own hash."""
ROWS_PER_PIECE = 2**20
"""Rows of a table that are converted at once: ten million rows must not be in memory twice."""


class ResultError(ValueError):
    """A folder without a finished run, or a changed file; the text is one line naming the file."""


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary file beside `path` to be filled; afterwards it is renamed to `path`.

    Raises:
        OSError: it cannot be written; names `path`, not the temporary file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # The name holds host and process: others may write the same file on a shared disk.
    temporary = path.with_name(f".{path.name}.{platform.node()}.{os.getpid()}.part")
    try:
        with suppress(FileNotFoundError):
            temporary.unlink()  # a link that another user put there would be written through
        yield temporary
        temporary.replace(path)  # atomic: a reader sees the old file or the new one
    except OSError as error:
        problem = str(error)
        if error.errno:
            problem = os.strerror(error.errno)
        raise OSError(error.errno, problem, str(path)) from None
    finally:
        with suppress(OSError):  # renamed, never created, or its folder was removed
            temporary.unlink()


def write_sealed(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON that holds its own hash."""
    text = json.dumps(seal(content), indent=1)
    with whole_file(path) as file:
        file.write_text(f"{text}\n", encoding="utf-8")


def read_sealed(path: Path, kind: str) -> Any:
    """Read a mapping that `write_sealed` wrote; `kind` says what it is in errors.

    Raises:
        OSError: it cannot be read.
        ResultError: it has another schema or was changed.
    """
    try:
        content = json.loads(path.read_bytes())
        schema = content["schema"]
    except (ValueError, RecursionError, KeyError, TypeError):
        raise ResultError(f"{path}: not {kind}") from None
    if type(schema) is not int or schema != SCHEMA:
        problem = f"expected schema {SCHEMA}, got {format_value(schema)}"
        raise ResultError(f"{path}: {problem}: run it again")
    if content.get(SEAL) != _hash_without_seal(content):
        raise ResultError(f"{path}: it was changed: its own SHA-256 differs")
    return content


def seal(content: Mapping[str, Any]) -> dict[str, Any]:
    """`content` with the schema and the SHA-256 of both."""
    document = {"schema": SCHEMA, **content}
    document[SEAL] = _hash_without_seal(document)
    return document


def _hash_without_seal(content: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in content.items() if key != SEAL}
    text = json.dumps(rest, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def write_table(path: Path, columns: "Mapping[str, np.ndarray] | pd.DataFrame") -> None:
    """Write a table as Parquet; text columns are stored as dictionaries."""
    from pyarrow import parquet

    pieces = iter([columns])
    if isinstance(columns, TraceColumns):
        pieces = columns.parts(ROWS_PER_PIECE)
    first = _arrow_table(next(pieces))
    with (
        # an absolute path: Arrow takes `a:b/c` for the address of a file system `a`
        whole_file(path.absolute()) as file,
        parquet.ParquetWriter(file, first.schema, compression="zstd") as writer,
    ):
        writer.write_table(first)
        for piece in pieces:
            writer.write_table(_arrow_table(piece))


def _arrow_table(columns: "Mapping[str, np.ndarray] | pd.DataFrame") -> "pa.Table":
    import pyarrow as pa

    arrays = {}
    for name, column in columns.items():
        array = pa.array(column)
        if pa.types.is_string(array.type):
            array = array.dictionary_encode()
        arrays[name] = array
    return pa.table(arrays)


def read_table(path: Path) -> "pd.DataFrame":
    """The table in a Parquet file.

    Raises:
        OSError: it cannot be read.
        ResultError: it is not Parquet.
    """
    import pyarrow as pa
    from pyarrow import parquet

    try:
        return parquet.read_table(path.absolute()).to_pandas()
    except pa.ArrowException:
        raise ResultError(f"{path}: not a Parquet table") from None


def read_schema(path: Path) -> "pa.Schema":
    """The names and types of the columns in a Parquet file.

    Raises:
        ResultError: it cannot be read, or is not Parquet.
    """
    import pyarrow as pa
    from pyarrow import parquet

    try:
        return parquet.read_schema(path.absolute())
    except (pa.ArrowException, OSError):
        raise ResultError(f"{path}: not a Parquet table") from None


def write_weights(path: Path, weights: "Tensor") -> None:
    """Write models `(ensemble, params)`, or `(evaluations, ensemble, params)`."""
    from safetensors.torch import save

    content = save({"weights": weights.detach().cpu().contiguous()})
    # not `save_file`: it makes files of mode 0600, and its errors name no file
    with whole_file(path) as file:
        file.write_bytes(content)


def read_weights(path: Path) -> "Tensor":
    """The models that `write_weights` wrote.

    Raises:
        ResultError: the file holds no weights.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)["weights"]
    except (SafetensorError, KeyError):
        raise ResultError(f"{path}: not a safetensors file of weights") from None
