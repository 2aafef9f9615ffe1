"""Federated data sets in LEAF's JSON: users, each with their own samples."""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from laggard.files import UnreadableFileError, natural_key, read_bytes
from laggard.models.data import Dataset
from laggard.models.files import MAX_CLASSES, MAX_DENSE, Samples, wrong_file

SHAPE, CLASSES = (1, 28, 28), 62
"""The shape of an image of FEMNIST; ten digits, 26 capital and 26 small letters."""
IMAGE_PIXELS = math.prod(SHAPE)


class User(NamedTuple):
    """The samples of one user.

    Attributes:
        key: the config key that names their file.
        file: the path of that file.
        x: inputs `(samples, ...)`.
        y: labels `(samples,)`.
    """

    key: str
    file: Path
    name: str
    x: np.ndarray
    y: np.ndarray


class UnknownSamplesError(ValueError):
    """Samples that do not follow LEAF's format; the text describes them."""


Decode = Callable[[Any], tuple[np.ndarray, np.ndarray]]
"""A function from the data of a user to inputs and labels; raises where they are not as expected.
"""


def femnist(file: str, test_file: str) -> Dataset:
    """Handwritten digits and letters of 28 x 28 pixels in 62 classes, with writers, from LEAF.

    Pixels are LEAF's, from 0 for ink to 1 for paper. `partition: by_writer` gives each writer to
    one worker.

    Args:
        file: LEAF's JSON of training samples, or a folder of such files: `data/femnist/data/train`
            of LEAF.
        test_file: JSON or a folder, as `file`, with test samples: `data/femnist/data/test`.

    Source: Caldas et al. (2018), arXiv:1812.01097; Cohen et al. (2017), arXiv:1702.05373.

    Raises:
        ValueError: a file is no JSON, or not as LEAF writes it, or there are more than 10^9 pixels.
    """
    return read_femnist(file, test_file).dataset("femnist")


def leaf(file: str, test_file: str, shape: str = "") -> Dataset:
    """Samples of users in LEAF's JSON: numbers with a class each, or texts with a next character.

    Numbers are taken as they are; labels are whole numbers from 0. Texts have one length, such as
    Shakespeare's 80 characters. Each character is an input, and the next character its label; the
    last label is that of the file. Classes are all characters in order of their code points. The
    writers of `partition: by_writer` are the users.

    Args:
        file: LEAF's JSON of training samples, or a folder of such files.
        test_file: JSON or a folder, as `file`, with test samples.
        shape: the shape of an input of numbers, such as 1x28x28; by default that of the nested
            lists.

    Source: Caldas et al. (2018), arXiv:1812.01097.

    Raises:
        ValueError: a file is no JSON, or not as LEAF writes it, files contradict each other, or
            there are more than 10^9 numbers.
    """
    return read_leaf(file, test_file, shape).dataset("leaf")


def read_femnist(file: str, test_file: str) -> Samples:
    """The samples of `femnist`: images `(samples, 1, 28, 28)`.

    Raises:
        ValueError: as in `femnist`.
    """
    pixels = f"x with {IMAGE_PIXELS} numbers from 0 to 1 an image"
    expected = f"{pixels}, and y with its label from 0 to {CLASSES - 1}"
    train = list(_read_users("file", file, _decode_images, expected))
    test = list(_read_users("test_file", test_file, _decode_images, expected))
    return _join_users(train, test, CLASSES)


def read_leaf(file: str, test_file: str, shape: str = "") -> Samples:
    """The samples of `leaf`.

    Raises:
        ValueError: as in `leaf`.
    """
    sizes = _sizes_in(shape)
    expected = "x with numbers and y with a class 0, 1, ... of each, or texts and next characters"
    train = list(_read_users("file", file, _decode, expected))
    test = list(_read_users("test_file", test_file, _decode, expected))
    inputs = _check_alike(train + test)
    train, test = ([_fill_empty_user(user, inputs) for user in users] for users in (train, test))
    if inputs.dtype.kind == "U":
        if shape:
            raise ValueError(f"shape = {shape}: expected none, since the samples are texts")
        return _texts(train, test)
    numbers = math.prod(inputs.shape[1:])
    if sizes:
        if math.prod(sizes) != numbers:
            raise ValueError(f"shape = {shape}: expected a shape of {numbers} numbers")
        train, test = (
            [user._replace(x=user.x.reshape(-1, *sizes)) for user in users]
            for users in (train, test)
        )
    classes = 1 + max(int(user.y.max(initial=0)) for user in train)
    for user in test:
        if len(user.y) and user.y.max() >= classes:
            got = f"label {user.y.max()} of {user.name!r}"
            raise wrong_file(user.key, user.file, "the labels of the training set", got)
    return _join_users(train, test, classes)


