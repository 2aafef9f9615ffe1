"""One table of many runs, through Arrow: only the wanted files, columns and rows are read."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from laggard.experiments.config.errors import suggest
from laggard.experiments.results.files import ResultError, read_schema

if TYPE_CHECKING:
    import pandas as pd


class RunTable(NamedTuple):
    """The Parquet file of one run.

    Attributes:
        path: the file.
        run: the entry of the column `run`.
        labels: constants of the run; each is a column, unless the file has a column of that name.
        members: the members that are wanted; None for all.
        check: compares the file with its hash.
    """

    path: Path
    run: str
    labels: Mapping[str, Any]
    members: Sequence[int] | None
    check: Callable[[], object]

    def read_schema(self) -> pa.Schema:
        """The file's own columns."""
        try:
            return read_schema(self.path)
        except ResultError:
            self.check()  # usually raises the precise error
            raise


def scan(
    tables: Sequence[RunTable],
    keys: Sequence[str],
    columns: Sequence[str] | None,
    where: ds.Expression | Mapping[str, Any] | None,
) -> "pd.DataFrame":
    """The rows of several runs with their labels as columns; `Results.scan` describes arguments.

    Args:
        keys: swept keys, which come after the column `run`.

    Raises:
        ValueError: a column is unknown, or cannot be compared with its value in `where`.
    """
    labels = dict.fromkeys(key for table in tables for key in table.labels)
    if isinstance(where, Mapping):
        possible = [table for table in tables if _may_match(table.labels, where)]
        tables = possible or tables  # some file must tell the columns
    constants = {"run": pa.array([table.run for table in tables])}
    for key in labels:
        constants[key] = _to_array([table.labels.get(key) for table in tables])
    schemas = [table.read_schema() for table in tables]
    stored = pa.unify_schemas(schemas, promote_options="permissive")
    added = pa.schema({key: values.type for key, values in constants.items()})
    schema = pa.unify_schemas([stored, added], promote_options="permissive")
    swept = [key for key in keys if key in schema.names]
    order = list(dict.fromkeys(["run", *swept, *stored.names]))
    selected = order
    if columns is not None:
        selected = _check_columns(columns, order)
    condition = _condition(where, order)
    parts = []
    try:
        for index, table in enumerate(tables):
            values = {key: array[index] for key, array in constants.items()}
            part = _read_part(table, schemas[index], schema, values, selected, condition)
            if part is not None:
                parts.append(part)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        problem = str(error).partition("\n")[0]
        message = f"{tables[0].path.stem}: where: cannot be compared with the columns: {problem}"
        raise ValueError(message) from None
    if not parts:
        parts.append(schema.empty_table())
    return pa.concat_tables(parts, promote_options="permissive").select(selected).to_pandas()


def _read_part(
    table: RunTable,
    stored: pa.Schema,
    schema: pa.Schema,
    constants: Mapping[str, pa.Scalar],
    columns: Sequence[str],
    condition: ds.Expression | None,
) -> pa.Table | None:
    """The rows of one run with its constants as columns; None where these rule out all rows."""
    if table.members is not None and "member" in stored.names:
        members = ds.field("member").isin(list(table.members))
        condition = members if condition is None else condition & members
    facts = ds.scalar(True)
    for key, value in constants.items():
        if key not in stored.names:
            column = ds.field(key)
            facts &= column == value if value.is_valid else column.is_null()
    parquet = ds.ParquetFileFormat()
    disk = LocalFileSystem()
    # With the labels as facts, Arrow rules out a run without reading its rows.
    fragment = parquet.make_fragment(str(table.path.absolute()), disk, partition_expression=facts)
    dataset = ds.FileSystemDataset([fragment], schema, parquet, disk)
    if condition is not None and not list(dataset.get_fragments(condition)):
        return None
    table.check()
    in_file = [name for name in columns if name in stored.names]
    # one thread is faster for small files
    rows = dataset.to_table(columns=in_file, filter=condition, use_threads=False)
    for name in columns:
        if name not in stored.names:
            missing = pa.scalar(None, schema.field(name).type)
            value = constants.get(name, missing)
            rows = rows.append_column(name, _repeat(value, len(rows)))
    return rows


def _may_match(labels: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
    """Whether a run with these labels can have wanted rows."""
    return all(labels[key] in _as_list(value) for key, value in where.items() if key in labels)


def _as_list(value: Any) -> list[Any]:
    if isinstance(value, list | tuple | set):
        return list(value)
    return [value]


def _condition(
    where: ds.Expression | Mapping[str, Any] | None, order: Sequence[str]
) -> ds.Expression | None:
    if where is None or isinstance(where, ds.Expression):
        return where
    _check_columns(where, order)
    condition = ds.scalar(True)
    for key, value in where.items():
        values = _as_list(value)
        # `==` with a single value refuses another type; `isin` would match no row
        if values == [value]:
            condition &= ds.field(key) == value
        else:
            condition &= ds.field(key).isin(values)
    return condition


def _check_columns(columns: Iterable[str], known: Sequence[str]) -> list[str]:
    for name in columns:
        if name not in known:
            hint = suggest(name, known) or f"there are {', '.join(known)}"
            raise ValueError(f"{name}: no such column; {hint}")
    return list(columns)


def _to_array(values: Sequence[Any]) -> pa.Array:
    """Values of several runs in one type: numbers where all are numbers, else text."""
    types = {type(value) for value in values if value is not None}
    if len(types) <= 1:
        return pa.array(values)
    convert: type = str
    if types == {int, float}:
        convert = float
    converted = []
    for value in values:
        if value is not None:
            value = convert(value)
        converted.append(value)
    return pa.array(converted)


def _repeat(value: pa.Scalar, rows: int) -> pa.Array:
    if not value.is_valid and not pa.types.is_string(value.type):
        return pa.nulls(rows, value.type)
    if not pa.types.is_string(value.type):
        return pa.repeat(value, rows)
    # a dictionary stores a repeated text as integers
    index = pa.scalar(None, pa.int32())
    texts = []
    if value.is_valid:
        index = pa.scalar(0, pa.int32())
        texts = [value.as_py()]
    return pa.DictionaryArray.from_arrays(pa.repeat(index, rows), pa.array(texts, pa.string()))
