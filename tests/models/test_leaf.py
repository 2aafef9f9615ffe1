"""FEMNIST is read from LEAF's JSON, with the writers of its samples, and refused in one line where
it is broken.
"""

import json
import sys

import numpy as np
import pytest
import torch

from laggard.models import ByWriter, Logistic, Supervised, femnist
from tests.models.releases import leaf_document, write_leaf


@pytest.fixture
def folders(tmp_path):
    """The folders of training and of test files."""
    return write_leaf(tmp_path)


def test_samples_keep_order_of_files_and_writers(folders):
    data = femnist(*map(str, folders))
    first, second = (
        json.loads(file.read_text())["user_data"] for file in sorted(folders[0].iterdir())
    )
    assert (data.name, data.shape, data.classes, data.labels) == ("femnist", (1, 28, 28), 62, ())
    assert data.train_y.tolist() == [0, 5, 61, 7, 1, 2]
    assert data.test_y.tolist() == [3, 9]
    assert data.writers.tolist() == [0, 0, 0, 1, 3, 3]
    for place, image in ((1, first["f0001_41"]["x"][1]), (5, second["f0100_11"]["x"][1])):
        assert torch.equal(data.train_x[place, 0], torch.tensor(image).reshape(28, 28))
    assert (data.train_x.dtype, data.train_y.dtype) == (torch.float32, torch.int64)


def test_file_is_folder_of_one(tmp_path, folders):
    alone = tmp_path / "train.json"
    sorted(folders[0].iterdir())[0].rename(alone)
    folder, file = femnist(*map(str, folders)), femnist(str(alone), str(folders[1]))
    assert (len(folder.train_y), len(file.train_y)) == (2, 4)
    assert torch.equal(folder.test_x, file.test_x)


def test_writer_in_two_files_is_one_writer(folders):
    one, _ = sorted(folders[0].iterdir())
    (folders[0] / "more.json").write_text(one.read_text())
    assert femnist(*map(str, folders)).writers.tolist() == [0, 0, 0, 1, 3, 3, 0, 0, 0, 1]


def user(**changed):
    """LEAF's document of one writer whose data are changed."""
    document = leaf_document({"f1": [1, 2]})
    document["user_data"]["f1"] |= changed
    return json.dumps(document)


IMAGE = [0.5] * 784
BROKEN = {
    "expected JSON": [b"", user().encode()[:-3], b"<html>", b'{"users": ["\xff"]}', b"[" * 100_000],
    "expected a list users": [b"[]", b"{}", b'{"users": "f1"}'],
    "with none of 'f1': expected user_data of each": [b'{"users": ["f1"], "user_data": {}}'],
    "with none: expected samples": [b'{"users": [], "user_data": {}}', user(x=[], y=[])],
    "expected x with 784 numbers from 0 to 1": [
        json.dumps({"users": ["f1"], "user_data": {"f1": {"y": [1]}}}),
        json.dumps({"users": ["f1"], "user_data": {"f1": 3}}),
        user(x=[IMAGE, IMAGE[1:]]),
        user(x=[IMAGE[1:], IMAGE[1:]]),
        user(x=[IMAGE[392:]] * 4, y=[1, 2]),
        user(x=[IMAGE, [255.0] * 784]),
        user(x=[IMAGE, [float("nan")] * 784]),
        user(x=[IMAGE, None]),
        user(x="image"),
        *(user(y=labels) for labels in [[1], [1, 62], [1, -1], [1, "a"], [1, 1.5]]),
    ],
}
CASES = [(content, text) for text, contents in BROKEN.items() for content in contents]


@pytest.mark.parametrize(("content", "text"), CASES, ids=range(len(CASES)))
@pytest.mark.parametrize("key", ["file", "test_file"])
def test_broken_file_is_refused(tmp_path, folders, key, content, text):
    path = tmp_path / "broken.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    files = {"file": str(folders[0]), "test_file": str(folders[1]), key: str(path)}
    with pytest.raises(ValueError, match=text) as refused:
        femnist(**files)
    assert str(refused.value).startswith(f"{key} = {path} with ")
    assert "\n" not in str(refused.value)


def test_empty_folder_and_too_many_images_are_refused(tmp_path, folders, monkeypatch):
    (tmp_path / "nothing").mkdir()
    with pytest.raises(ValueError, match=r"test_file = .*nothing with none: expected samples"):
        femnist(str(folders[0]), str(tmp_path / "nothing"))
    monkeypatch.setattr(sys.modules["laggard.models.leaf"], "MAX_DENSE", 5 * 784)
    with pytest.raises(ValueError, match="expected at most 3920 numbers"):
        femnist(*map(str, folders))


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_workers_train_on_images_of_their_writers(folders, workers):
    data = femnist(*map(str, folders))
    task = Supervised(
        Logistic().build, data, 4, partition=ByWriter(), workers=workers, threads=1, device="cpu"
    )
    rng = np.random.default_rng(0)
    seen = [
        {int(data.writers[i]) for i in next(task.batches(rank, [rng]))} for rank in range(workers)
    ]
    assert sum(map(len, seen)) == len(set().union(*seen)) == 3