def _sizes_in(shape: str) -> tuple[int, ...]:
    """The sizes in a text like 1x28x28; none in an empty one.

    Raises:
        ValueError: it is not such a text.
    """
    if not shape:
        return ()
    parts = shape.split("x")
    if not all(part.isascii() and part.isdigit() and 0 < int(part) <= MAX_DENSE for part in parts):
        raise ValueError(f"shape = {shape!r}: expected sizes of at least 1, such as 1x28x28")
    return tuple(map(int, parts))


def _join_users(train: Sequence[User], test: Sequence[User], classes: int) -> Samples:
    """The samples of all users, in order, with the user's number for each training sample."""
    numbers: dict[str, int] = {}  # numbers of users, who may be in several files
    writers = []
    for user in train:
        number = numbers.setdefault(user.name, len(numbers))
        writers.append(np.full(len(user.y), number))
    writer = np.concatenate(writers)
    x = np.concatenate([user.x for user in (*train, *test)])
    y = np.concatenate([user.y for user in (*train, *test)])
    rows = len(writer)
    return Samples(x, y, slice(rows), slice(rows, None), classes, writer)


def _texts(train: Sequence[User], test: Sequence[User]) -> Samples:
    """Texts as indices of characters `(samples, positions)`, and the next characters as labels."""
    samples = _join_users(train, test, 0)
    length = samples.x.dtype.itemsize // 4  # numpy's strings have four bytes a character
    inputs = np.ascontiguousarray(samples.x).view(np.uint32).reshape(-1, length)
    last_labels = samples.y.astype("U1").view(np.uint32).reshape(-1, 1)
    # Each text with the character after it: all but the last are inputs, all but the first labels.
    code_points = np.hstack([inputs, last_labels])
    alphabet, classes = np.unique(code_points, return_inverse=True)
    classes = classes.reshape(-1, length + 1)
    x = classes[:, :-1].astype(np.float32)
    y = classes[:, 1:]
    return samples._replace(x=x, y=y, classes=len(alphabet))


def _check_alike(users: Sequence[User]) -> np.ndarray:
    """The inputs of the first user that has any; inputs of another kind or shape are refused."""
    first = next(user for user in users if len(user.y))
    kind = first.x.dtype, first.x.shape[1:]
    for user in users:
        if len(user.y) and (user.x.dtype, user.x.shape[1:]) != kind:
            expected = f"inputs of {_describe_inputs(first)}"
            got = f"inputs of {_describe_inputs(user)} of {user.name!r}"
            raise wrong_file(user.key, user.file, expected, got)
    return first.x


def _fill_empty_user(user: User, inputs: np.ndarray) -> User:
    """`user`; without samples, with empty inputs of the shape and type of `inputs`."""
    if len(user.y):
        return user
    labels = "U1" if inputs.dtype.kind == "U" else "int64"
    return user._replace(x=inputs[:0], y=np.empty(0, dtype=labels))


def _describe_inputs(user: User) -> str:
    if user.x.dtype.kind == "U":
        return f"{user.x.dtype.itemsize // 4} characters"
    return f"the shape {list(user.x.shape[1:])}"


def _read_users(key: str, name: str, decode: Decode, expected: str) -> Iterator[User]:
    """The users of a file, or of a folder's `*.json` in order.

    Args:
        expected: the description of what `decode` expects.
    """
    path, numbers, samples = Path(name), 0, 0
    files = [path]
    if path.is_dir():
        files = sorted(path.glob("*.json*"), key=lambda found: natural_key(found.name))
    for file in files:
        document = _read_document(key, file)
        try:
            counts = _sample_counts(key, file, document)
            users = [(str(user), document["user_data"][user]) for user in document["users"]]
        except (KeyError, TypeError, IndexError):
            wanted = "a list users, and user_data of each of them"
            raise wrong_file(key, file, wanted, "others") from None
        for user, data in users:
            try:
                x, y = decode(data)
            except UnknownSamplesError as error:
                raise wrong_file(key, file, expected, f"{error} of {user!r}") from None
            except (KeyError, TypeError, ValueError, OverflowError, IndexError):
                raise wrong_file(key, file, expected, f"others for {user!r}") from None
            if len(y) and counts.get(user, len(y)) != len(y):
                wanted = f"num_samples = {counts[user]} of {user!r}"
                raise wrong_file(key, file, wanted, f"{len(y)} samples")
            numbers += x.size
            samples += len(y)
            if numbers > MAX_DENSE:
                raise wrong_file(key, file, f"at most {MAX_DENSE} numbers", f"{numbers} so far")
            yield User(key, file, user, x, y)
    if not samples:
        raise wrong_file(key, name, "samples", "none")


