"""Small data sets as their releases have them: files that tests write and read again."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from laggard.models.cifar import Release


def write_cifar(root: Path, release: Release, seed: int = 0) -> dict[str, np.ndarray]:
    """The files of a release below `root`; the records of each file, `(records, bytes)`, labels
    first.
    """
    folder = root / release.folder
    folder.mkdir(parents=True)
    rng, written = np.random.default_rng(seed), {}
    for file, count in release.files.items():
        labels = rng.integers(release.classes, size=(count, release.labels))
        pixels = rng.integers(256, size=(count, 3072))
        written[file] = np.concatenate([labels, pixels], axis=1).astype(np.uint8)
        (folder / file).write_bytes(written[file].tobytes())
    return written


def leaf_document(writers: dict[str, list[int]], seed: int = 0) -> dict[str, Any]:
    """What LEAF writes of writers with so many labels each: images of random pixels."""
    rng = np.random.default_rng(seed)
    data = {
        user: {"x": (rng.integers(256, size=(len(labels), 784)) / 255).tolist(), "y": labels}
        for user, labels in writers.items()
    }
    return {
        "users": list(writers),
        "num_samples": [len(labels) for labels in writers.values()],
        "user_data": data,
    }


def write_leaf(folder: Path) -> tuple[Path, Path]:
    """The folders `train`, of two files, and `test` as LEAF writes them: four writers, one of them
    without samples.
    """
    for name, writers in {
        "train/all_data_0_niid_0_keep_0_train_9.json": {
            "f0001_41": [0, 5, 61],
            "f0002_01": [7],
            "f0003_02": [],
        },
        "train/all_data_1_niid_0_keep_0_train_9.json": {"f0100_11": [1, 2]},
        "test/all_data_0_niid_0_keep_0_test_9.json": {
            "f0001_41": [3],
            "f0002_01": [9],
            "f0003_02": [],
        },
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(leaf_document(writers)))
    return folder / "train", folder / "test"
