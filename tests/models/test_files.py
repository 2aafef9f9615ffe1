"""Files of libsvm and of text are read as their formats say, split once and for all, and refused in
one line.
"""

import numpy as np
import pytest
import torch
from sklearn.datasets import dump_svmlight_file, load_svmlight_files

from laggard.models import files as module
from laggard.models import libsvm, text_file
from tests.cases import yaml_table

ROWS = """\
+1 1:0.5 4:-2 # a comment
-1 2:1e-3

-1
+1 3:7
-1 1:1 2:1 3:1 4:1
"""
DENSE = [[0.5, 0, 0, -2], [0, 1e-3, 0, 0], [0, 0, 0, 0], [0, 0, 7, 0], [1, 1, 1, 1]]
LABELS = [1, 0, 0, 1, 0]


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def whole(data):
    """All samples, the training set first."""
    return torch.cat([data.train_x, data.test_x]), torch.cat([data.train_y, data.test_y])


def test_libsvm_rows_are_dense_and_labels_sorted(tmp_path):
    data = libsvm(
        write(tmp_path / "a9a", ROWS), test_file=write(tmp_path / "a9a.t", "-1 4:3\n+1 1:1\n")
    )
    assert torch.equal(data.train_x, torch.tensor(DENSE))
    assert data.train_y.tolist() == LABELS
    assert torch.equal(data.test_x, torch.tensor([[0.0, 0, 0, 3], [1, 0, 0, 0]]))
    assert data.test_y.tolist() == [0, 1]
    assert (data.name, data.classes, data.shape, data.labels) == ("libsvm", 2, (4,), ())
    assert (data.train_x.dtype, data.train_y.dtype) == (torch.float32, torch.int64)


@pytest.mark.parametrize("zero_based", [False, True])
@pytest.mark.parametrize("wider", ["train", "test"])
def test_two_files_match_scikit_learn(tmp_path, zero_based, wider):
    """A feature that one file lacks, like the last one of a9a in a9a.t, is 0."""
    rng = np.random.default_rng(0)
    paths = [str(tmp_path / name) for name in ("train", "test")]
    for path, rows in zip(paths, (30, 20), strict=True):
        x = rng.random((rows, 6 if path.endswith(wider) else 5)) * (rng.random((rows, 1)) < 0.5)
        dump_svmlight_file(x, rng.permutation(np.arange(rows) % 3), path, zero_based=zero_based)
    x, y, test_x, test_y = load_svmlight_files(paths, dtype=np.float32)
    data = libsvm(*paths)
    assert torch.equal(data.train_x, torch.from_numpy(x.toarray()))
    assert torch.equal(data.test_x, torch.from_numpy(test_x.toarray()))
    assert data.train_y.tolist() == y.tolist()
    assert data.test_y.tolist() == test_y.tolist()


def test_test_rows_are_share_chosen_by_seed(tmp_path):
    path = write(tmp_path / "rows", "".join(f"{row % 3} 1:{row}\n" for row in range(100)))
    one, same, other = (libsvm(path, test_share=0.25, seed=seed) for seed in (0, 0, 1))
    for data in (one, other):
        train, test = (x[:, 0].tolist() for x in (data.train_x, data.test_x))
        assert (len(train), len(test)) == (75, 25)
        assert train == sorted(train)
        assert test == sorted(test)
        assert sorted(train + test) == list(range(100))
        assert data.train_y.tolist() == [row % 3 for row in train]
    assert torch.equal(one.test_x, same.test_x)
    assert not torch.equal(one.test_x, other.test_x)


def test_both_sets_have_a_sample(tmp_path):
    path = write(tmp_path / "rows", "0 1:1\n1 2:1\n0 1:2\n")
    assert [len(libsvm(path, test_share=share).test_y) for share in (1e-9, 0.5, 1 - 1e-9)] == [
        1,
        2,
        2,
    ]


BROKEN = yaml_table(__file__, "broken_files.yaml")


@pytest.mark.parametrize(("content", "labels", "expected"), BROKEN["libsvm"])
def test_file_in_another_format_is_refused(tmp_path, content, labels, expected):
    path = write(tmp_path / "rows", content)
    with pytest.raises(ValueError, match=expected) as refused:
        libsvm(path, labels=labels)
    assert str(refused.value).startswith(f"file = {path} with ")
    assert "\n" not in str(refused.value)


