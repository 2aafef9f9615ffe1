"""Keys that went to methods of their own: one line says where, and results with the old ones are
still read.
"""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from laggard import load, load_results, run
from laggard.experiments.cli import main
from laggard.experiments.config.config import digest_of_settings
from laggard.experiments.config.errors import ConfigError
from laggard.experiments.config.moved import MOVED, upgrade

OLD = {
    "async_ps": {"n_push": 2, "n_fetch": 2, "local_rule": "none", "warm_start": 3, "sync_every": 4},
    "sync_ps": {
        "wait_for": 2,
        "cancel": "true",
        "average": "weights",
        "reset": "true",
        "local_steps": 3,
    },
}
KEYS = [(method, key, value) for method, keys in OLD.items() for key, value in keys.items()]


@pytest.mark.parametrize(("method", "key", "value"), KEYS)
def test_an_old_key_gets_one_line_that_says_what_to_write(
    toy: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
    method: str,
    key: str,
    value: object,
) -> None:
    """And what it says to write is a config that can be run."""
    path, old = toy(), f"{{name: {method}, {key}: {value}}}"
    assert main(["run", str(path), f"algorithm={old}"]) == 2
    said = f"{path}: algorithm.{key}: no longer a key of {method}; write {MOVED[method][key]}\n"
    assert capsys.readouterr().err == said
    for now in MOVED[method][key].split(", or "):
        new = now.partition("}")[0].replace("...", str(value)) + "}"
        assert load(path, f"algorithm={new}").algorithm.build() is not None


def test_an_old_key_in_a_sweep_too(toy: Callable[..., Path]) -> None:
    path = toy("sweep: {algorithm.n_push: [1, 2]}")
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert str(caught.value) == (
        f"{path}: sweep.algorithm.n_push: no longer a key of async_ps; write {{name: downpour, n_push: ...}}"
    )


LAWS = [("pareto", "least", 0.5), ("pareto", "tail", 2.5), ("shifted_exponential", "tail", 0.5)]


@pytest.mark.parametrize(("law", "key", "value"), LAWS)
def test_an_old_key_of_a_law_gets_one_line_too(
    toy: Callable[..., Path], capsys: pytest.CaptureFixture[str], law: str, key: str, value: float
) -> None:
    path = toy()
    assert main(["run", str(path), f"cluster.compute={{law: {law}, {key}: {value}}}"]) == 2
    said = f"{path}: cluster.compute.{key}: no longer a key of {law}; write {MOVED[law][key]}\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            {"law": "pareto", "least": 0.5, "tail": 2.5},
            {"law": "pareto", "scale": 0.5, "alpha": 2.5},
        ),
        (
            {"law": "shifted_exponential", "shift": 1.0, "tail": 0.5},
            {"law": "shifted_exponential", "shift": 1.0, "scale": 0.5},
        ),
    ],
    ids=str,
)
def test_an_old_law_in_new_words_draws_the_same_times(
    toy: Callable[..., Path], old: dict[str, Any], new: dict[str, Any]
) -> None:
    assert upgrade({"cluster": {"compute": old, "workers": 2}}) == {
        "cluster": {"compute": new, "workers": 2}
    }
    law = load(toy(), f"cluster.compute={json.dumps(new)}").cluster.compute.build()
    mean = (
        old["shift"] + old["tail"]
        if "shift" in old
        else old["least"] * old["tail"] / (old["tail"] - 1)
    )
    assert law.mean == pytest.approx(mean, rel=1e-15)


