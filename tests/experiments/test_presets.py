"""Clusters by name."""

import pytest

from laggard import load
from laggard.experiments.config.cluster import PRESETS
from laggard.experiments.config.config import digest_of
from laggard.models.vision import vision_layers


def test_keys_beside_a_preset_override_it(toy):
    said = {
        "workers": 16,
        "compute": {"law": "gamma", "mean": 1.0, "cv": 0.1, "speed": 8.13e12},
        "network": {
            "bandwidth": 5e10,
            "latency": 1e-3,
            "hosts": {"size": 8, "bandwidth": 1.5e11, "latency": 5e-6},
        },
    }
    task = "task={model: network_timing}"
    own = "cluster={preset: dgx1-v100, workers: 16, compute: {law: gamma, cv: 0.1}, network: {latency: 1e-3}}"
    config = load(toy(), task, own)
    assert digest_of(config) == digest_of(load(toy(), task, f"cluster={said}".replace("'", "")))
    assert "preset" not in config.as_dict()["cluster"]


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_a_cluster(toy, name):
    config = load(toy(), "task={model: network_timing}", f"cluster={{preset: {name}, workers: 16}}")
    assert config.build_cluster().workers == 16


@pytest.mark.parametrize(
    ("name", "images"),
    [("aws-p2.8xlarge", 52), ("dgx1-p100", 219), ("dgx1-v100", 330), ("aws-p3dn", 330)],
)
def test_preset_of_a_gpu_has_the_measured_speed(toy, name, images):
    """ResNet-50 needs 6 operations for each of its multiplications."""
    config = load(
        toy(), "task={model: network_timing, batch: 32}", f"cluster={{preset: {name}, workers: 8}}"
    )
    assert 32 / config.build_cluster().compute.mean == pytest.approx(images, rel=0.01)
    assert sum(layer.work for layer in vision_layers("resnet50", 224)) == pytest.approx(
        4.11e9, rel=0.01
    )


def test_clusters_with_presets_can_be_swept(toy):
    variants = (
        "{a: {cluster: {preset: 10gbe, workers: 4}}, b: {cluster: {preset: 25gbe, workers: 4}}}"
    )
    config = load(toy(), "task={model: network_timing}", f"sweep={{where: {variants}}}")
    assert [option["cluster"]["preset"] for option in config.sweep["where"].values()] == [
        "10gbe",
        "25gbe",
    ]
