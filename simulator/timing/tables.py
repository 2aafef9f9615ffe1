"""Tables of other tools: any separator, decimal sign, encoding and compression, or Parquet.

Nothing is guessed: where two readings of a file are possible, it is refused with both.
"""

import csv
import math
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from laggard.files import (
    UnreadableFileError,
    decode,
    describe_numbering,
    number_names,
    only_number,
    read_bytes,
)
from laggard.simulator.errors import MOST_COUNT, InvalidSettingError
from laggard.units import AmbiguousUnitError, read_quantity, unit_in_name, unit_named

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
SPACE = " "
LINE_ENDS = re.compile(r"\r\n|\r|\n")
"""Unicode has further line ends, which stand within cells."""
RANK_COLUMNS = ("worker", "rank")
"""Names of the column that says which worker a row is about."""
PARQUET = b"PAR1"
OTHER_TEXTS = {"{": "JSON", "[{": "JSON", "[[": "JSON", "<": "HTML or XML"}
"""The beginnings of texts that are no tables."""
ONE = Decimal(1)
DECIMAL_COMMA = re.compile(r"[+-]?[0-9]*,[0-9]+([eE][+-]?[0-9]+)?")
THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2}(,[0-9]{3})+")
RANK_NAME = re.compile(r"(worker|rank)[ _.-]?[0-9]+", re.IGNORECASE)
ROW_NUMBERS = re.compile(r"|unnamed: 0", re.IGNORECASE)
"""The name of a column of numbers of rows, which pandas and R write."""
PLAIN_NUMBER = re.compile(
    r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(nan|inf)", re.IGNORECASE
)


@dataclass(frozen=True)
class ForeignTable:
    """The cells of a table, as text.

    Attributes:
        owner: the setting that names the file, for errors.
        path: the file.
        names: the names of the columns.
        lines: the line in the file of each row.
        rows: the cells of each row, as many as there are names.
        decimal_comma: whether numbers are written with a comma.
    """

    owner: str
    path: Path
    names: Sequence[str]
    lines: Sequence[int]
    rows: Sequence[Sequence[str]]
    decimal_comma: bool

    def find(self, *names: str) -> int | None:
        """The index of the column with the first of these names that the table has.

        Raises:
            InvalidSettingError: two columns have that name.
        """
        folded = [name.casefold() for name in self.names]
        for name in names:
            count = folded.count(name.casefold())
            if count > 1:
                raise self.error(f"one column named {name}", f"{count}")
            if count == 1:
                return folded.index(name.casefold())
        return None

    def require(self, *names: str) -> list[int]:
        """The indices of the columns with these names.

        Raises:
            InvalidSettingError: one of them is missing.
        """
        places = []
        for name in names:
            place = self.find(name)
            if place is None:
                expected = f"the columns {', '.join(names)}"
                raise self.error(expected, ", ".join(self.names))
            places.append(place)
        return places

    def plain(self, cell: str) -> str:
        """The text of a cell, with a decimal point where the table has commas."""
        if self.decimal_comma and DECIMAL_COMMA.fullmatch(cell):
            return cell.replace(",", ".")
        return cell

    def number(self, cell: str, factor: Decimal = ONE, quantity: str = "") -> float | None:
        """The number in a cell times `factor`, rounded once, else None.

        A number with its own unit, as `500 ms`, is read by that unit if it is one of `quantity`.
        """
        cell = self.plain(cell)
        if PLAIN_NUMBER.fullmatch(cell) is None:
            try:
                return read_quantity(cell, quantity) if quantity else None
            except ValueError:
                return None
        if factor == 1:
            return float(cell)
        return float(Decimal(cell) * factor)

    def is_numeric(self, place: int, quantity: str = "") -> bool:
        """Whether the first cell of a column that is not empty has a number."""
        first = next((row[place] for row in self.rows if row[place]), "")
        return self.number(first, ONE, quantity) is not None

    def ranks(self, *places: int) -> list[list[int]]:
        """The ranks in the cells of columns: numbers, else the places of names in natural order.

        `worker2` comes before `worker10`. A warning tells the ranks of names whose own number
        differs.

        Raises:
            InvalidSettingError: a cell is empty or is not a rank.
        """
        cells = [[row[place] for row in self.rows] for place in places]
        every = [cell for column in cells for cell in column]
        if all(every) and all(self.number(cell) is None for cell in every):
            ranks = number_names(every)
            described = describe_numbering(ranks)
            if described is not None:
                name = self.names[places[0]]
                warnings.warn(f"{self.path}: ranks by {name}: {described}", stacklevel=2)
            return [[ranks[cell] for cell in column] for column in cells]
        return [[self._rank(index, place) for index in range(len(self.rows))] for place in places]

    def ranks_of_some(self, place: int) -> list[int]:
        """The ranks in a column that need not name every worker: numbers, or as in `worker3`.

        Raises:
            InvalidSettingError: a cell is neither, or all numbers in names are above 0, so that
                they may count from 1.
        """
        cells = [row[place] for row in self.rows]
        numbers = [only_number(cell) for cell in cells if RANK_NAME.fullmatch(cell)]
        if len(numbers) < len(cells):
            return [self._rank(index, place) for index in range(len(cells))]
        if 0 not in numbers:
            expected = f"a rank, 0, 1, ..., as {self.names[place]}: names may count from 0 or 1"
            raise self.error_in_row(0, expected, cells[0])
        return [number for number in numbers if number is not None]

    def _rank(self, index: int, place: int) -> int:
        cell = self.rows[index][place]
        number = self.number(cell)
        if number is None or not 0 <= number < MOST_COUNT or not number.is_integer():
            expected = f"a rank, 0, 1, ..., as {self.names[place]}"
            raise self.error_in_row(index, expected, cell)
        return int(number)

    def error(self, expected: str, got: str) -> InvalidSettingError:
        """The error of this file."""
        return InvalidSettingError(self.owner, "file", expected, f"{got} in {self.path}")

    def error_in_row(self, index: int, expected: str, got: str) -> InvalidSettingError:
        """The error of a row."""
        place = f"line {self.lines[index]} of {self.path}"
        return InvalidSettingError(self.owner, "file", expected, f"{got!r} in {place}")