DOWNPOUR = {"n_push": 1, "n_fetch": 1, "local_rule": "sgd", "warm_start": 0, "sync_every": None}
ASYNC_PS = {"name": "async_ps", **DOWNPOUR, "accumulate": 1, "shards": 1}
SYNC_PS = {"name": "sync_ps", "wait_for": None, "cancel": False, "average": "gradients", "local_steps": 1,
           "reset": False, "shards": 1}  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (ASYNC_PS, {"name": "async_ps", "accumulate": 1, "shards": 1}),
        (
            {**ASYNC_PS, "accumulate": 4, "local_rule": "none"},
            {"name": "async_ps", "accumulate": 4, "shards": 1},
        ),
        (
            {**ASYNC_PS, "n_push": 2, "shards": 3},
            {"name": "downpour", **DOWNPOUR, "n_push": 2, "shards": 3},
        ),
        ({"name": "async_ps", "sync_every": 4}, {"name": "downpour", **DOWNPOUR, "sync_every": 4}),
        (SYNC_PS, {"name": "sync_ps", "accumulate": 1, "shards": 1}),
        ({**SYNC_PS, "local_steps": 4}, {"name": "sync_ps", "accumulate": 4, "shards": 1}),
        (
            {**SYNC_PS, "cancel": True},
            {"name": "k_sync", "wait_for": None, "cancel": True, "shards": 1},
        ),
        (
            {**SYNC_PS, "wait_for": 2},
            {"name": "k_sync", "wait_for": 2, "cancel": False, "shards": 1},
        ),
        (
            {**SYNC_PS, "average": "updates", "local_steps": 4, "wait_for": 2},
            {
                "name": "local_sgd",
                "average": "updates",
                "local_steps": 4,
                "wait_for": 2,
                "reset": False,
                "shards": 1,
            },
        ),
        ({"name": "ssp", "bound": 2}, {"name": "ssp", "bound": 2}),
    ],
    ids=str,
)
def test_an_old_config_in_new_words(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert upgrade({"algorithm": old, "seed": 1}) == {"algorithm": new, "seed": 1}


@pytest.mark.parametrize(
    "old",
    [
        {**ASYNC_PS, "n_push": 2, "accumulate": 2},
        {**SYNC_PS, "wait_for": 2, "local_steps": 2},
        {**SYNC_PS, "average": "weights", "cancel": True},
    ],
    ids=str,
)
def test_a_combination_that_no_method_has_stays_as_it_is(old: dict[str, Any]) -> None:
    assert upgrade({"algorithm": old}) == {"algorithm": old}


@pytest.fixture
def written_before(toy: Callable[..., Path], tmp_path: Path) -> Callable[[dict[str, Any]], Path]:
    """A result whose config and manifest say an `algorithm` as version 0.1 did."""

    def write(algorithm: dict[str, Any]) -> Path:
        path = run(load(toy(), "algorithm={name: k_sync, wait_for: 2}"), tmp_path).path
        yaml, manifest = YAML(typ="safe"), json.loads((path / "manifest.json").read_text())
        document = {**yaml.load(path / "config.yaml"), "algorithm": algorithm}
        yaml.dump(document, path / "config.yaml")
        manifest["config"], manifest["settings"]["algorithm"] = (
            digest_of_settings(document),
            algorithm,
        )
        for key in ("resolved", "self"):
            del manifest[key]
        manifest["schema"] = 2
        manifest["files"]["config.yaml"] = hashlib.sha256(
            (path / "config.yaml").read_bytes()
        ).hexdigest()
        (path / "manifest.json").write_text(json.dumps(manifest))
        return path

    return write


def test_a_result_with_old_keys_is_read(written_before: Callable[[dict[str, Any]], Path]) -> None:
    path = written_before({**SYNC_PS, "wait_for": 2})
    (result,) = load_results(path)
    assert (result.config.algorithm.name, result.config.algorithm.wait_for) == ("k_sync", 2)
    assert len(result.metrics) > 0


def test_a_result_that_no_method_makes_now_is_read_too(
    written_before: Callable[[dict[str, Any]], Path],
) -> None:
    old = {**SYNC_PS, "wait_for": 2, "local_steps": 2}
    (result,) = load_results(written_before(old))
    assert result.config.as_dict()["algorithm"] == old
    assert len(result.metrics) > 0
