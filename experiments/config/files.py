"""Files that a config names: a key `file`, or one that ends in `_file`; their content decides, not
their place.
"""

import hashlib
from pathlib import Path
from typing import Any

from pydantic import ValidationInfo


class FileName(str):
    """The name of a file as it was written, with the folder that it is relative to.

    Attributes:
        folder: the folder.
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
    """Let the names of files in a document that was just read be relative to `folder`; it is
    changed in place.
    """
    left, seen = [(document, False)], set()
    while left:
        held, are_files = left.pop()
        if (id(held), are_files) in seen:  # YAML may repeat a part, also within itself
            continue
        seen.add((id(held), are_files))
        for place, value in list(held.items() if isinstance(held, dict) else enumerate(held)):
            is_file = (
                names_file(place) or (are_files and place == "choice")
                if isinstance(held, dict)
                else are_files
            )
            if isinstance(value, dict | list):
                left.append((value, is_file))
            elif isinstance(value, str) and is_file:
                held[place] = FileName(value)
                held[place].folder = folder


def absolute(value: Any) -> Any:
    """The absolute path of a file's name, by default from the working directory; what is no string,
    as it is.
    """
    if not isinstance(value, str):
        return value
    return str(Path(getattr(value, "folder", ""), str(value)).absolute())


def absolute_path(value: Any, info: ValidationInfo) -> Any:
    """The absolute path of a file that a config names; in the config of a result it is one
    already.
    """
    return value if is_from_result(info) else absolute(value)


def is_from_result(info: ValidationInfo) -> bool:
    """Whether a config is read back from a result: its values were checked when it was run."""
    return bool(info.context and info.context.get("kept"))


def hash_of(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal; of a folder, that of its files' hashes, in the order of
    their names.
    """
    if path.is_dir():
        each = [hash_of(file) for file in sorted(path.iterdir()) if file.is_file()]
        return hashlib.sha256("\n".join(each).encode()).hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def without_paths(document: Any) -> Any:
    """A resolved document in which a file that has been hashed has but the suffix of its name,
    which says its form.
    """
    if isinstance(document, list):
        return [without_paths(one) for one in document]
    if not isinstance(document, dict):
        return document
    hashed = {
        key for key in document if document.get(f"{key}_sha256") and isinstance(document[key], str)
    }
    return {
        key: Path(value).suffix if key in hashed else without_paths(value)
        for key, value in document.items()
    }
