"""Files that a config names, by a key `file` or `..._file`: identified by content, not by path."""

import hashlib
from pathlib import Path
from typing import Any

from pydantic import ValidationInfo


class FileName(str):
    """The name of a file as a config has it.

    Attributes:
        folder: the folder that it is relative to.
    """

    folder: Path

    def __repr__(self) -> str:
        return repr(absolute(self))


def names_file(key: object) -> bool:
    """Whether a dotted key holds the name of a file.

    Example:
        >>> names_file("cluster.compute.file"), names_file("edge_file"), names_file("profile")
        (True, True, False)
    """
    last = str(key).rpartition(".")[2]
    return last == "file" or last.endswith("_file")


def locate(document: Any, folder: Path) -> None:
    """Make the names of files in a document relative to `folder`; the document changes in place."""
    pending = [(document, False)]
    seen = set()  # YAML may repeat a part, also within itself
    while pending:
        group, group_is_files = pending.pop()
        if (id(group), group_is_files) in seen:
            continue
        seen.add((id(group), group_is_files))
        is_mapping = isinstance(group, dict)
        items = group.items() if is_mapping else enumerate(group)
        for key, value in list(items):
            is_file = group_is_files
            if is_mapping:  # a range of a search may list files: {file: {choice: [...]}}
                is_file = names_file(key) or (group_is_files and key == "choice")
            if isinstance(value, dict | list):
                pending.append((value, is_file))
            elif isinstance(value, str) and is_file:
                group[key] = FileName(value)
                group[key].folder = folder


def absolute(value: Any) -> Any:
    """The absolute path of a file's name, by default from the working directory.

    A value that is not a string is returned unchanged.
    """
    if not isinstance(value, str):
        return value
    return str(Path(getattr(value, "folder", ""), str(value)).absolute())


def absolute_path(value: Any, info: ValidationInfo) -> Any:
    """The absolute path of a file that a config names; a result's config has absolute paths."""
    return value if is_from_result(info) else absolute(value)


def is_from_result(info: ValidationInfo) -> bool:
    """Whether a config is read from a result: its values were checked when it was run."""
    return bool(info.context and info.context.get("stored"))


def hash_of(path: Path) -> str:
    """SHA-256 of a file in hexadecimal; of a folder, that of its files' hashes in order of name."""
    if path.is_dir():
        hashes = [hash_of(file) for file in sorted(path.iterdir()) if file.is_file()]
        return hashlib.sha256("\n".join(hashes).encode()).hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def without_paths(document: Any) -> Any:
    """A resolved document with suffixes in place of the paths of files that have a hash.

    The suffix says how a file is read.
    """
    if isinstance(document, list):
        return [without_paths(item) for item in document]
    if not isinstance(document, dict):
        return document
    result = {}
    for key, value in document.items():
        if isinstance(value, str) and document.get(f"{key}_sha256"):
            result[key] = Path(value).suffix
        else:
            result[key] = without_paths(value)
    return result
