"""Residual networks are those of their paper, and the classifiers of torchvision torchvision's."""

import pytest
import torch
from torch import nn

from laggard.models import ResNet, Supervised, Vision
from laggard.models.vision import import_torchvision
from laggard.simulator.timing.streams import BATCHES, stream
from tests.models.images import images
from tests.models.plain import gradient_by_torch

BATCH = 16


@pytest.mark.parametrize(
    ("depth", "params"), [(20, 0.27), (32, 0.46), (44, 0.66), (56, 0.85), (110, 1.7)]
)
def test_resnet_has_parameters_of_paper(depth, params):
    with torch.device("meta"):
        module = ResNet(depth).build((3, 32, 32), 10)
    weights = [layer for layer in module.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    assert len(weights) == depth
    found = ResNet(depth).describe((3, 32, 32), 10).params
    assert found == sum(parameter.numel() for parameter in module.parameters())
    assert found / 1e6 == pytest.approx(params, abs=0.005 if params < 1 else 0.05)


def test_stages_halve_image_and_shortcuts_skip_pixels():
    module = ResNet(14).build((3, 32, 32), 10)
    x = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    shapes = []
    for name, part in module.named_children():
        before, x = x, part(x)
        if name.startswith("block"):
            shapes.append(tuple(x.shape[1:]))
            for parameter in part.parameters():
                nn.init.zeros_(parameter)  # what is left is the shortcut
            step = before.shape[-1] // x.shape[-1]
            maps = before.shape[1]
            assert torch.equal(part(before)[:, :maps], before[..., ::step, ::step])
            assert (part(before)[:, maps:] == 0).all()
    assert shapes == [(16, 32, 32)] * 2 + [(32, 16, 16)] * 2 + [(64, 8, 8)] * 2


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: ResNet(norm="layer"), "norm = 'layer'"),
        (lambda: ResNet().build((20,), 3), "expected images"),
        (lambda: Vision().build((2, 28, 28), 10), "expected images"),
    ],
)
def test_settings_that_do_not_fit_are_refused(make, text):
    with pytest.raises(ValueError, match=text):
        make()


NAMES = ["resnet18", "mobilenet_v3_small", "convnext_tiny", "googlenet"]


@pytest.mark.parametrize("name", NAMES)
def test_classifier_matches_torchvision(name):
    """Parameter names, shapes and counts are torchvision's.

    Random layers are excluded: `describe` refuses them.
    """
    options = {"aux_logits": False, "init_weights": False} if name == "googlenet" else {}
    with torch.device("meta"):
        theirs = import_torchvision().models.get_model(name, num_classes=7, **options)
        mine = Vision(name).build((3, 32, 32), 7)
    shapes = [(key, parameter.shape) for key, parameter in theirs.named_parameters()]
    assert [(key, parameter.shape) for key, parameter in mine.named_parameters()] == shapes
    found = Vision(name).describe((3, 32, 32), 7)
    assert found.params == sum(parameter.numel() for parameter in theirs.parameters())
    assert found.least == (1 if name == "convnext_tiny" else 2)


def test_single_channel_is_taken_three_times():
    gray, colour = (Vision("squeezenet1_1").build((channels, 32, 32), 5) for channels in (1, 3))
    colour.load_state_dict(gray.network.state_dict())
    x = torch.randn(2, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    assert torch.equal(gray(x), colour(torch.cat([x, x, x], dim=1)))


@pytest.mark.parametrize("name", ["shufflenet_v2_x0_5", "mobilenet_v3_small"])
def test_gradient_without_dropout_matches_torch(name):
    data = images(64, shape=(3, 32, 32)).to("cpu", torch.float64)
    task = Supervised(Vision(name).build, data, BATCH, threads=1, dtype=torch.float64, device="cpu")
    module = import_torchvision().models.get_model(name, num_classes=data.classes).double()
    for layer in module.modules():
        layer.train(not isinstance(layer, nn.Dropout))
    batch = next(task.batches(0, [stream(0, BATCHES, 0)]))
    weights = task.start([5])
    expected, loss = gradient_by_torch(module, weights[0], data.train_x[batch], data.train_y[batch])
    gradients, losses = task.gradients(weights[None], [batch])
    torch.testing.assert_close(gradients[0, 0], expected, rtol=1e-11, atol=1e-11)
    assert losses[0, 0].item() == pytest.approx(loss.item(), rel=1e-12)