def read_foreign_table(owner: str, path: str | Path) -> ForeignTable:
    """The table in a file: Parquet, or text with a row of names and one separator.

    Text may be compressed (gzip, bzip2, xz, zip), in UTF-8, UTF-16 or UTF-32 with a byte order
    mark, separated by commas, semicolons, tabs, bars or spaces, with decimal points or commas.
    Empty lines and lines that begin with `#` are skipped; a last such line above the rows may hold
    the names. Names of rows, as R writes them, need no name above them.

    Raises:
        InvalidSettingError: the file cannot be read, has no rows, or could be read in two ways.
    """
    path = Path(path)
    expected = "a table, as CSV or Parquet"
    try:
        return parse_foreign_table(owner, path, read_bytes(path))
    except UnreadableFileError as error:
        raise InvalidSettingError(owner, "file", expected, str(error)) from None


def parse_foreign_table(owner: str, path: Path, content: bytes) -> ForeignTable:
    """The table in the content of a file, as in `read_foreign_table`."""
    expected = "a table, as CSV or Parquet"
    try:
        if content.startswith(PARQUET):
            return _parquet_table(owner, path, content)
        text = _decode_table(path, content)
    except UnreadableFileError as error:
        raise InvalidSettingError(owner, "file", expected, str(error)) from None
    for start, form in OTHER_TEXTS.items():
        if text.lstrip().startswith(start):
            raise InvalidSettingError(owner, "file", expected, f"{path}: {form}")
    lines = numbered_lines(text)
    comments = [line for line in lines if line[1].lstrip().startswith("#")]
    lines = [line for line in lines if not line[1].lstrip().startswith("#")]
    if not lines:
        raise InvalidSettingError(
            owner, "file", "a row of names and rows below it", f"{path}: empty"
        )
    if re.fullmatch(r"sep=.", lines[0][1].strip()):
        lines = lines[1:]  # Excel's own mark; the names tell the separator too
    if comments and comments[-1][0] < lines[0][0] and _is_all_numbers(lines[0][1]):
        # numpy.savetxt writes the names as a comment
        number, line = comments[-1]
        lines.insert(0, (number, line.lstrip().lstrip("#").strip()))
    rows = _split(owner, path, lines)
    names = rows[0][1]
    if all(PLAIN_NUMBER.fullmatch(name) for name in names if name):
        expected = "a row of names above the numbers"
        raise InvalidSettingError(owner, "file", expected, f"{', '.join(names)} in {path}")
    if len(rows) < 2:
        got = f"{path} with the names {', '.join(names)} alone"
        raise InvalidSettingError(owner, "file", "a row of names and rows below it", got)
    cells = [row for _, row in rows[1:]]
    decimal_comma = has_decimal_commas(owner, path, cells)
    return ForeignTable(owner, path, names, [line for line, _ in rows[1:]], cells, decimal_comma)