def test_numbers_stay_as_they_are(tmp_path):
    """Ages of abalone are whole numbers, prices of cadata are not."""
    file = write(tmp_path / "train", "15 1:1 2:0.5\n-7.25 1:2\n1e3 2:3\n")
    test_file = write(tmp_path / "test", "2.5 1:1\n")  # no number of the training set
    data = libsvm(file, test_file, labels="numbers")
    assert data.train_y.tolist() == [15, -7.25, 1000]
    assert data.test_y.tolist() == [2.5]
    assert (data.train_y.dtype, data.classes, data.labels) == (torch.float64, 1, ())
    assert torch.equal(data.train_x, torch.tensor([[1, 0.5], [2, 0], [0, 3]]))


def test_sets_are_rows_of_classes(tmp_path):
    """A row without labels starts with a space, as in the collection; 7 is in the test set only."""
    file = write(tmp_path / "train", "3,1 1:1\n 1:2\n10 1:3\n")
    test_file = write(tmp_path / "test", "1,7 1:4\n")
    data = libsvm(file, test_file, labels="sets")
    assert data.train_y.tolist() == [[1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]]
    assert data.test_y.tolist() == [[1, 0, 1, 0]]
    assert data.train_x[:, 0].tolist() == [1, 2, 3]
    assert (data.classes, data.labels) == (4, ())


def test_unknown_kind_of_labels_is_refused(tmp_path):
    with pytest.raises(ValueError, match="labels = 'number': expected classes, numbers or sets"):
        libsvm(write(tmp_path / "rows", ROWS), labels="number")


def test_test_file_needs_labels_of_training_set(tmp_path):
    train, test = write(tmp_path / "train", ROWS), write(tmp_path / "test", "0 1:1\n1 1:1\n")
    with pytest.raises(
        ValueError, match=r"test_file = .*test with 0: expected the labels of the training set"
    ):
        libsvm(train, test_file=test)
    with pytest.raises(ValueError, match=r"test_file = .*test with none: expected lines"):
        libsvm(train, test_file=write(tmp_path / "test", ""))


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5, float("nan")])
def test_share_out_of_range_is_refused(tmp_path, share):
    path = write(tmp_path / "rows", ROWS * 20)
    for load in (libsvm, text_file):
        with pytest.raises(
            ValueError, match=f"test_share = {share}: expected a number > 0 and < 1"
        ):
            load(path, test_share=share)


def test_label_is_next_character(tmp_path):
    written = "Größe: 100 µm\r\nнаправо 一二三 🙂 end" * 9
    data = text_file(write(tmp_path / "a.txt", "\ufeff" + written), positions=5, test_share=0.3)
    occurring = sorted(set(written))
    assert data.classes == len(occurring)
    x, y = whole(data)
    pieces = (len(written) - 1) // 5
    assert x.shape == y.shape == (pieces, 5)
    assert "".join(occurring[int(code)] for code in x.flatten()) == written[: pieces * 5]
    assert "".join(occurring[code] for code in y.flatten()) == written[1 : pieces * 5 + 1]
    # the last ones, since `whole` has them in the order of the file
    assert len(data.test_y) == round(0.3 * pieces)


@pytest.mark.parametrize(("content", "expected"), BROKEN["text"])
def test_unsuitable_text_file_is_refused(tmp_path, content, expected):
    path = write(tmp_path / "text", content.encode("latin-1"))
    with pytest.raises(ValueError, match=expected) as refused:
        text_file(path, positions=4)
    assert str(refused.value).startswith(f"file = {path} with ")
    assert "\n" not in str(refused.value)


def test_length_of_text_is_bounded(tmp_path, monkeypatch):
    path = write(tmp_path / "text", "ab" * 20)
    data = text_file(path, positions=19)
    assert (len(data.train_y), len(data.test_y)) == (1, 1)
    with pytest.raises(ValueError, match="positions = 1"):
        text_file(path, positions=1)
    with pytest.raises(ValueError, match="41 to"):
        text_file(path, positions=20)
    monkeypatch.setattr(module, "MAX_NUMBERS", 39)
    with pytest.raises(ValueError, match="9 to 39 characters"):
        text_file(path, positions=4)
