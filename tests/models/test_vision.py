"""Networks of torchvision that are timed, against what torchvision says of them."""

import pytest
import torch

from laggard import load
from laggard.experiments.config.errors import ConfigError
from laggard.experiments.config.grid import runs
from laggard.models.vision import import_torchvision, vision_layers
from laggard.simulator import simulate


@pytest.mark.parametrize("network", ["resnet50", "vgg16", "resnext50_32x4d", "mobilenet_v2"])
def test_parameters_and_multiplications_are_those_that_torchvision_says(network):
    """Its multiplications are those of layers with weights; ours have the outputs of the others
    besides.
    """
    weights = import_torchvision().models.get_model_weights(network).DEFAULT.meta
    layers = vision_layers(network)
    assert sum(layer.params for layer in layers) == weights["num_params"]
    assert sum(layer.work for layer in layers) == pytest.approx(1e9 * weights["_ops"], rel=0.06)


@pytest.mark.parametrize("network", ["vit_b_16", "swin_t", "googlenet"])
def test_parameters_of_no_layer_are_counted_once(network):
    models = import_torchvision().models
    options = {"aux_logits": False, "init_weights": False} if network == "googlenet" else {}
    with torch.device("meta"):
        whole = sum(each.numel() for each in models.get_model(network, **options).parameters())
    assert sum(layer.params for layer in vision_layers(network, 224)) == whole


def test_activations_are_those_of_a_mini_batch_and_work_is_that_of_an_image():
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


def test_an_update_takes_its_operations_and_its_bytes(config):
    """6 operations for each multiplication and sample; a message of 4 bytes a parameter."""
    layers = vision_layers("vgg11", 224)
    computed = 8 * 6 * sum(layer.work for layer in layers) / 1e12
    sent = 4 * sum(layer.params for layer in layers) / 1e9
    (run,) = runs(load(config))
    assert simulate(**run.arguments()).progress.time == pytest.approx(
        3 * (computed + sent), rel=1e-9
    )


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "task.network=vgg12",
            "task.network: expected a classifier of torchvision, such as alexnet",
        ),
        ("task.image=8", "task.image: expected a size that vgg11 takes, got 8"),
        ("task.image=0", "task.image: expected a size that vgg11 takes, got 0"),
        ("task.batch=0", "task.batch: expected a number >= 1, got 0"),
        ("cluster.compute.per=sample", "cluster.compute.per: expected batch, since speed counts"),
        ("cluster.compute.speed=0", "cluster.compute.speed: expected a number > 0"),
        (
            "task={model: timing}",
            "cluster.compute.speed: expected null, ",
        ),
    ],
)
def test_what_is_wrong_is_one_line(config, override, message):
    with pytest.raises(ConfigError) as caught:
        load(config, override)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
