"""Every backend takes the gradients of plain autograd, of our networks and of odd ones, whatever
the company.
"""

from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode

from laggard.models import MLP, LeNet5, Logistic
from laggard.models.backends.batched import Batched, describe, exact_arithmetic
from laggard.models.backends.choice import BACKEND_NAMES, BATCHED, choose
from laggard.models.backends.graphs import RECORD, Graphs, rounded_up
from laggard.models.backends.unfolded import Unfolded, unfoldable
from laggard.models.flat import flatten

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
    "full layers on rows of an image": (
        lambda: nn.Sequential(nn.Linear(11, 4), nn.ReLU(), nn.Flatten(), nn.Linear(108, CLASSES)), SMALL,
    ),
    "one layer": (lambda: nn.Linear(7, CLASSES), (7,)),
    "a parameter that is not used": (with_idle, (7,)),
    "in place": (lambda: nn.Sequential(nn.Linear(7, 6), nn.ReLU(inplace=True), nn.Linear(6, CLASSES)), (7,)),
}  # fmt: skip
ODD = {
    "residual": (Residual, (7,)),
    "subclass": (lambda: nn.Sequential(Doubled(7, CLASSES)), (7,)),
    "hook": (hooked, (7,)),
    "norm": (lambda: nn.Sequential(nn.LayerNorm(7), nn.Linear(7, CLASSES)), (7,)),
    "groups": (
        lambda: nn.Sequential(nn.Conv2d(3, 6, 3, groups=3), nn.Flatten(), nn.Linear(378, CLASSES)),
        SMALL,
    ),
    "dilation": (
        lambda: nn.Sequential(nn.Conv2d(3, 1, 3, dilation=2), nn.Flatten(), nn.Linear(35, CLASSES)),
        SMALL,
    ),
    "circular": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 1, 3, padding=1, padding_mode="circular"), nn.Flatten(), nn.Linear(99, 10)
        ),
        SMALL,
    ),
    "same": (
        lambda: nn.Sequential(nn.Conv2d(3, 1, 3, padding="same"), nn.Flatten(), nn.Linear(99, 10)),
        SMALL,
    ),
}
ALL = PLAIN | ODD
DTYPES = pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-12)]
)
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


def plainly(module, weights, x, y, index):
    """Gradients and losses by autograd, a model after the other."""
    gradients, losses = [], []
    for row, batch in zip(weights, index, strict=True):
        nn.utils.vector_to_parameters(row, module.parameters())
        loss = cross_entropy(module(x[batch]), y[batch])
        found = torch.autograd.grad(loss, tuple(module.parameters()), materialize_grads=True)
        gradients.append(flatten(found))
        losses.append(loss.detach())
    return torch.stack(gradients), torch.stack(losses)


def check(backend, found, tolerance):
    module, weights, x, y, index = found
    before = weights.clone()
    for mine, its in zip(backend.gradients(weights, x, y, index), plainly(*found), strict=True):
        assert not mine.requires_grad
        torch.testing.assert_close(mine, its, rtol=tolerance, atol=tolerance)
    outputs = backend.outputs(weights, x)
    nn.utils.vector_to_parameters(weights[3], module.parameters())
    torch.testing.assert_close(outputs[3], module(x).detach(), rtol=tolerance, atol=tolerance)
    assert outputs.shape == (len(weights), SAMPLES, CLASSES)
    assert torch.equal(weights, before)


@DTYPES
@each
@pytest.mark.parametrize("name", BACKEND_NAMES)
def test_a_backend_s_gradients_are_plain_autograd_s(name, network, dtype, tolerance):
    found = problem(network, dtype)
    if name.startswith("unfold") and network in ODD:
        with pytest.raises(ValueError, match="use 'vmap'"):
            choose(name, found[0], cross_entropy, torch.device("cpu"), threads=1)
        return
    check(choose(name, found[0], cross_entropy, torch.device("cpu"), threads=1), found, tolerance)


@each
def test_a_network_is_unfolded_where_it_is_a_plain_sequence(network):
    assert unfoldable(ALL[network][0]()) == (network in PLAIN)


def test_a_loss_of_one_s_own_is_the_mean_of_one_mini_batch():
    def squared(outputs, targets):
        return (outputs - (targets[:, None] == torch.arange(CLASSES)).to(outputs)).square().mean()

    module, *rest = problem("mlp", torch.float64)
    one, other = (kind(module, squared).gradients(*rest) for kind in (Batched, Unfolded))
    torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_ties_in_a_pool_are_broken_as_torch_breaks_them():
    """On a constant picture every window is a tie, and a gradient that were shared out would be
    another.
    """
    module = nn.Sequential(
        OrderedDict(
            conv=nn.Conv2d(1, 2, 3), pool=nn.MaxPool2d(2), flat=nn.Flatten(), full=nn.Linear(8, 10)
        )
    )
    module = module.double()
    weights = flatten(module.parameters()).detach().repeat(2, 1)
    x, y, index = (
        torch.zeros(3, 1, 6, 6, dtype=torch.float64),
        torch.tensor([0, 1, 2]),
        torch.tensor([[0, 1], [1, 2]]),
    )
    x[:, :, ::2, ::3] = 1.0
    gradients, _ = Unfolded(module, cross_entropy).gradients(weights, x, y, index)
    torch.testing.assert_close(
        gradients, plainly(module, weights, x, y, index)[0], rtol=0, atol=1e-12
    )


def test_images_are_expected_where_a_convolution_comes_first():
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(2, CLASSES))
    weights = flatten(module.parameters()).detach()[None]
    with pytest.raises(ValueError, match=r"expected images .* got \(9,\)"):
        Unfolded(module, cross_entropy).outputs(weights, torch.zeros(4, 9))