def numbered_lines(text: str) -> list[tuple[int, str]]:
    """The number and the text of each line that is not empty."""
    return [(number, line) for number, line in enumerate(LINE_ENDS.split(text), 1) if line.strip()]


def _decode_table(path: Path, content: bytes) -> str:
    """Decode a table. Other encodings than Unicode are read for ASCII, which they share."""
    try:
        return decode(path, content)
    except UnreadableFileError:
        if b"\x00" in content:
            raise
        return content.decode("latin-1")


def _parquet_table(owner: str, path: Path, content: bytes) -> ForeignTable:
    # here, since importing it takes longer than simulating a small cluster
    from pyarrow import BufferReader, parquet

    expected = "a table, as CSV or Parquet"
    try:
        table = parquet.read_table(BufferReader(content))
    except (OSError, ValueError) as error:  # Arrow's errors are ValueErrors
        reason = " ".join(str(error).split())
        raise InvalidSettingError(owner, "file", expected, f"{path}: {reason}") from None
    if table.num_rows == 0:
        got = f"{path} with the names {', '.join(table.column_names)} alone"
        raise InvalidSettingError(owner, "file", "a row of names and rows below it", got)
    columns = [[_text_of_cell(cell) for cell in column.to_pylist()] for column in table.columns]
    rows = list(zip(*columns, strict=True))
    # a row has the number of the line in which it would stand in a CSV file
    return ForeignTable(owner, path, table.column_names, range(2, len(rows) + 2), rows, False)


def _text_of_cell(cell: Any) -> str:
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 2**53:
        return str(int(cell))  # pandas makes ranks with empty cells floats
    return str(cell).strip()


def _is_all_numbers(line: str) -> bool:
    cells = re.split(r"[,;\t| ]+", line.strip())
    return all(PLAIN_NUMBER.fullmatch(cell.strip('"')) for cell in cells)


def _split(owner: str, path: Path, lines: Sequence[tuple[int, str]]) -> list[tuple[int, list[str]]]:
    """The number and the cells of each line, all as many as the names in the first.

    Raises:
        InvalidSettingError: two separators fit, or a row has more cells than there are names.
    """
    separators = [
        separator
        for separator in SEPARATORS
        if len(next(csv.reader([lines[0][1]], delimiter=separator))) > 1
    ]
    candidates = []
    for separator in separators:
        try:
            candidates.append((separator, split_lines(owner, path, lines, separator)))
        except InvalidSettingError:
            if len(separators) == 1:
                raise
    if not candidates:
        words = split_lines(owner, path, lines, SPACE)
        if len(words[0][1]) > 1 and _is_rectangular(words):
            candidates.append((SPACE, words))
        else:
            one_column = [(number, [text.strip().strip('"')]) for number, text in lines]
            candidates.append(("", one_column))
    if len(candidates) > 1:
        candidates = [entry for entry in candidates if _is_rectangular(entry[1])] or candidates
    if len(candidates) > 1:
        names = " or ".join(SEPARATORS[separator] for separator, _ in candidates)
        expected = "one separator in the row of names"
        raise InvalidSettingError(owner, "file", expected, f"{path}: separated by {names}")
    _, (first, *rows) = candidates[0]
    first_number, names_in_file = first
    if _have_row_names(rows, names_in_file):
        names_in_file = ["", *names_in_file]
    width = len(names_in_file)
    numbered = [(first_number, names_in_file)]
    for number, row in rows:
        if len(row) > width:
            got = f"{len(row)} in line {number} of {path}"
            raise InvalidSettingError(owner, "file", f"at most {width} cells in a row", got)
        # rows may lack their last cells where these are empty
        if any(row):
            numbered.append((number, row + [""] * (width - len(row))))
    return numbered


