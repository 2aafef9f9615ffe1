"""Every backend takes the gradients of plain autograd, of our networks and of odd ones, whatever
the company.
"""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from laggard.models import MLP, LeNet5, Logistic
from laggard.models.backends.batched import Batched, describe, exact_arithmetic
from laggard.models.backends.choice import BACKEND_NAMES, choose
from laggard.models.backends.graphs import RECORD, Graphs
from laggard.models.backends.unfolded import Unfolded
from laggard.models.flat import flatten
from tests.cases import quick
from tests.models.plain import gradients_by_torch

SAMPLES, BATCH, MODELS, CLASSES = 30, 4, 5, 10
IMAGE = (1, 28, 28)
SMALL = (3, 9, 11)


class Residual(nn.Module):
    """What no plain sequence does: it adds its input to its output."""

    def __init__(self):
        super().__init__()
        self.full, self.last = nn.Linear(7, 7), nn.Linear(7, CLASSES)

    def forward(self, x):
        return self.last(x + self.full(x).tanh())


class Doubled(nn.Linear):
    """A subclass of a known layer that is another function."""

    def forward(self, x):
        return 2 * super().forward(x)


def twice():
    shared = nn.Linear(7, 7)
    return nn.Sequential(shared, nn.Tanh(), shared, nn.Linear(7, CLASSES))


def strided():
    return nn.Sequential(
        nn.AvgPool2d((1, 2), stride=1),
        nn.Sequential(nn.Conv2d(3, 4, (3, 2), stride=(2, 1), padding=(1, 2), bias=False), nn.ELU()),
        nn.MaxPool2d(3, stride=2, padding=1, ceil_mode=True),
        nn.Conv2d(4, 2, 1),
        nn.Flatten(),
        nn.Linear(2 * 3 * 7, CLASSES, bias=False),
    )


def with_idle():
    module = nn.Sequential(nn.Linear(7, CLASSES))
    module.idle = nn.Parameter(torch.ones(3))
    return module


def hooked():
    module = nn.Sequential(nn.Linear(7, CLASSES))
    module[0].register_forward_hook(lambda layer, _, y: 2 * y)
    return module


PLAIN = {
    "lenet5": (lambda: LeNet5().build(IMAGE, CLASSES), IMAGE),
    "mlp": (lambda: MLP(hidden=(9, 5)).build(SMALL, CLASSES), SMALL),
    "mlp of tanh": (lambda: MLP(hidden=(9, 5), activation="tanh").build(SMALL, CLASSES), SMALL),
    "logistic": (lambda: Logistic().build(SMALL, CLASSES), SMALL),
    "strided": (strided, SMALL),
    "a layer used twice": (twice, (7,)),
    "full layers on rows": (lambda: images_into(108, nn.Linear(11, 4), nn.ReLU()), SMALL),
    "one layer": (lambda: nn.Linear(7, CLASSES), (7,)),
    "unused parameter": (with_idle, (7,)),
    "in place": (lambda: images_into(6, nn.Linear(7, 6), nn.ReLU(inplace=True)), (7,)),
}


def images_into(features, *layers):
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(features, CLASSES))


ODD = {
    "residual": (Residual, (7,)),
    "subclass": (lambda: nn.Sequential(Doubled(7, CLASSES)), (7,)),
    "hook": (hooked, (7,)),
    "norm": (lambda: nn.Sequential(nn.LayerNorm(7), nn.Linear(7, CLASSES)), (7,)),
    "groups": (lambda: images_into(378, nn.Conv2d(3, 6, 3, groups=3)), SMALL),
    "dilation": (lambda: images_into(35, nn.Conv2d(3, 1, 3, dilation=2)), SMALL),
    "circular": (
        lambda: images_into(99, nn.Conv2d(3, 1, 3, padding=1, padding_mode="circular")),
        SMALL,
    ),
    "same": (lambda: images_into(99, nn.Conv2d(3, 1, 3, padding="same")), SMALL),
}
ALL = PLAIN | ODD
each = pytest.mark.parametrize("network", ALL)


def problem(network, dtype, models=MODELS):
    """A module, rows of weights, inputs, labels, and a mini-batch of indices per model."""
    build, shape = ALL[network]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = build().to(dtype)
        start = flatten(module.parameters()).detach()
        weights = start + 0.05 * torch.randn(models, len(start), dtype=dtype)
        x, y = torch.randn(SAMPLES, *shape, dtype=dtype), torch.randint(CLASSES, (SAMPLES,))
        return module, weights, x, y, torch.randint(SAMPLES, (models, BATCH), dtype=torch.int32)


def check(backend, found, tolerance):
    module, weights, x, y, index = found
    before = weights.clone()
    for mine, its in zip(
        backend.gradients(weights, x, y, index), gradients_by_torch(*found), strict=True
    ):
        assert not mine.requires_grad
        torch.testing.assert_close(mine, its, rtol=tolerance, atol=tolerance)
    outputs = backend.outputs(weights, x)
    nn.utils.vector_to_parameters(weights[3], module.parameters())
    torch.testing.assert_close(outputs[3], module(x).detach(), rtol=tolerance, atol=tolerance)
    assert outputs.shape == (len(weights), SAMPLES, CLASSES)
    assert torch.equal(weights, before)


SINGLE, DOUBLE = (torch.float32, 1e-6), (torch.float64, 1e-12)
BACKENDS = quick(
    [(name, *precision) for name in BACKEND_NAMES for precision in (SINGLE, DOUBLE)],
    only=[("threads", *SINGLE), *((name, *DOUBLE) for name in BACKEND_NAMES)],
)
"""Threads have code of their own for single precision, torch's batched calls have not."""


