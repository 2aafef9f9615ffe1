"""CIFAR is read from its binary release, scaled by constants, and refused in one line where it is
broken.
"""

import io
import tarfile
from hashlib import md5
from pathlib import Path

import numpy as np
import pytest
import torch

from laggard.models import DataMissingError, cifar, cifar10, cifar100
from tests.models.releases import write_cifar

SETS = {"cifar10": (cifar10, "CIFAR10", 3073), "cifar100": (cifar100, "CIFAR100", 3074)}


@pytest.fixture(params=SETS)
def small(request, tmp_path, monkeypatch):
    """A release with three images a file: its name, what loads it, the release, the length of a
    record, its records.
    """
    load, name, length = SETS[request.param]
    release = getattr(cifar, name)._replace(records=3, tests=3)
    monkeypatch.setattr(cifar, name, release)
    monkeypatch.setenv("LAGGARD_DATA", str(tmp_path))
    return request.param, load, release, length, write_cifar(tmp_path, release)


def test_records_are_read_as_described(small, tmp_path):
    """The last label byte, then 1,024 bytes of red, of green and of blue, row by row."""
    name, load, release, length, written = small
    (tmp_path / release.folder).chmod(0o500)
    data = load()
    (tmp_path / release.folder).chmod(0o700)
    records = np.concatenate([written[file] for file in release.train])
    assert records.shape[1] == length
    assert (data.name, data.shape, data.classes) == (name, (3, 32, 32), release.classes)
    assert data.train_y.tolist() == records[:, length - 3073].tolist()
    assert data.test_y.tolist() == written[release.test][:, length - 3073].tolist()
    for channel, row, column in ((0, 0, 0), (1, 2, 31), (2, 31, 5)):
        byte = records[-1, length - 3072 + 1024 * channel + 32 * row + column]
        scaled = (byte / 255 - release.mean[channel]) / release.deviation[channel]
        assert data.train_x[-1, channel, row, column].item() == pytest.approx(scaled, abs=1e-5)


BROKEN = {
    "truncated": lambda content: content[:-1],
    "one record short": lambda content: content[: -len(content) // 3],
    "one record more": lambda content: content + content[: len(content) // 3],
    "empty": lambda content: b"",
    "a page": lambda content: b"<html>",
}


@pytest.mark.parametrize("how", BROKEN)
@pytest.mark.parametrize("which", ["train", "test"])
def test_files_of_wrong_length_are_refused(small, tmp_path, how, which):
    _, load, release, length, _ = small
    path = tmp_path / release.folder / (release.train[-1] if which == "train" else release.test)
    path.write_bytes(BROKEN[how](path.read_bytes()))
    with pytest.raises(DataMissingError) as refused:
        load()
    got = path.stat().st_size
    assert str(refused.value).startswith(
        f"{path}: expected 3 records of {length} bytes, got {got} bytes: remove it"
    )
    assert "\n" not in str(refused.value)


def test_unknown_label_is_refused_with_record(small, tmp_path):
    _, load, release, length, _ = small
    path = tmp_path / release.folder / release.test
    content = bytearray(path.read_bytes())
    content[length + length - 3073] = release.classes
    path.write_bytes(content)
    expected = f"expected labels from 0 to {release.classes - 1}, got {release.classes} in record 1"
    with pytest.raises(DataMissingError, match=expected):
        load()


def packed(release, folder):
    """The archive of a release."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        archive.add(folder / release.folder, release.folder)
    return target.getvalue()


def test_missing_files_are_downloaded_with_right_md5(small, tmp_path, monkeypatch):
    name, load, release, _, written = small
    from laggard.models.vision import import_torchvision

    content = packed(release, tmp_path)
    monkeypatch.setattr(cifar, name.upper(), release._replace(md5=md5(content).hexdigest()))
    asked = []

    def fetch(url, filename, **_):
        asked.append(url)
        Path(filename).write_bytes(content)

    monkeypatch.setattr(import_torchvision().datasets.utils, "_urlretrieve", fetch)
    monkeypatch.setattr(
        import_torchvision().datasets.utils, "_get_redirect_url", lambda url, **_: url
    )
    root = tmp_path / "new"
    monkeypatch.setenv("LAGGARD_DATA", str(root))
    labels = load().test_y.tolist()
    assert labels == written[release.test][:, release.labels - 1].tolist()
    assert asked == [f"https://www.cs.toronto.edu/~kriz/{release.archive}"]
    assert [path.name for path in root.iterdir()] == [release.folder]  # the archive is not kept
    load()
    assert len(asked) == 1
    (root / release.folder / release.test).unlink()
    monkeypatch.setattr(cifar, name.upper(), release)  # the md5 of the real one
    with pytest.raises(DataMissingError, match="could not be downloaded"):
        load()


def test_failed_download_names_missing_files(small, tmp_path, monkeypatch):
    name, load, release, _, _ = small
    from laggard.models.vision import import_torchvision

    def offline(*_, **__):
        raise OSError("<urlopen error>\nno network")

    monkeypatch.setattr(
        import_torchvision().datasets.utils, "download_and_extract_archive", offline
    )
    (tmp_path / release.folder / release.test).unlink()
    with pytest.raises(DataMissingError) as missing:
        load()
    message = str(missing.value)
    assert message.startswith(f"{name} is missing or incomplete in {tmp_path / release.folder}")
    assert all(word in message for word in (*release.files, release.archive, "LAGGARD_DATA"))
    assert "\n" not in message
    assert missing.value.__suppress_context__


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_release_of_full_size_has_expected_shapes(name, tmp_path, monkeypatch):
    from laggard.experiments.config.task import SIZES

    load, release, _ = SETS[name]
    monkeypatch.setenv("LAGGARD_DATA", str(tmp_path))
    write_cifar(tmp_path, getattr(cifar, release))
    data = load()
    assert (data.shape, data.classes, len(data.train_y)) == SIZES[name][:3]
    assert len(data.test_y) == 10_000
    assert data.train_x.dtype == torch.float32