def _read_document(key: str, file: Path) -> Any:
    try:
        return json.loads(read_bytes(file), object_pairs_hook=_unique_keys)
    except UnreadableFileError as error:
        raise wrong_file(key, file, "JSON", error.reason) from None
    except (ValueError, RecursionError) as error:  # text in another encoding is a ValueError
        raise wrong_file(key, file, "JSON", str(error)) from None


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; a repeated key is refused, since Python would take its last value."""
    document = dict(pairs)
    if len(document) < len(pairs):
        key, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {key!r} twice")
    return document


def _sample_counts(key: str, file: Path, document: Any) -> dict[str, int]:
    """The number of samples of each user, as the file lists it beside the data.

    Raises:
        ValueError: its lists of users, data and counts contradict each other; names the user.
    """
    if not isinstance(document["users"], list):
        raise TypeError
    users = [str(user) for user in document["users"]]
    repeated = [user for user, count in Counter(users).items() if count > 1]
    if repeated:
        raise wrong_file(key, file, "each user once", f"{repeated[0]!r} twice")
    lacking = [user for user in document["users"] if user not in document["user_data"]]
    if lacking:
        raise wrong_file(key, file, "user_data of each of `users`", f"none of {lacking[0]!r}")
    unlisted = sorted(set(document["user_data"]) - set(users), key=natural_key)
    if unlisted:
        raise wrong_file(key, file, "data of listed users alone", f"data of {unlisted[0]!r}")
    counts = document.get("num_samples", [])
    if not isinstance(counts, list) or not all(isinstance(count, int | float) for count in counts):
        got = f"{counts!s:.40}"
        raise wrong_file(key, file, "num_samples, a list of numbers, one a user", got)
    if counts and len(counts) != len(users):
        raise wrong_file(key, file, f"{len(users)} num_samples, one a user", f"{len(counts)}")
    return dict(zip(users, counts, strict=False))


def _decode(data: Any) -> tuple[np.ndarray, np.ndarray]:
    """Numbers and classes, or texts and next characters.

    Raises:
        ValueError: they are neither.
    """
    if not (data["x"] or data["y"]):
        return np.empty(0), np.empty(0, dtype=np.int64)
    if any(isinstance(item, str) for item in data["x"]):
        return _decode_texts(data)
    try:
        x = np.array(data["x"], dtype=np.float32)
    except (ValueError, TypeError):
        raise UnknownSamplesError("x with non-numbers, or of different lengths") from None
    x = x.reshape(len(x), -1) if x.ndim < 2 else x  # a number alone is a vector of one
    if len(x) != len(data["y"]):
        raise UnknownSamplesError(f"{len(x)} x and {len(data['y'])} y")
    if not np.isfinite(x).all():
        raise UnknownSamplesError("x that is not finite")
    return x, _labels(data["y"], MAX_CLASSES)


def _decode_texts(data: Any) -> tuple[np.ndarray, np.ndarray]:
    texts, following = data["x"], data["y"]
    if len(texts) != len(following):
        raise ValueError
    lengths = {len(text) for text in texts if isinstance(text, str)}
    same_length = len(lengths) == 1 and all(isinstance(text, str) for text in texts)
    characters = all(isinstance(item, str) and len(item) == 1 for item in following)
    if not (same_length and characters) or "\0" in "".join([*texts, *following]):
        raise ValueError  # numpy drops zeros at the end of a text
    return np.array(texts), np.array(following)


def _decode_images(data: Any) -> tuple[np.ndarray, np.ndarray]:
    """The images `(samples, 1, 28, 28)` and the labels of a writer of FEMNIST.

    Raises:
        ValueError: a shape, a pixel or a label is wrong.
    """
    x = np.array(data["x"], dtype=np.float32).reshape(-1, *SHAPE)
    if len(x) != len(data["x"]) or len(x) != len(data["y"]):
        raise ValueError
    if not ((x >= 0) & (x <= 1)).all():
        raise ValueError
    return x, _labels(data["y"], CLASSES)


def _labels(labels: Any, classes: int) -> np.ndarray:
    for label in labels:
        # FedProx writes whole numbers as 1.0; a bool is not a label
        whole = type(label) is int or (type(label) is float and label.is_integer())
        if not whole or not 0 <= label < classes:
            raise UnknownSamplesError(f"the label {label!r:.40}")
    return np.array(labels, dtype=np.int64)
