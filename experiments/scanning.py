"""One table of many runs, through Arrow: only the files, columns and rows that are wanted."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import parquet
from pyarrow.fs import LocalFileSystem

from experiments.errors import meant
from experiments.store import MANIFEST, TABLES, Result, ResultError

if TYPE_CHECKING:
    import pandas as pd

    from experiments.results import Results


def scanned(
    results: "Results", table: str, columns: Sequence[str] | None, where: ds.Expression | Mapping[str, Any] | None
) -> "pd.DataFrame":
    """As `Results.scan`."""
    file = f"{table}.parquet"
    runs = [(name, of) for name, of in zip(results.names, results, strict=True) if file in of.manifest["files"]]
    if not runs:
        known = dict.fromkeys([*TABLES, *(name.removesuffix(".parquet") for of in results for name in of.tables)])
        raise ValueError(f"{table}: no run has such a table; {meant(table, known) or 'they have ' + ', '.join(known)}")
    if isinstance(where, Mapping):
        runs = [(name, of) for name, of in runs if _may_have(of.labels, where)] or runs
    coordinates = {"run": [name for name, _ in runs]}
    coordinates |= {key: [of.labels.get(key) for _, of in runs] for key in results.keys if _outside(key, results)}
    stated = {key: _typed(values) for key, values in coordinates.items()}
    own = pa.unify_schemas([_schema(of, file) for _, of in runs], promote_options="permissive")
    both = pa.unify_schemas(
        [own, pa.schema({key: values.type for key, values in stated.items()})], promote_options="permissive"
    )
    order = list(dict.fromkeys(["run", *(key for key in results.keys if key in both.names), *own.names]))
    wanted = _known(order if columns is None else columns, order)
    condition = _condition(where, order)
    parts = [
        _part(of, file, both, {key: values[index] for key, values in stated.items()}, wanted, condition)
        for index, (_, of) in enumerate(runs)
    ]
    found = [part for part in parts if part is not None] or [both.empty_table()]
    return pa.concat_tables(found, promote_options="permissive").select(wanted).to_pandas()


def _part(
    result: Result,
    file: str,
    schema: pa.Schema,
    stated: Mapping[str, pa.Scalar],
    wanted: Sequence[str],
    condition: ds.Expression | None,
) -> pa.Table | None:
    """The rows of one run, with what is `stated` of it as columns; None where that alone rules it out."""
    own = _schema(result, file)
    if result.only is not None and "member" in own.names:
        members = ds.field("member").isin(list(result.only))
        condition = members if condition is None else condition & members
    said = [(ds.field(key), value) for key, value in stated.items() if key not in own.names]
    facts = ds.scalar(True)
    for at, value in said:
        facts &= at == value if value.is_valid else at.is_null()
    options, disk = ds.ParquetFileFormat(), LocalFileSystem()
    fragment = options.make_fragment(str(result.path / file), disk, partition_expression=facts)
    dataset = ds.FileSystemDataset([fragment], schema, options, disk)
    if condition is not None and not list(dataset.get_fragments(condition)):  # ruled out by what is stated of it
        return None
    result.file(file)
    columns = [name for name in wanted if name in own.names]
    found = dataset.to_table(columns=columns, filter=condition, use_threads=False)  # a small file is read sooner alone
    for name in wanted:
        if name not in own.names:
            value = stated.get(name, pa.scalar(None, schema.field(name).type))
            found = found.append_column(name, _repeated(value, len(found)))
    return found


def _schema(result: Result, file: str) -> pa.Schema:
    try:
        return parquet.read_schema(result.path / file)
    except (pa.ArrowException, OSError):
        path = result.file(file)  # says what is wrong with it, as a rule
        raise ResultError(f"{path}: no Parquet table, though {MANIFEST} vouches for it") from None


def _may_have(labels: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
    """Whether a run with these labels can have rows that are wanted."""
    return all(labels[key] in _among(value) for key, value in where.items() if key in labels)


def _among(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple | set) else [value]


def _condition(where: ds.Expression | Mapping[str, Any] | None, order: Sequence[str]) -> ds.Expression | None:
    if where is None or isinstance(where, ds.Expression):
        return where
    condition = ds.scalar(True)
    for key, value in zip(_known(where, order), where.values(), strict=True):
        several = _among(value)
        condition &= ds.field(key) == value if several == [value] else ds.field(key).isin(several)
    return condition


def _known(columns: Iterable[str], order: Sequence[str]) -> list[str]:
    for name in columns:
        if name not in order:
            raise ValueError(f"{name}: no such column; {meant(name, order) or 'there are ' + ', '.join(order)}")
    return list(columns)


def _outside(key: str, results: "Results") -> bool:
    return any(key in of.labels for of in results)


def _typed(values: Sequence[Any]) -> pa.Array:
    """Values of several runs in one type: numbers where all are numbers, else texts."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float} or len(kinds) == 1:
        return pa.array([float(value) if kinds == {int, float} and value is not None else value for value in values])
    return pa.array([None if value is None else str(value) for value in values])


def _repeated(value: pa.Scalar, rows: int) -> pa.Array:
    if value.is_valid and pa.types.is_string(value.type):  # a text a million times is a number a million times
        return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), rows), [value.as_py()])
    return pa.repeat(value, rows) if value.is_valid else pa.nulls(rows, value.type)