@each
@pytest.mark.parametrize(("name", "dtype", "tolerance"), BACKENDS)
def test_gradients_match_autograd(name, network, dtype, tolerance):
    found = problem(network, dtype)
    if name.startswith("unfold") and network in ODD:
        with pytest.raises(ValueError, match="use 'vmap'"):
            choose(name, found[0], cross_entropy, torch.device("cpu"), threads=1)
        return
    check(choose(name, found[0], cross_entropy, torch.device("cpu"), threads=1), found, tolerance)


def test_custom_loss_is_mean_of_mini_batch():
    def squared(outputs, targets):
        return (outputs - (targets[:, None] == torch.arange(CLASSES)).to(outputs)).square().mean()

    module, *rest = problem("mlp", torch.float64)
    one, other = (kind(module, squared).gradients(*rest) for kind in (Batched, Unfolded))
    torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_pooling_breaks_ties_as_torch():
    """On a constant picture every window is a tie; a gradient that is shared out would differ."""
    module = images_into(8, nn.Conv2d(1, 2, 3), nn.MaxPool2d(2)).double()
    weights = flatten(module.parameters()).detach().repeat(2, 1)
    x = torch.zeros(3, 1, 6, 6, dtype=torch.float64)
    x[:, :, ::2, ::3] = 1.0
    data = x, torch.tensor([0, 1, 2]), torch.tensor([[0, 1], [1, 2]])
    gradients, _ = Unfolded(module, cross_entropy).gradients(weights, *data)
    expected, _ = gradients_by_torch(module, weights, *data)
    torch.testing.assert_close(gradients, expected, rtol=0, atol=1e-12)


def test_convolution_first_expects_images():
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(2, CLASSES))
    weights = flatten(module.parameters()).detach()[None]
    with pytest.raises(ValueError, match=r"expected images .* got \(9,\)"):
        Unfolded(module, cross_entropy).outputs(weights, torch.zeros(4, 9))


def test_unknown_backend_is_refused():
    with pytest.raises(ValueError, match=r"backend = 'tpu': expected auto, threads, .*vmap"):
        choose("tpu", nn.Linear(2, 2), cross_entropy, torch.device("cpu"))


def test_recording_serves_other_sizes_and_data(monkeypatch):
    monkeypatch.setitem(RECORD, "cpu", in_place)
    module, weights, x, y, index = problem("mlp", torch.float64, models=40)
    plain = Unfolded(module, cross_entropy)
    graphs = Graphs(plain)
    for count, data in [(40, x), (37, x), (3, x), (37, x + 1), (38, x), (40, x)]:
        arguments = weights[:count], data, y, index[:count]
        found, expected = graphs.gradients(*arguments), plain.gradients(*arguments)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def in_place(run, pool):
    """A recording as a CUDA graph is one: every replay writes where the first one wrote."""
    kept = run()

    def replay():
        for old, new in zip(kept, run(), strict=True):
            old.copy_(new)
        return kept

    return replay


def test_recording_leaves_earlier_results_alone(monkeypatch):
    monkeypatch.setitem(RECORD, "cpu", in_place)
    module, weights, x, y, index = problem("mlp", torch.float64)
    graphs = Graphs(Unfolded(module, cross_entropy))
    gradients, losses = graphs.gradients(weights, x, y, index)
    copies = gradients.clone(), losses.clone()
    graphs.gradients(2 * weights, x, y, index)
    assert torch.equal(gradients, copies[0])
    assert torch.equal(losses, copies[1])


def test_recordings_are_shared_and_bounded():
    made = []

    class Counting(Unfolded):
        def gradients(self, weights, *rest):
            made.append(len(weights))
            return super().gradients(weights, *rest)

    module, weights, x, y, index = problem("one layer", torch.float64, models=130)
    graphs = Graphs(Counting(module, cross_entropy))
    for count in (1, 16, 17, 18, 65, 72, 73, 129):
        graphs.gradients(weights[:count], x, y, index[:count])
    assert made == [1, 16, 32, 32, 128, 128, 128, 256]
    for data in [x.clone() for _ in range(20)]:
        graphs.gradients(weights[:1], data, y, index[:1])
    assert len(graphs._recordings) == 16


@pytest.fixture
def torch_settings():
    """Torch's precisions, by the names of the operations; what a test has set is set back."""
    parts = torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.cudnn.rnn
    yield lambda: [part.fp32_precision for part in parts]
    torch.backends.cudnn.allow_tf32 = True
    torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_arithmetic_is_exact_on_gpu_and_restored(precision, torch_settings):
    torch.set_float32_matmul_precision(precision)
    before = torch_settings()
    with exact_arithmetic(on_gpu=True):
        assert set(torch_settings()) <= {"ieee", "none"}
        assert torch.get_float32_matmul_precision() == "highest"
        assert torch.backends.cudnn.deterministic
    assert torch_settings() == before
    assert torch.get_float32_matmul_precision() == precision
    assert not torch.backends.cudnn.deterministic


def test_arithmetic_is_exact_despite_newer_settings(
    torch_settings,
):
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    torch.backends.cudnn.conv.fp32_precision = "ieee"
    before = torch_settings()
    with exact_arithmetic(on_gpu=True):
        assert set(torch_settings()) == {"ieee"}
    assert torch_settings() == before


def test_gpu_is_described_by_name(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    assert describe(torch.device("cpu")) == "cpu"
    assert describe(torch.device("cuda:0")) == "cuda:0 (a GPU)"
