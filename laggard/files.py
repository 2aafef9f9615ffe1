"""Reading files of other tools: bounded, compressed or not, in any Unicode encoding; names in
order.

`simulator` and `models` share this module; it imports neither.
"""

import bz2
import codecs
import gzip
import lzma
import re
import stat
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

MAX_BYTES = 2**31
"""The largest content of a file (bytes), after decompression."""
CHUNK = 2**20
BYTE_ORDER_MARKS = (
    # the mark of UTF-32 begins with that of UTF-16, so it is tried first
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
KNOWN_FORMATS = {
    b"\x28\xb5\x2f\xfd": "a file compressed by zstd: decompress it",
    b"\xd0\xcf\x11\xe0": "an Excel workbook: save it as CSV",
    b"\x89HDF": "an HDF5 file: export a table from it as CSV",
    b"SQLite format 3": "a database: export a table from it as CSV",
    b"ARROW1": "an Arrow file: save it as Parquet",
    b"\x80\x04": "a pickle, which can run code: save it in another form",
    b"\x80\x05": "a pickle, which can run code: save it in another form",
}
"""The kinds of files that are not read, by their first bytes."""


class UnreadableFileError(ValueError):
    """A file cannot be read; `reason` says why, in a few words."""

    def __init__(self, path: str | Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


def read_bytes(path: str | Path) -> bytes:
    """The content of a regular file, decompressed where it is gzip, bzip2, xz or a zip of one file.

    Its first bytes tell the compression, not its name.

    Raises:
        UnreadableFileError: there is no such regular file, it is damaged, or its content is larger
            than `MAX_BYTES`.
    """
    try:
        status = Path(path).stat()
        if stat.S_ISDIR(status.st_mode):
            raise UnreadableFileError(path, "a folder, not a file")
        if not stat.S_ISREG(status.st_mode):  # a pipe or a device may never end
            raise UnreadableFileError(path, "not a regular file")
        if status.st_size > MAX_BYTES:
            raise UnreadableFileError(path, f"more than {MAX_BYTES} bytes")
        with Path(path).open("rb") as file:
            return _read_bounded(path, file)
    except OSError as error:
        raise UnreadableFileError(path, error.strerror or "a damaged archive") from None


def _read_bounded(path: str | Path, file: BinaryIO) -> bytes:
    """The decompressed content; a small archive may hold more than the memory."""
    try:
        stream = _decompress(path, file)
        content = bytearray()
        while chunk := stream.read(CHUNK):
            content += chunk
            if len(content) > MAX_BYTES:
                raise UnreadableFileError(path, f"more than {MAX_BYTES} bytes, decompressed")
    except (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, gzip.BadGzipFile) as error:
        raise UnreadableFileError(path, f"a damaged archive: {error}") from None
    return bytes(content)


def _decompress(path: str | Path, file: BinaryIO) -> Any:
    """A stream of the decompressed content."""
    start = file.read(16)
    file.seek(0)
    if start.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=file)
    if start.startswith(b"BZh"):
        return bz2.BZ2File(file)
    if start.startswith(b"\xfd7zXZ\x00"):
        return lzma.LZMAFile(file)
    if start.startswith(b"PK\x03\x04"):
        return _only_member(path, zipfile.ZipFile(file))
    for magic, what in KNOWN_FORMATS.items():
        if start.startswith(magic):
            raise UnreadableFileError(path, what)
    return file


def _only_member(path: str | Path, archive: zipfile.ZipFile) -> Any:
    members = [info for info in archive.infolist() if not info.is_dir()]
    names = [info.filename for info in members]
    if "[Content_Types].xml" in names:
        raise UnreadableFileError(path, "an Excel workbook: save it as CSV")
    if len(members) != 1:
        raise UnreadableFileError(path, f"a zip archive of {len(members)} files: unpack it")
    if members[0].flag_bits & 1:
        raise UnreadableFileError(path, "an encrypted zip archive")
    return archive.open(members[0])


def read_text(path: str | Path) -> str:
    """The text of a file; a byte order mark tells UTF-8, UTF-16 or UTF-32, without one it is UTF-8.

    Raises:
        UnreadableFileError: as `read_bytes`, or the content is not text in its encoding.
    """
    return decode(path, read_bytes(path))


def decode(path: str | Path, content: bytes) -> str:
    """The text of `content`, decoded as in `read_text`."""
    encoding = "utf-8"
    for mark, name in BYTE_ORDER_MARKS:
        if content.startswith(mark):
            encoding = name
            break
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        byte = f"byte {content[error.start]:#04x} at {error.start}"
        reason = f"not text in {encoding.upper()}: {byte}; save it as UTF-8"
        raise UnreadableFileError(path, reason) from None
    if "\x00" in text:
        reason = "not text: it has zero bytes; UTF-16 needs a byte order mark"
        raise UnreadableFileError(path, reason)
    return text


def natural_key(name: str) -> tuple[Any, ...]:
    """Sort names as people do: digits by their value, so that `rank10` follows `rank2`.

    Example:
        >>> sorted(["rank10", "rank2", "Rank1"], key=natural_key)
        ['Rank1', 'rank2', 'rank10']
    """
    parts = re.split(r"([0-9]+)", name)
    key = []
    for index, part in enumerate(parts):
        is_number = index % 2 == 1  # split puts what the group matched at odd places
        item = int(part) if is_number else part.casefold()
        key.append(item)
    # leading zeros and case decide between names that are equal otherwise
    return tuple(key), name


def only_number(name: str) -> int | None:
    """The number in a name that has exactly one: 3 of `worker-03`."""
    numbers = re.findall(r"[0-9]+", name)
    if len(numbers) != 1:
        return None
    return int(numbers[0])


def number_names(names: Iterable[str]) -> dict[str, int]:
    """Number distinct names 0, 1, ... in natural order.

    Example:
        >>> number_names(["worker-1", "worker-10", "worker-2"])
        {'worker-1': 0, 'worker-2': 1, 'worker-10': 2}
    """
    distinct = sorted(set(names), key=natural_key)
    return {name: number for number, name in enumerate(distinct)}


def describe_numbering(numbers: dict[str, int]) -> str | None:
    """The numbering in one line, where a name has a number that differs from its own; else None."""
    differing = [name for name, number in numbers.items() if only_number(name) != number]
    if not differing or len(numbers) == 1:
        return None
    first = [f"{name} is {number}" for name, number in list(numbers.items())[:6]]
    if len(numbers) > 6:
        first.append("...")
    return ", ".join(first)