def test_a_backend_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(ValueError, match=r"backend = 'tpu': expected auto, threads, .*vmap"):
        choose("tpu", nn.Linear(2, 2), cross_entropy, torch.device("cpu"))


def test_a_recording_serves_calls_of_other_sizes_and_other_data(monkeypatch):
    monkeypatch.setitem(RECORD, "cpu", in_place)
    module, weights, x, y, index = problem("mlp", torch.float64, models=40)
    plain = Unfolded(module, cross_entropy)
    graphs = Graphs(plain)
    for count, data in [(40, x), (37, x), (3, x), (37, x + 1), (38, x), (40, x)]:
        mine = graphs.gradients(weights[:count], data, y, index[:count])
        torch.testing.assert_close(
            mine, plain.gradients(weights[:count], data, y, index[:count]), rtol=0, atol=1e-12
        )


def in_place(run, pool):
    """A recording as a CUDA graph is one: every replay writes where the first one wrote."""
    kept = run()

    def replay():
        for old, new in zip(kept, run(), strict=True):
            old.copy_(new)
        return kept

    return replay


def test_what_a_recording_answered_with_is_left_alone_by_the_next_call(monkeypatch):
    monkeypatch.setitem(RECORD, "cpu", in_place)
    module, weights, x, y, index = problem("mlp", torch.float64)
    graphs = Graphs(Unfolded(module, cross_entropy))
    gradients, losses = graphs.gradients(weights, x, y, index)
    copies = gradients.clone(), losses.clone()
    graphs.gradients(2 * weights, x, y, index)
    assert torch.equal(gradients, copies[0])
    assert torch.equal(losses, copies[1])


def test_a_recording_is_made_once_for_sizes_that_round_alike_and_the_oldest_goes():
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


def test_sizes_of_recordings_are_few_and_little_larger_than_the_calls():
    for size in range(1, 5000):
        assert size <= rounded_up(size) < (
            2 * size if size <= 256 else 9 / 8 * size
        ) or size == rounded_up(size)
    assert {rounded_up(size) for size in range(1, 257)} == {2**power for power in range(9)}
    assert len({rounded_up(size) for size in range(257, 513)}) == 8
    assert len({rounded_up(size) for size in range(513, 1025)}) == 8


def test_calls_of_random_sizes_are_not_recorded_again_and_again(monkeypatch):
    """As with exponential times: with 64 workers, any number of gradients is in flight."""
    recorded = []
    monkeypatch.setitem(RECORD, "cpu", lambda run, pool: recorded.append(run) or run)
    module, weights, x, y, index = problem("one layer", torch.float64, models=64)
    graphs = Graphs(Unfolded(module, cross_entropy))
    for count in np.random.default_rng(3).integers(1, 65, size=300).tolist():
        graphs.gradients(weights[:count], x, y, index[:count])
    assert len(recorded) == 7


class Widened(TorchDispatchMode):
    """Counts the conversions of integers to 64 bits."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten._to_copy.default and args[0].dtype == torch.int32:
            self.count += 1
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", [Batched, Unfolded])
def test_indices_are_widened_once_a_call_and_on_their_way_into_a_recording(kind, monkeypatch):
    module, weights, x, y, index = problem("mlp", torch.float32)
    backend = kind(module, cross_entropy)
    with Widened() as widened:
        narrow = backend.gradients(weights, x, y, index.int())
    assert widened.count == 1
    for mine, plain in zip(narrow, backend.gradients(weights, x, y, index), strict=True):
        assert torch.equal(mine, plain)
    graphs = Graphs(backend)
    graphs.gradients(weights, x, y, index.int())
    with Widened() as widened:
        graphs.gradients(weights, x, y, index.int())
    assert widened.count == 0


@pytest.fixture
def torch_settings():
    """Torch's precisions, by the names of the operations; what a test has set is set back."""
    parts = torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.cudnn.rnn
    yield lambda: [part.fp32_precision for part in parts]
    torch.backends.cudnn.allow_tf32 = True
    torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_arithmetic_is_exact_on_a_gpu_and_afterwards_as_it_was(precision, torch_settings):
    torch.set_float32_matmul_precision(precision)
    before = torch_settings()
    with exact_arithmetic(on_gpu=True):
        assert set(torch_settings()) <= {"ieee", "none"}
        assert torch.get_float32_matmul_precision() == "highest"
        assert torch.backends.cudnn.deterministic
    assert torch_settings() == before
    assert torch.get_float32_matmul_precision() == precision
    assert not torch.backends.cudnn.deterministic


def test_arithmetic_is_exact_where_a_program_has_set_precisions_by_their_newer_names(
    torch_settings,
):
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    torch.backends.cudnn.conv.fp32_precision = "ieee"
    before = torch_settings()
    with exact_arithmetic(on_gpu=True):
        assert set(torch_settings()) == {"ieee"}
    assert torch_settings() == before


def test_a_precision_that_is_exact_already_is_not_set(monkeypatch):
    made = []
    monkeypatch.setattr(torch, "set_float32_matmul_precision", made.append)
    with exact_arithmetic(on_gpu=True):
        pass
    assert not made


def test_what_a_config_may_name_is_what_can_be_made():
    assert set(BACKEND_NAMES) == {"auto", "threads", *BATCHED}


def test_a_device_is_described_by_its_name_if_it_is_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    assert describe(torch.device("cpu")) == "cpu"
    assert describe(torch.device("cuda:0")) == "cuda:0 (a GPU)"
