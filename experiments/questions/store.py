"""The stored numbers of a question: a CSV file with a row per seed, setting and measure.

The columns are `study`, the settings, `seed`, `role`, `measure`, `value`, `lost`, `dataset`,
`model`, `device` and `run`. A value is infinite where the run missed the target within its budget.
It is missing where the run was lost; there `lost` is 1.

The role of a seed is `tune` if it chooses settings, `report` if it reports and had not been seen
before, and `seen` if it had. No command writes `seen`: after a change of a bar, a rate or a
statistic, replace `report` by `seen` in the table by hand, for the seeds that have run.

If all rows share a `dataset`, `model` or `device`, the file has it once, in a line such as
`# dataset: mnist` above the header.
"""

from importlib.resources import files
from pathlib import Path

import pandas as pd

from laggard.experiments.results.files import ResultError, whole_file

STORED = Path(str(files("laggard"))) / "answers"
"""The folder of the tables that are installed with laggard: `results/questions` of its repository.
"""
FIXED = ("study", "role", "seed", "measure", "value", "lost", "dataset", "model", "device", "run")
"""The columns that are not settings."""
IN_COMMON = ("dataset", "model", "device")
"""The columns that a line above the table replaces if all rows have the same value."""
VALUE_DIGITS = 6  # of a value


def read_numbers(name: str, folder: Path = STORED) -> pd.DataFrame:
    """The stored numbers of a question; an empty table if there is no file.

    Raises:
        ResultError: the file is not such a table.
    """
    path = folder / f"{name}.csv"
    if not path.is_file():
        return pd.DataFrame(columns=list(FIXED))
    in_common = _read_in_common(path)
    try:
        table = pd.read_csv(path, dtype=str, skiprows=len(in_common))
    except ValueError as error:
        raise ResultError(f"{path}: expected a table of numbers ({error})") from None
    table = table.assign(**in_common)
    missing = [column for column in FIXED if column not in table]
    if missing:
        raise ResultError(f"{path}: expected a column {missing[0]}; reproduce the question again")
    return normalise(table)


def _read_in_common(path: Path) -> dict[str, str]:
    """Column -> its value, from the lines above the table."""
    in_common: dict[str, str] = {}
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if not line.startswith("# "):
                break
            column, _, value = line[2:].strip().partition(":")
            in_common[column] = value.strip()
    return in_common


def normalise(table: pd.DataFrame) -> pd.DataFrame:
    """A table of numbers with the types that it has after it is read from a file.

    A column of settings holds numbers if all its values are numbers, otherwise texts.
    """
    columns = {column: _as_numbers(table[column]) for column in setting_columns(table)}
    # tables of earlier versions have `True` in place of 1
    lost = table["lost"].astype(str).isin(["1", "True"])
    texts = {column: table[column].fillna("") for column in ("dataset", "model", "device", "run")}
    return table.assign(
        **columns,
        **texts,
        seed=table["seed"].astype(int),
        value=table["value"].astype(float),
        lost=lost,
    )


def write_numbers(table: pd.DataFrame, name: str, folder: Path) -> Path:
    """Store the numbers of a question, sorted, so that the order of simulation has no effect."""
    settings = setting_columns(table)
    columns = ["study", *settings, "role", "seed", "measure", "value", "lost"]
    columns += ["dataset", "model", "device", "run"]
    order = ["study", "role", "measure", *settings, "seed"]
    keys = {column: table[column].map(_sort_key) for column in order}
    ordered = table.assign(**{f"{column} key": key for column, key in keys.items()})
    ordered = ordered.sort_values([f"{column} key" for column in order], kind="stable")
    path = folder / f"{name}.csv"
    rounded = ordered.assign(value=[f"{value:.{VALUE_DIGITS}g}" for value in ordered["value"]])
    rounded["value"] = rounded["value"].replace("nan", "")
    rounded["lost"] = rounded["lost"].astype(int)
    in_common = {
        column: rounded[column].iloc[0]
        for column in IN_COMMON
        if rounded[column].nunique(dropna=False) == 1
    }
    columns = [column for column in columns if column not in in_common]
    with whole_file(path) as part, part.open("w", encoding="utf-8", newline="") as file:
        for column, value in in_common.items():
            line = f"# {column}: {value}".rstrip()
            file.write(f"{line}\n")
        rounded[columns].to_csv(file, index=False, lineterminator="\n")
    return path


def setting_columns(table: pd.DataFrame) -> list[str]:
    """The columns that are settings."""
    return [str(column) for column in table if column not in FIXED]


def _as_numbers(column: pd.Series) -> pd.Series:
    """A column of settings as numbers, if all its values are numbers; else as texts."""
    try:
        return pd.to_numeric(column)
    except ValueError:
        return column


def _sort_key(value: object) -> tuple[int, float, str]:
    """A sort key of a cell, which places numbers before texts."""
    try:
        return 0, float(value), ""  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return 1, 0.0, str(value)
