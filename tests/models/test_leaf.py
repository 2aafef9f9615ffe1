"""FEMNIST is read from LEAF's JSON, with the writers of its samples, and refused in one line where
it is broken.
"""

import json

import numpy as np
import pytest
import torch

from laggard.models import ByWriter, Logistic, Supervised, femnist
from laggard.models import files as module
from tests.models.releases import leaf_document, write_leaf


@pytest.fixture
def folders(tmp_path):
    """The folders of training and of test files."""
    return write_leaf(tmp_path)


def test_samples_are_read_in_the_order_of_files_and_writers(folders):
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


def test_a_file_is_as_good_as_a_folder_of_one(tmp_path, folders):
    alone = tmp_path / "train.json"
    sorted(folders[0].iterdir())[0].rename(alone)
    folder, file = femnist(*map(str, folders)), femnist(str(alone), str(folders[1]))
    assert (len(folder.train_y), len(file.train_y)) == (2, 4)
    assert torch.equal(folder.test_x, file.test_x)


def test_a_writer_in_two_files_is_one_writer(folders):
    one, _ = sorted(folders[0].iterdir())
    (folders[0] / "more.json").write_text(one.read_text())
    assert femnist(*map(str, folders)).writers.tolist() == [0, 0, 0, 1, 3, 3, 0, 0, 0, 1]


def user(**changed):
    """LEAF's document of one writer whose data are changed."""
    document = leaf_document({"f1": [1, 2]})
    document["user_data"]["f1"] |= changed
    return json.dumps(document)


IMAGE = [0.5] * 784
EXPECTED = "expected x with 784 numbers from 0 to 1 an image, and y with its label from 0 to 61"
BROKEN = {
    "empty": (b"", "expected JSON"),
    "cut": (user().encode()[:-3], "expected JSON"),
    "a page": (b"<html>", "expected JSON"),
    "not UTF-8": (b'{"users": ["\xff"]}', "expected JSON"),
    "deep": (b"[" * 100_000, "expected JSON"),
    "a list": (b"[]", "expected a list users, and user_data of each of them"),
    "no users": (b"{}", "expected a list users"),
    "no data": (b'{"users": ["f1"], "user_data": {}}', "expected a list users"),
    "nobody": (b'{"users": [], "user_data": {}}', "with none: expected images"),
    "no images": (user(x=[], y=[]), "with none: expected images"),
    "no x": (json.dumps({"users": ["f1"], "user_data": {"f1": {"y": [1]}}}), EXPECTED),
    "no mapping": (json.dumps({"users": ["f1"], "user_data": {"f1": 3}}), EXPECTED),
    "a short image": (user(x=[IMAGE, IMAGE[1:]]), EXPECTED),
    "images of another size": (user(x=[IMAGE[1:], IMAGE[1:]]), EXPECTED),
    "images in half": (user(x=[IMAGE[392:]] * 4, y=[1, 2]), EXPECTED),
    "fewer labels": (user(y=[1]), EXPECTED),
    "a label too large": (user(y=[1, 62]), EXPECTED),
    "a negative label": (user(y=[1, -1]), EXPECTED),
    "a label that is no number": (user(y=[1, "a"]), EXPECTED),
    "a label that is not whole": (user(y=[1, 1.5]), EXPECTED),
    "bytes for shares": (user(x=[IMAGE, [255.0] * 784]), EXPECTED),
    "no number": (user(x=[IMAGE, [float("nan")] * 784]), EXPECTED),
    "null": (user(x=[IMAGE, None]), EXPECTED),
    "a string": (user(x="image"), EXPECTED),
}


@pytest.mark.parametrize("how", BROKEN)
@pytest.mark.parametrize("key", ["file", "test_file"])
def test_what_leaf_does_not_write_is_refused_in_one_line(tmp_path, folders, key, how):
    content, expected = BROKEN[how]
    path = tmp_path / "broken.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    given = {"file": str(folders[0]), "test_file": str(folders[1])} | {key: str(path)}
    with pytest.raises(ValueError, match="expected") as refused:
        femnist(**given)
    assert str(refused.value).startswith(f"{key} = {path} with ")
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_folder_without_json_and_too_many_images_are_refused(tmp_path, folders, monkeypatch):
    (tmp_path / "nothing").mkdir()
    with pytest.raises(ValueError, match=r"test_file = .*nothing with none: expected images"):
        femnist(str(folders[0]), str(tmp_path / "nothing"))
    monkeypatch.setattr(module, "MAX_DENSE", 5 * 784)
    with pytest.raises(ValueError, match="expected at most 5 images"):
        femnist(*map(str, folders))


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_workers_train_on_the_images_of_their_own_writers(folders, workers):
    data = femnist(*map(str, folders))
    task = Supervised(
        Logistic().build, data, 4, partition=ByWriter(), workers=workers, threads=1, device="cpu"
    )
    rng = np.random.default_rng(0)
    seen = [
        {int(data.writers[i]) for i in next(task.batches(rank, [rng]))} for rank in range(workers)
    ]
    assert sum(map(len, seen)) == len(set().union(*seen)) == 3