def _have_row_names(rows: Sequence[tuple[int, Sequence[str]]], names: Sequence[str]) -> bool:
    """Whether each row begins with its number or a name, with nothing above it, as R writes them.

    Without such a sign, the last column may as well lack its name.
    """
    cells = [row for _, row in rows]
    if not cells or any(len(row) != len(names) + 1 for row in cells):
        return False
    firsts = [row[0] for row in cells]
    if firsts == [str(number) for number in range(1, len(firsts) + 1)]:
        return True
    return len(set(firsts)) == len(firsts) and not any(map(PLAIN_NUMBER.fullmatch, firsts))


def split_lines(
    owner: str, path: Path, lines: Sequence[tuple[int, str]], separator: str
) -> list[tuple[int, list[str]]]:
    """The cells of lines, and the number of the first line of each row; quotes may hold line ends.

    Raises:
        InvalidSettingError: a quote is not closed, or a cell is too long.
    """
    texts = [f"{line.strip(SPACE)}\n" for _, line in lines]
    reader = csv.reader(texts, delimiter=separator, skipinitialspace=True, strict=True)
    rows: list[tuple[int, list[str]]] = []
    begin = 0
    try:
        for row in reader:
            rows.append((lines[begin][0], [cell.strip() for cell in row]))
            begin = reader.line_num
    except csv.Error as error:
        got = f"{error} in the row that begins at line {lines[begin][0]} of {path}"
        raise InvalidSettingError(owner, "file", "cells with quotes that end", got) from None
    # a separator at the end of every line is none before a cell
    while len(rows) > 1 and all(len(row) > 1 and not row[-1] for _, row in rows):
        rows = [(number, row[:-1]) for number, row in rows]
    return rows


def _is_rectangular(rows: Sequence[tuple[int, Sequence[str]]]) -> bool:
    """Whether all rows have as many cells as there are names, or one more each."""
    names, cells = rows[0][1], [row for _, row in rows[1:]]
    return all(len(row) == len(names) for row in cells) or _have_row_names(rows[1:], names)


def has_decimal_commas(owner: str, path: Path, rows: Sequence[Sequence[str]]) -> bool:
    """Whether numbers are written with a decimal comma.

    Raises:
        InvalidSettingError: commas may be decimal or between thousands.
    """
    commas = [cell for row in rows for cell in row if DECIMAL_COMMA.fullmatch(cell)]
    if not commas:
        return False
    points = [cell for row in rows for cell in row if PLAIN_NUMBER.fullmatch(cell) and "." in cell]
    may_be_thousands = all(THOUSANDS.fullmatch(cell) for cell in commas)
    if may_be_thousands or points:
        raise InvalidSettingError(
            owner,
            "file",
            "numbers with a decimal point, or all with a decimal comma",
            f"{commas[0]} in {path}, whose comma may be decimal or separate thousands",
        )
    return True


def to_unit(table: ForeignTable, place: int, quantity: str, unit: str | None = None) -> Decimal:
    """The factor from the numbers of a column to seconds, bytes or bytes per second.

    The unit is that of the key `unit` (of a bandwidth, `bandwidth_unit`), or else that in the
    column's name, which a warning then shows. Without either, numbers are in laggard's own unit.

    Raises:
        InvalidSettingError: the key is not a unit or contradicts the name, or the name may mean
            bits or bytes.
    """
    name = table.names[place]
    key = "bandwidth_unit" if quantity == "bandwidth" else "unit"
    try:
        _, named = unit_in_name(name, quantity)
    except AmbiguousUnitError as error:
        if unit is None:
            expected = f"the key {key}, or the name of the column {name} with another unit"
            raise table.error(expected, str(error)) from None
        named = None
    used = named
    if unit is not None:
        used = unit_named(unit, quantity)
        if used is None:
            raise InvalidSettingError(table.owner, key, f"a unit of {quantity}", unit)
        if named is not None and used != named:
            expected = f"{named.name}, as the column {name} says"
            raise InvalidSettingError(table.owner, key, expected, unit)
    if used is None:
        return ONE
    if unit is None and used.factor != 1:
        warnings.warn(f"{table.path}: {name} is read in {used.name}", stacklevel=2)
    return used.factor


def without_unit(table: ForeignTable, place: int, quantity: str) -> str:
    """The name of a column without its unit."""
    try:
        name, _ = unit_in_name(table.names[place], quantity)
    except AmbiguousUnitError as error:
        expected = f"the name of the column {table.names[place]} with another unit"
        raise table.error(expected, str(error)) from None
    return name
