"""Networks of torchvision that are timed, against what torchvision says of them."""

import pytest
import torch

from laggard import load
from laggard.experiments.config.grid import runs
from laggard.models.vision import import_torchvision, vision_layers
from laggard.simulator import simulate


@pytest.mark.parametrize("network", ["resnet50", "vgg16", "resnext50_32x4d", "mobilenet_v2"])
def test_parameters_and_work_match_torchvision(network):
    """Its multiplications are those of layers with weights; ours have the outputs of the others
    besides.
    """
    weights = import_torchvision().models.get_model_weights(network).DEFAULT.meta
    layers = vision_layers(network)
    assert sum(layer.params for layer in layers) == weights["num_params"]
    assert sum(layer.work for layer in layers) == pytest.approx(1e9 * weights["_ops"], rel=0.06)


@pytest.mark.parametrize("network", ["vit_b_16", "swin_t", "googlenet"])
def test_parameters_are_counted_once(network):
    models = import_torchvision().models
    options = {"aux_logits": False, "init_weights": False} if network == "googlenet" else {}
    with torch.device("meta"):
        whole = sum(each.numel() for each in models.get_model(network, **options).parameters())
    assert sum(layer.params for layer in vision_layers(network, 224)) == whole


def test_activations_are_counted_for_mini_batch():
    """VGG's first convolution has 64 channels of the image's size, its last layer a number a
    class.
    """
    layers, one = vision_layers("vgg11", 224, 8), vision_layers("vgg11", 224)
    assert (layers[0].activations, layers[-1].activations) == (8 * 64 * 224**2, 8 * 1000)
    assert [(layer.params, layer.work) for layer in layers] == [
        (layer.params, layer.work) for layer in one
    ]


CONFIG = """
cluster:
  workers: 2
  compute: {law: constant, mean: 1.0, speed: 1.0e+12}
  network: {topology: complete, bandwidth: 1e9}
algorithm: {name: all_reduce, collective: mesh}
task: {model: network_timing, network: vgg11, batch: 8}
stop: {updates: 3}
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "vgg.yaml"
    path.write_text(CONFIG)
    return path


def test_update_time_follows_operations_and_bytes(config):
    """6 operations for each multiplication and sample; a message of 4 bytes a parameter."""
    layers = vision_layers("vgg11", 224)
    computed = 8 * 6 * sum(layer.work for layer in layers) / 1e12
    sent = 4 * sum(layer.params for layer in layers) / 1e9
    (run,) = runs(load(config))
    assert simulate(**run.arguments()).progress.time == pytest.approx(
        3 * (computed + sent), rel=1e-9
    )
