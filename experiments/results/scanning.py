"""One table of many runs, through Arrow: only the files, columns and rows that are wanted."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import parquet
from pyarrow.fs import LocalFileSystem

from laggard.experiments.config.errors import suggest
from laggard.experiments.results.result import MANIFEST, TABLES, Result, ResultError

if TYPE_CHECKING:
    import pandas as pd

    from laggard.experiments.results.results import Results


def scan_table(
    results: "Results",
    table: str,
    columns: Sequence[str] | None,
    where: ds.Expression | Mapping[str, Any] | None,
) -> "pd.DataFrame":
    """As `Results.scan`."""
    if not results:
        raise ValueError(f"{table}: there are no runs")
    file = f"{table}.parquet"
    runs = [
        (name, of)
        for name, of in zip(results.names, results, strict=True)
        if file in of.manifest["files"]
    ]
    if not runs:
        known = dict.fromkeys(
            [*TABLES, *(name.removesuffix(".parquet") for of in results for name in of.tables)]
        )
        raise ValueError(
            f"{table}: no run has such a table; {suggest(table, known) or 'they have ' + ', '.join(known)}"
        )
    if isinstance(where, Mapping):
        runs = [(name, of) for name, of in runs if _may_have(of.labels, where)] or runs
    coordinates: dict[str, list[Any]] = {"run": [name for name, _ in runs]}
    labelled = dict.fromkeys(key for of in results for key in of.labels)
    coordinates |= {key: [of.labels.get(key) for _, of in runs] for key in labelled}
    stated = {key: _to_array(values) for key, values in coordinates.items()}
    own = pa.unify_schemas([_schema(of, file) for _, of in runs], promote_options="permissive")
    both = pa.unify_schemas(
        [own, pa.schema({key: values.type for key, values in stated.items()})],
        promote_options="permissive",
    )
    order = list(
        dict.fromkeys(["run", *(key for key in results.keys if key in both.names), *own.names])
    )
    wanted = _known_columns(order if columns is None else columns, order)
    condition = _condition(where, order)
    try:
        parts = [
            _part(
                of,
                file,
                both,
                {key: values[index] for key, values in stated.items()},
                wanted,
                condition,
            )
            for index, (_, of) in enumerate(runs)
        ]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        problem = str(error).partition("\n")[0]
        raise ValueError(
            f"{table}: where: cannot be compared with the columns: {problem}"
        ) from None
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
    """The rows of one run, with its constants `stated` as columns; None where those rule it out."""
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
    # its constants rule it out
    if condition is not None and not list(dataset.get_fragments(condition)):
        return None
    result.file(file)
    columns = [name for name in wanted if name in own.names]
    # faster for small files
    found = dataset.to_table(columns=columns, filter=condition, use_threads=False)
    for name in wanted:
        if name not in own.names:
            value = stated.get(name, pa.scalar(None, schema.field(name).type))
            found = found.append_column(name, _repeat(value, len(found)))
    return found


def _schema(result: Result, file: str) -> pa.Schema:
    try:
        return parquet.read_schema(result.path / file)
    except (pa.ArrowException, OSError):
        path = result.file(file)  # usually raises the precise error
        raise ResultError(f"{path}: no Parquet table, though {MANIFEST} lists it as one") from None


def _may_have(labels: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
    """Whether a run with these labels can have rows that are wanted."""
    return all(labels[key] in _as_list(value) for key, value in where.items() if key in labels)


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple | set) else [value]


def _condition(
    where: ds.Expression | Mapping[str, Any] | None, order: Sequence[str]
) -> ds.Expression | None:
    if where is None or isinstance(where, ds.Expression):
        return where
    condition = ds.scalar(True)
    for key, value in zip(_known_columns(where, order), where.values(), strict=True):
        several = _as_list(value)
        condition &= ds.field(key) == value if several == [value] else ds.field(key).isin(several)
    return condition


def _known_columns(columns: Iterable[str], order: Sequence[str]) -> list[str]:
    for name in columns:
        if name not in order:
            raise ValueError(
                f"{name}: no such column; {suggest(name, order) or 'there are ' + ', '.join(order)}"
            )
    return list(columns)


def _to_array(values: Sequence[Any]) -> pa.Array:
    """Values of several runs in one type: numbers where all are numbers, else strings."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float} or len(kinds) == 1:
        return pa.array(
            [
                float(value) if kinds == {int, float} and value is not None else value
                for value in values
            ]
        )
    return pa.array([None if value is None else str(value) for value in values])


def _repeat(value: pa.Scalar, rows: int) -> pa.Array:
    if pa.types.is_string(value.type):  # a dictionary stores a repeated string as integers
        place = pa.scalar(0 if value.is_valid else None, pa.int32())
        known = [value.as_py()] if value.is_valid else []
        return pa.DictionaryArray.from_arrays(pa.repeat(place, rows), pa.array(known, pa.string()))
    return pa.repeat(value, rows) if value.is_valid else pa.nulls(rows, value.type)
