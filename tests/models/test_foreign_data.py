"""Data of other tools: IDX files of every type, files that contradict themselves, data in memory."""

import bz2
import gzip
import json
import lzma
import random
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse

from laggard.models import Dataset, idx
from laggard.models.files import read_libsvm
from laggard.models.idx_files import ELEMENT_TYPES, read_idx
from laggard.models.leaf import leaf as leaf_set
from laggard.models.leaf import read_femnist, read_leaf
from tests.cases import yaml_table
from tests.models.releases import leaf_document

BROKEN = yaml_table(__file__, "broken_files.yaml")
COMPRESS = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


def idx_bytes(array, code):
    header = bytes([0, 0, code, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    return header + array.astype(ELEMENT_TYPES[code]).tobytes()


def random_array(rng):
    shape = tuple(rng.randrange(1, 6) for _ in range(rng.randrange(1, 5)))
    return np.array([rng.randrange(100) for _ in range(int(np.prod(shape)))]).reshape(shape)


def break_idx(rng, content, compress):
    """A cut, a byte more, an unknown type, or another first byte."""
    broken = [content[: rng.randrange(len(content))], content + b"x"]
    broken += [content[:2] + b"\x0a" + content[3:], b"\x01" + content[1:]]
    return compress(rng.choice(broken))


@pytest.mark.parametrize(
    "seeds", [range(200), pytest.param(range(1000, 3000), marks=pytest.mark.slow)]
)
def test_random_idx_files_are_read_or_refused(tmp_path, seeds):
    """Half of the files have a fault."""
    for seed in seeds:
        rng = random.Random(seed)
        array, code = random_array(rng), rng.choice(list(ELEMENT_TYPES))
        suffix = rng.choice(list(COMPRESS))
        content = idx_bytes(array, code)
        path = tmp_path / f"{seed}{suffix}"
        if seed % 2 == 0:
            path.write_bytes(COMPRESS[suffix](content))
            np.testing.assert_array_equal(read_idx(path), array)
            continue
        path.write_bytes(break_idx(rng, content, COMPRESS[suffix]))
        with pytest.raises(ValueError, match=str(path)) as caught:
            read_idx(path)
        assert "\n" not in str(caught.value)


def write_sets(tmp_path):
    """A training and a test set of 2 x 3 images with the labels 1, 2 and 3."""
    rng = np.random.default_rng(0)
    arrays = {
        "x": rng.integers(0, 100, (9, 2, 3)),
        "y": np.arange(9) % 3 + 1,
        "test_x": rng.integers(0, 100, (4, 2, 3)),
        "test_y": np.arange(4) % 3 + 1,
    }
    for name, array in arrays.items():
        (tmp_path / name).write_bytes(idx_bytes(array, 0x08))
    return [str(tmp_path / name) for name in arrays], arrays


def test_idx_has_scaled_images_and_classes_from_zero(tmp_path):
    paths, arrays = write_sets(tmp_path)
    data = idx(*paths, first_label=1, transposed=True)
    assert (data.shape, data.classes) == ((1, 3, 2), 3)
    assert data.test_y.tolist() == [0, 1, 2, 0]
    x = arrays["x"].swapaxes(1, 2)
    expected = (x - x.mean()) / x.std()
    np.testing.assert_allclose(data.train_x[:, 0].numpy(), expected, rtol=1e-5, atol=1e-6)


def test_idx_refuses_another_first_label_and_missing_labels(tmp_path):
    paths, _ = write_sets(tmp_path)
    with pytest.raises(ValueError, match=r"labels_file .*first_label = 0"):
        idx(*paths)
    with pytest.raises(ValueError, match=r"labels_file .*9 labels"):
        idx(paths[0], paths[3], paths[2], paths[1], 1)


def test_idx_refuses_numbers_that_no_network_can_use(tmp_path):
    paths, arrays = write_sets(tmp_path)
    test_x = np.full((4, *arrays["x"].shape[1:]), np.nan)
    Path(paths[2]).write_bytes(idx_bytes(test_x, 0x0E))
    with pytest.raises(ValueError, match=r"test_file .*finite"):
        idx(*paths, first_label=1)
    labels = np.ones(len(arrays["x"]))
    labels[0] = 2.0**30
    Path(paths[1]).write_bytes(idx_bytes(labels, 0x0E))
    with pytest.raises(ValueError, match=r"labels_file .*at most 100000 classes"):
        idx(*paths, first_label=1)


LABELS = {
    "classes": lambda rng: [rng.randrange(3)],
    "numbers": lambda rng: [rng.randrange(-4000, 4000) / 8],
    "sets": lambda rng: sorted(rng.sample(range(5), rng.randrange(4))),
}
LIBSVM_FAULTS = [
    "1 2:1 1:1",
    "1 1:",
    "1 1",
    "1;2 1:1",
    "x 1:1",
    "nan 1:1",
    "1 1:inf",
    "<html>",
    "1, 1:1",
]
"""Lines that no file of any kind of labels may have."""


def write_libsvm(rng, kind):
    """The lines of a file as programs write them, its labels, and its inputs of four features."""
    labels = [LABELS[kind](rng) for _ in range(rng.randrange(4, 9))]
    if kind != "numbers":
        labels += [[0], [1]]
    # the last feature occurs everywhere: a line without labels and features would be a blank one
    inputs = [[*(rng.choice([0, 0, rng.randrange(99) / 4]) for _ in range(3)), 1.0] for _ in labels]
    space, end = rng.choice([" ", "\t", "  "]), rng.choice(["", " ", "  # a comment", "\r"])
    lines = []
    for row, x in zip(labels, inputs, strict=True):
        pairs = [f"{index}:{value!r}" for index, value in enumerate(x, 1) if value]
        if kind == "classes" and rng.random() < 0.3:
            pairs.insert(0, "qid:7")
        lines.append(space.join([",".join(map(str, row)), *pairs]) + end)
    return lines, labels, inputs


@pytest.mark.parametrize(
    "seeds", [range(40), pytest.param(range(1000, 2000), marks=pytest.mark.slow)]
)
def test_random_libsvm_files_are_read_or_refused(tmp_path, seeds):
    """Files are read as they were made; one line with a fault is refused, as is a kind unsaid."""
    for seed in seeds:
        rng = random.Random(seed)
        kind, suffix = rng.choice(list(LABELS)), rng.choice(list(COMPRESS))
        lines, labels, inputs = write_libsvm(rng, kind)
        path = tmp_path / f"rows{suffix}"
        path.write_bytes(COMPRESS[suffix]("\n".join(lines).encode()))
        data = read_libsvm(str(path), str(path), 0.5, 0, kind)
        rows = len(labels)
        np.testing.assert_array_equal(
            data.x.toarray()[:rows], np.float32(inputs), err_msg=f"{seed}"
        )
        occurring = sorted({label for row in labels for label in row})
        if kind == "classes":
            expected = [occurring.index(label) for (label,) in labels]
        elif kind == "numbers":
            expected = [label for (label,) in labels]
        else:
            expected = [[label in row for label in occurring] for row in labels]
        np.testing.assert_array_equal(data.y[:rows], expected, err_msg=f"{seed}")
        broken = [*lines]
        broken.insert(rng.randrange(len(lines) + 1), rng.choice(LIBSVM_FAULTS))
        path.write_bytes(COMPRESS[suffix]("\n".join(broken).encode()))
        with pytest.raises(ValueError, match=r"^file = [^\n]*: expected [^\n]*$"):
            read_libsvm(str(path), None, 0.5, 0, kind)
        unsaid = any(len(row) != 1 or row[0] % 1 for row in labels)
        if unsaid:
            path.write_bytes(COMPRESS[suffix]("\n".join(lines).encode()))
            with pytest.raises(ValueError, match="unless labels = "):
                read_libsvm(str(path), None, 0.5, 0)


@pytest.mark.parametrize(("users", "counts", "reason"), BROKEN["leaf"])
def test_leaf_that_contradicts_itself_is_refused(tmp_path, users, counts, reason):
    path = tmp_path / "leaf.json"
    document = leaf_document({"u0": [1], "u1": [1, 1]})
    path.write_text(json.dumps(document | {"users": users, "num_samples": counts}))
    with pytest.raises(ValueError, match=reason):
        read_femnist(str(path), str(path))


def test_arrays_are_taken_as_tools_make_them():
    """Tensors with a graph, halves and frames; sparse, masked and complex numbers are refused."""
    x = torch.eye(2, requires_grad=True)
    y = np.array([0, 1])
    for inputs in (x, x.bfloat16(), pd.DataFrame(np.eye(2))):
        assert Dataset.from_arrays(inputs, y, inputs, y).train_x.tolist() == [[1, 0], [0, 1]]
    for inputs in (sparse.eye(2).tocsr(), 1j * np.eye(2), np.ma.masked_equal(np.eye(2), 0)):
        with pytest.raises(ValueError, match=r"^x: expected"):
            Dataset.from_arrays(inputs, y, np.eye(2), y)


def test_libsvm_of_windows_is_read(tmp_path):
    for encoding in ("utf-8-sig", "utf-16"):
        path = tmp_path / encoding
        path.write_text("1 1:0.5\n0 1:1\n", encoding=encoding)
        assert sorted(read_libsvm(str(path), None, 0.5, 0).y.tolist()) == [0, 1]


def test_leaf_reads_whole_labels_and_no_key_twice(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"users": ["u"], "user_data": {"u": {"x": [[1], [2]], "y": [0.0, 1.0]}}}')
    assert read_leaf(str(path), str(path)).y.tolist() == [0, 1, 0, 1]
    one = '"u": {"x": [[1]], "y": [0]}'
    path.write_text(f'{{"users": ["u"], "user_data": {{{one}, {one}}}}}')
    with pytest.raises(ValueError, match="the key 'u' twice"):
        read_leaf(str(path), str(path))


def test_arrays_and_data_sets_of_torch_are_taken():
    x, y = np.arange(12.0).reshape(4, 3), [0, 1, 2, 1]
    arrays = Dataset.from_arrays(x, y, x[:2], y[:2])
    tensors = torch.utils.data.TensorDataset(torch.tensor(x), torch.tensor(y))
    pairs = Dataset.from_torch(tensors, torch.utils.data.Subset(tensors, [0, 1]))
    for field in ("train_x", "train_y", "test_x", "test_y"):
        assert torch.equal(getattr(arrays, field), getattr(pairs, field))
    assert (arrays.shape, arrays.classes) == ((3,), 3)


@pytest.mark.parametrize(
    ("y", "kind", "classes"),
    [([0.75, 3.0, 5.25, 1.0], "numbers", 1), ([[1, 1], [0, 0], [1, 0], [0, 1]], "sets", 2)],
)
def test_arrays_and_data_sets_keep_numbers_and_sets(y, kind, classes):
    x = np.eye(4)
    pairs = list(zip(x, y, strict=True))
    for data in (
        Dataset.from_arrays(x, y, x, y, labels=kind),
        Dataset.from_torch(pairs, pairs, labels=kind),
    ):
        assert data.train_y.tolist() == data.test_y.tolist() == y
        assert (data.classes, data.labels, data.label_kind) == (classes, (), kind)


@pytest.mark.parametrize(("x", "y", "test_x", "test_y", "kind", "reason"), BROKEN["arrays"])
def test_arrays_that_do_not_fit_are_refused(x, y, test_x, test_y, kind, reason):
    with pytest.raises(ValueError, match=reason):
        Dataset.from_arrays(x, y, test_x, test_y, labels=kind)


class Endless(torch.utils.data.IterableDataset):
    def __iter__(self):
        yield 0.0, 0


def test_data_set_without_length_is_refused():
    with pytest.raises(TypeError, match=r"^train: expected a data set with a length"):
        Dataset.from_torch(Endless(), [([0.0], 0)])


def write_users(path, **samples):
    """LEAF's document of users, each with inputs and labels."""
    data = {user: {"x": x, "y": y} for user, (x, y) in samples.items()}
    counts = [len(user["y"]) for user in data.values()]
    document = {"users": list(data), "num_samples": counts, "user_data": data}
    path.write_text(json.dumps(document))
    return str(path)


def test_leaf_reads_numbers_of_any_shape(tmp_path):
    """As LEAF's synthetic set has them, and images that are nested or flat."""
    train = write_users(tmp_path / "a.json", u1=([[0.5, -2], [3, 4]], [0, 2]), u0=([], []))
    test = write_users(tmp_path / "b.json", u0=([[7, 8]], [1]))
    data = leaf_set(train, test)
    assert (data.shape, data.classes, data.labels) == ((2,), 3, ())
    assert data.train_x.tolist() == [[0.5, -2], [3, 4]]
    assert (data.test_x.tolist(), data.test_y.tolist()) == ([[7, 8]], [1])
    assert leaf_set(train, test, shape="1x1x2").shape == (1, 1, 2)
    nested = write_users(tmp_path / "c.json", u=([[[1, 2, 3], [4, 5, 6]]] * 2, [0, 1]))
    assert leaf_set(nested, nested).shape == (2, 3)


def test_leaf_labels_each_character_by_the_next(tmp_path):
    """As in LEAF's Shakespeare: a piece of text, and the character after it."""
    train = write_users(tmp_path / "a.json", ROMEO=(["abca", "bcab"], ["b", "c"]))
    test = write_users(tmp_path / "b.json", JULIET=(["dabc"], ["a"]), NURSE=([], []))
    data = leaf_set(train, test)
    assert (data.shape, data.classes, data.labels) == ((4,), 4, (4,))
    assert data.train_x.tolist() == [[0, 1, 2, 0], [1, 2, 0, 1]]
    assert data.train_y.tolist() == [[1, 2, 0, 1], [2, 0, 1, 2]]
    assert data.test_y.tolist() == [[0, 1, 2, 0]]


@pytest.mark.parametrize(("x", "y", "reason"), BROKEN["samples"])
def test_leaf_refuses_other_samples_with_user(tmp_path, x, y, reason):
    train = write_users(tmp_path / "a.json", u=([[1, 2], [3, 4]], [0, 1]))
    test = write_users(tmp_path / "b.json", v=(x, y))
    with pytest.raises(ValueError, match=reason) as refused:
        leaf_set(train, test)
    assert str(refused.value).startswith(f"test_file = {test} with ")
    assert "'v'" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_leaf_refuses_shape_of_another_size(tmp_path):
    path = write_users(tmp_path / "a.json", u=([[1, 2]], [0]))
    with pytest.raises(ValueError, match=r"shape = 3: expected a shape of 2 numbers"):
        leaf_set(path, path, shape="3")
