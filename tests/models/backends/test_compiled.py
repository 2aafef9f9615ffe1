"""The compiled gradient is autograd's, of every network that is recognised; others go to autograd."""

import copy
import os
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss, nll_loss

from laggard import compiled_cache
from laggard.models import MLP, CrossEntropyLoss, LeNet5, Logistic
from laggard.models.backends.autograd import Autograd
from laggard.models.backends.compiled import compiler, kernels
from laggard.models.backends.compiled.layers import NotCompiledError, is_known
from laggard.models.backends.compiled.plan import build_plan
from laggard.models.backends.threads import Threads
from laggard.models.flat import flatten
from laggard.models.modules import BasicBlock, convolution_of_3
from laggard.models.networks import ResNet
from laggard.models.recalibration import remove_statistics
from tests.models.plain import gradients_by_torch

SAMPLES, CLASSES, MODELS = 40, 4, 3
chain = nn.Sequential
ROWS, IMAGE = (6,), (2, 11, 10)


def images() -> nn.Module:
    """A convolutional chain with odd sizes, non-square kernels, padding, and pooling with and
    without a convolution.
    """
    first = nn.Conv2d(2, 3, (3, 2), padding=(1, 0)), nn.ReLU(), nn.MaxPool2d(2), nn.Tanh()
    second = nn.Conv2d(3, 4, 2, bias=False), nn.Conv2d(4, 2, 1, padding=1), nn.ELU()
    last = nn.MaxPool2d(2), nn.Flatten(), nn.Linear(2 * 3 * 2, CLASSES)
    return chain(*first, *second, *last)


def strides() -> nn.Module:
    """Convolutions with strides and holes, overlapping pools, and means over parts of an image."""
    first = nn.Conv2d(2, 5, 3, stride=2, padding=(1, 2)), nn.ReLU(), nn.MaxPool2d(3, stride=1)
    second = nn.Conv2d(5, 3, 2, stride=(1, 2), dilation=(2, 1)), nn.AvgPool2d((2, 1)), nn.Tanh()
    return chain(*first, *second, nn.Flatten(), nn.Linear(3 * 2, CLASSES))


def norms() -> nn.Module:
    """All norms of a sample; the last one is of features."""
    first = nn.GroupNorm(1, 2), nn.Conv2d(2, 6, 3), nn.GroupNorm(3, 6), nn.Sigmoid()
    second = nn.LayerNorm((6, 9, 8)), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    return chain(*first, *second, nn.Linear(6, 5), nn.LayerNorm(5), nn.ELU(), nn.Linear(5, CLASSES))


def blocks() -> nn.Module:
    """Residual blocks: that begin with ReLU, of equal shape, and with a stride and more maps."""
    rectified = chain(nn.ReLU(), convolution_of_3(3, 3))
    same = chain(convolution_of_3(3, 3), nn.GroupNorm(1, 3), nn.ReLU(), convolution_of_3(3, 3))
    wider = chain(convolution_of_3(3, 5, 2), nn.ReLU(), convolution_of_3(5, 5))
    activated = chain(nn.ReLU(), convolution_of_3(5, 5))
    return chain(
        nn.Conv2d(2, 3, 1),
        BasicBlock(rectified, 1, 0),  # the shortcut takes the input before ReLU
        BasicBlock(same, 1, 0),
        BasicBlock(wider, 2, 2),
        BasicBlock(activated, 1, 0),
        nn.AdaptiveAvgPool2d((1, 1)),
        nn.Flatten(),
        nn.Linear(5, CLASSES),
    )


CHAINS = {
    "images": (images, IMAGE),
    "mlp": (lambda: MLP(hidden=(7, 35)).build((2, 3), CLASSES), (2, 3)),
    "wide": (lambda: MLP(hidden=(3,)).build((67,), CLASSES), (67,)),
    "long sums": (lambda: MLP(hidden=(40,)).build((150,), CLASSES), (150,)),
    "logistic": (lambda: Logistic().build(ROWS, CLASSES), ROWS),
    "no bias": (lambda: nn.Linear(6, CLASSES, bias=False), ROWS),
    "units that follow units": (
        lambda: chain(
            nn.Linear(6, 4), nn.Tanh(), nn.ReLU(), nn.ELU(0.5), nn.Identity(), nn.Sigmoid()
        ),
        ROWS,
    ),
    "units before anything learns": (
        lambda: chain(nn.LeakyReLU(0.2), nn.Flatten(), nn.Hardtanh(-0.3, 0.8), nn.Linear(6, 4)),
        (2, 3),
    ),
    "pooling before anything learns": (
        lambda: chain(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(2 * 5 * 5, CLASSES)),
        IMAGE,
    ),
    "strides": (strides, IMAGE),
    "norms": (norms, IMAGE),
    "blocks": (blocks, IMAGE),
    "residual network": (lambda: ResNet(8, "group").build((1, 9, 9), CLASSES), (1, 9, 9)),
    "chains in chains": (
        lambda: chain(chain(nn.Linear(6, 5), nn.ReLU(inplace=True)), chain(nn.Linear(5, CLASSES))),
        ROWS,
    ),
}


def problem(name, batch, seed=0):
    """A module, rows of weights, inputs with flat patches as images have them, labels and
    mini-batches.
    """
    build, shape = CHAINS[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = build()
        weights = flatten(module.parameters()).detach().repeat(MODELS, 1)
        weights += 0.1 * torch.randn(weights.shape)
        x = torch.randn(SAMPLES, *shape)
        x[..., : shape[-1] // 3] = -0.4
        index = torch.randint(SAMPLES, (MODELS, batch), dtype=torch.int32)
        return module, weights, x, torch.randint(CLASSES, (SAMPLES,)), index


def compiled(module, weights, x, y, index, threads=1, loss=cross_entropy):
    """Gradients and losses without autograd."""
    backend = Threads(module, loss, threads)
    backend._mine = None  # autograd would need it
    return backend.gradients(weights, x, y, index)


def exactly(module, weights, x, y, index, loss=cross_entropy):
    """Gradients and losses by autograd in double precision."""
    module = copy.deepcopy(module).double()
    return gradients_by_torch(module, weights.double(), x.double(), y, index, loss)


def agree(one, other, tolerance=1e-6):
    """Equal up to `tolerance` of each row's largest entry."""
    for mine, its in zip(one, other, strict=True):
        scale = its.abs().reshape(len(its), -1).amax(1).clamp_min(1e-3)
        assert ((mine - its).abs().reshape(len(its), -1).amax(1) <= tolerance * scale).all()


@pytest.mark.parametrize("batch", [1, 32, 33, 100])
@pytest.mark.parametrize("name", CHAINS)
def test_compiled_gradient_matches_autograd(name, batch):
    given = problem(name, batch)
    agree(compiled(*given), exactly(*given))


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
def test_smoothed_loss_matches_autograd(smoothing):
    given = problem("mlp", 33)
    loss = CrossEntropyLoss(smoothing).function()
    agree(compiled(*given, loss=loss), exactly(*given, loss=loss))


@pytest.mark.parametrize("name", ["images", "blocks", "mlp"])
def test_outputs_match_module(name):
    module, weights, x, _, _ = problem(name, 1)
    backend = Threads(module, cross_entropy, 2)
    backend._mine = None
    x = torch.cat([x, x, x])  # several pieces, the last one short
    autograd = Autograd(copy.deepcopy(module), cross_entropy)
    agree(backend.outputs(weights, x), torch.stack([autograd.outputs(row, x) for row in weights]))


@pytest.mark.parametrize("name", ["images", "blocks", "mlp"])
def test_bits_depend_on_neither_threads_nor_other_models(name):
    module, weights, x, y, index = problem(name, 37)
    two = compiled(module, weights, x, y, index, threads=2)
    backend = Threads(module, cross_entropy, 1)
    for row in (2, 0, 1, 0):  # what another gradient leaves behind changes nothing
        one = backend.gradients(weights[row : row + 1], x, y, index[row : row + 1])
        assert torch.equal(one[0][0], two[0][row])
        assert torch.equal(one[1][0], two[1][row])


def batches() -> nn.Module:
    """Batch normalisation of images and of features."""
    first = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
    return chain(*first, nn.Linear(3 * 4 * 4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 4))


@pytest.mark.parametrize("batch", [2, 31, 32])
@pytest.mark.parametrize(
    ("build", "shape"),
    [(batches, IMAGE), (lambda: ResNet(8).build((1, 12, 12), CLASSES), (1, 12, 12))],
    ids=["chain", "residual network"],
)
def test_batch_normalisation_matches_autograd(build, shape, batch):
    torch.manual_seed(0)
    module = build()
    remove_statistics(module)
    weights = flatten(module.parameters()).detach()[None]
    x, y = torch.randn(SAMPLES, *shape), torch.randint(CLASSES, (SAMPLES,))
    index = torch.randperm(SAMPLES)[None, :batch]
    given = module, weights, x, y, index
    agree(compiled(*given), exactly(*given), 5e-6)


def test_outputs_under_batch_normalisation_match_autograd():
    """Each depends on all samples of a call, which may be more than one pass takes."""
    torch.manual_seed(0)
    module = batches()
    remove_statistics(module)
    weights, x = flatten(module.parameters()).detach()[None], torch.randn(SAMPLES, *IMAGE)
    found = Threads(module, cross_entropy, 1).outputs(weights, x)
    agree(found, Autograd(module, cross_entropy).outputs(weights[0], x)[None])


@pytest.mark.parametrize("batch", [1, 33])
def test_batch_larger_than_pass_is_normalised_by_torch(batch):
    """Its samples have to be in one pass; torch refuses one alone."""
    module = chain(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, CLASSES))
    remove_statistics(module)
    weights = flatten(module.parameters()).detach()[None]
    data = torch.randn(SAMPLES, 6), torch.randint(CLASSES, (SAMPLES,))
    index = torch.arange(batch)[None]
    backend = Threads(module, cross_entropy, 1)
    if batch == 1:
        with pytest.raises(ValueError, match="more than 1 value per channel"):
            backend.gradients(weights, *data, index)
        return
    found = backend.gradients(weights, *data, index)
    assert torch.equal(found[0], gradients_by_torch(module, weights, *data, index)[0])


def test_pooling_breaks_ties_as_torch():
    """All ties of four values out of three: where each gradient goes is torch's own answer."""
    cases = torch.cartesian_prod(*[torch.tensor([0.0, 1.0, float("nan")])] * 4)
    window, here = 32 * np.arange(4), np.zeros(1, np.int64)
    for piece in cases.reshape(-1, 1, 2, 2).split(kernels.SAMPLES):
        x = torch.zeros(kernels.SAMPLES, 1, 2, 2)
        x[: len(piece)] = piece
        x.requires_grad_()
        y = nn.functional.max_pool2d(x, 2)
        y.sum().backward()
        found, winners, back = (np.zeros(32 * size, np.float32) for size in (1, 1, 4))
        image = x.detach().flatten(1).t().flatten().numpy()
        kernels.pool(image, here, window, found, winners)
        kernels.unpool(np.ones(32, np.float32), winners, here, window, back)
        np.testing.assert_array_equal(found, y.detach().flatten().numpy())
        np.testing.assert_array_equal(back.reshape(4, 32).T, x.grad.flatten(1).numpy())


@pytest.mark.parametrize("name", ["images", "blocks", "mlp"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_gradients_are_finite_only_where_autograd_is(name, value):
    """The first, middle and last number of each tensor in turn is NaN or infinite. In padded
    convolutions torch omits 0 times infinity, which is NaN here.
    """
    module, weights, x, y, index = problem(name, 9)
    sizes = np.array([parameter.numel() for parameter in module.parameters()])
    ends = np.cumsum(sizes)
    for place in np.concatenate([ends - sizes, ends - sizes // 2 - 1, ends - 1]):
        changed = weights[:1].clone()
        changed[0, place] = value
        found, expected = (
            how(module, changed, x, y, index[:1]) for how in (compiled, gradients_by_torch)
        )
        for mine, its in zip(found, expected, strict=True):
            assert its.isfinite().all() or not mine.isfinite().all()
    gradient, loss = compiled(module, torch.full_like(weights, float("nan")), x, y, index)
    assert loss.isnan().all()
    assert not gradient.isfinite().all(1).any()


@pytest.mark.parametrize(
    ("name", "wrong"), [("label", -1), ("label", CLASSES), ("index", -1), ("index", SAMPLES)]
)
def test_bad_label_or_index_is_named(name, wrong):
    module, weights, x, y, index = problem("mlp", 5)
    if name == "label":
        y[3] = wrong
    else:
        index[1, 2] = wrong
    with pytest.raises(IndexError, match=f"{name} {wrong}: expected 0 to"):
        compiled(module, weights, x, y, index)


def test_changed_data_are_checked_again():
    module, weights, x, y, index = problem("mlp", 5)
    backend = Threads(module, cross_entropy, 1)
    before, _ = backend.gradients(weights, x, y, index)
    x *= 2
    after, _ = backend.gradients(weights, x, y, index)
    assert not torch.equal(before, after)
    y[0] = CLASSES
    with pytest.raises(IndexError, match="label"):
        backend.gradients(weights, x, y, index)


def squared(outputs, targets):
    return mse_loss(outputs, nn.functional.one_hot(targets, outputs.shape[1]).to(outputs.dtype))


@pytest.mark.parametrize("loss", [nll_loss, partial(cross_entropy, reduction="sum"), squared])
def test_other_losses_go_to_autograd(loss):
    problem_of_mlp = problem("mlp", 5)
    found = Threads(problem_of_mlp[0], loss, 1).gradients(*problem_of_mlp[1:])
    assert torch.equal(found[0], gradients_by_torch(*problem_of_mlp, loss=loss)[0])


@pytest.mark.parametrize("kind", ["float64", "probabilities", "labels to leave out", "many rows"])
def test_other_data_go_to_autograd(kind):
    module, weights, x, y, index = problem("mlp", 5)
    if kind == "float64":
        module, weights, x = module.double(), weights.double(), x.double()
    elif kind == "probabilities":
        y = torch.rand(SAMPLES, CLASSES).softmax(1)
    elif kind == "labels to leave out":
        y[::2] = -100
    else:
        module = chain(nn.Linear(3, 5), nn.Flatten(), nn.Linear(10, CLASSES))
        weights = flatten(module.parameters()).detach().repeat(MODELS, 1)
    index = index.long()
    found = Threads(module, cross_entropy, 1).gradients(weights, x, y, index)
    for one, other in zip(found, gradients_by_torch(module, weights, x, y, index), strict=True):
        assert torch.equal(one, other)


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


class Skipping(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


def changed(change):
    """A chain of one linear layer, changed in place."""
    module = chain(nn.Linear(6, 3))
    change(module)
    return module


def shared():
    layer = nn.Linear(6, 6)
    return chain(layer, nn.ReLU(), layer)


STRANGERS = {
    "derived layer": lambda: chain(Doubled(6, 3)),
    "derived chain": lambda: Skipping(nn.Linear(6, 6)),
    "hook": lambda: changed(lambda m: m[0].register_forward_hook(lambda _, __, y: 2 * y)),
    "other forward": lambda: changed(lambda m: setattr(m[0], "forward", lambda x: x)),
    "layer twice": shared,
    "frozen parameter": lambda: changed(lambda m: m[0].bias.requires_grad_(False)),
    "parameter of its own": lambda: changed(lambda m: m.register_parameter("idle", IDLE)),
    "parameter in a layer": lambda: changed(lambda m: m[0].register_parameter("idle", IDLE)),
    "weight norm": lambda: chain(nn.utils.parametrizations.weight_norm(nn.Linear(6, 3))),
    "unknown layer": lambda: chain(nn.Linear(6, 6), nn.RMSNorm(6)),
    "norm without parameters": lambda: chain(
        nn.Linear(6, 6), nn.LayerNorm(6, elementwise_affine=False)
    ),
    "norm without biases": lambda: chain(nn.Linear(6, 6), nn.LayerNorm(6, bias=False)),
    "norm of another shape": lambda: chain(nn.Linear(6, 6), nn.LayerNorm(3)),
    "running statistics": lambda: chain(nn.Linear(6, 6), nn.BatchNorm1d(6)),
    "unit that is not monotone": lambda: chain(nn.Linear(6, 6), nn.GELU()),
    "layer alone": lambda: nn.Bilinear(6, 6, 3),
    "nothing to learn": lambda: chain(nn.Flatten()),
    "block of features": lambda: chain(nn.Linear(6, 6), BasicBlock(chain(nn.Linear(6, 6)), 1, 0)),
}
IDLE = nn.Parameter(torch.ones(2))


@pytest.mark.parametrize("name", STRANGERS)
def test_modules_beyond_plain_chains_are_not_compiled(name):
    with torch.random.fork_rng(devices=[]), pytest.raises(NotCompiledError):
        build_plan(STRANGERS[name](), (6,))


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(2, 2, 3, groups=2),
        nn.Conv2d(2, 2, 3, padding="same"),
        nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular"),
        nn.MaxPool2d(3, 3, (1, 0)),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.AvgPool2d(2, padding=1),
        nn.AvgPool2d(2, ceil_mode=True),
        nn.AvgPool2d(2, divisor_override=3),
        nn.AdaptiveAvgPool2d(2),
        nn.BatchNorm2d(2),
        BasicBlock(chain(nn.Conv2d(2, 2, 3, padding=1)), 1, 0),
        nn.Flatten(2),
        nn.LeakyReLU(-0.1),
        nn.ELU(-1.0),
    ],
    ids=str,
)
def test_unknown_kinds_of_layers_are_not_compiled(layer):
    """The mean over the image, where the layer makes one, fits any size that a plan may assume."""
    output = layer(torch.zeros(1, *IMAGE))
    layers = [layer]
    if output.dim() == 4:
        layers.append(nn.AdaptiveAvgPool2d(1))
    features = chain(*layers)(torch.zeros(1, *IMAGE)).flatten(1).shape[1]
    build_plan(chain(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 3)), IMAGE)
    with pytest.raises(NotCompiledError):
        build_plan(chain(*layers, nn.Flatten(), nn.Linear(features, 3)), IMAGE)


def test_pool_that_returns_indices_is_not_compiled():
    """In a chain torch refuses it, which a compiled one would not."""
    assert is_known(nn.MaxPool2d(2))
    assert not is_known(nn.MaxPool2d(2, return_indices=True))


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(3, 2, 3),
        nn.Conv2d(2, 2, 12),
        nn.Linear(11, 3),
        nn.GroupNorm(1, 4),
        nn.BatchNorm2d(3, track_running_stats=False),
        nn.BatchNorm1d(2, track_running_stats=False),
    ],
    ids=str,
)
def test_layers_of_other_sizes_are_not_compiled(layer):
    """What follows would fit."""
    with pytest.raises(NotCompiledError):
        build_plan(chain(layer, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 3)), IMAGE)


@pytest.mark.parametrize(
    "part",
    [nn.Conv2d(2, 2, 3), nn.Identity(), nn.Flatten(), nn.Conv2d(2, 3, 3, padding=1)],
    ids=str,
)
def test_blocks_that_differ_from_shortcut_are_not_compiled(part):
    """A part smaller than the image, one without a step, one of features, and one of more maps."""
    block = BasicBlock(chain(part), 1, 0)
    with pytest.raises(NotCompiledError):
        build_plan(chain(nn.Conv2d(2, 2, 1), block, nn.AdaptiveAvgPool2d(1), nn.Flatten()), IMAGE)


def test_layer_needs_memory_only_for_its_output():
    """Gradients take the place of those that were used: two at a time, however deep a network is."""
    spaces = []
    for layers in range(3, 6):
        deep = [nn.Linear(64, 64) for _ in range(layers)]
        spaces.append(build_plan(chain(*deep), (64,)).space)
    assert np.diff(spaces).tolist() == [64 * kernels.SAMPLES] * 2


@pytest.mark.parametrize(
    "x", [torch.zeros(5, 1, 20, 20), torch.zeros(5, 3, 28, 28), torch.zeros(5, 1, 28, 28).int()]
)
def test_bad_inputs_raise_errors_of_torch(x):
    module = LeNet5().build((1, 28, 28), 10)
    weights = flatten(module.parameters()).detach()[None]
    with pytest.raises(RuntimeError):
        Threads(module, cross_entropy, 1).gradients(
            weights, x, torch.zeros(5, dtype=torch.int64), torch.zeros(1, 5).int()
        )


SCRIPT = """
import sys, torch
from torch.nn.functional import cross_entropy
from laggard.models import MLP
from laggard.models.backends.threads import Threads
assert "numba" not in sys.modules
torch.manual_seed(0)
module = MLP(hidden=(33,)).build((20,), 4)
weights = torch.nn.utils.parameters_to_vector(module.parameters()).detach()[None]
backend = Threads(module, cross_entropy, 1)
backend._mine = None
data = torch.randn(50, 20), torch.randint(4, (50,)), torch.arange(45)[None]
found, _ = backend.gradients(weights, *data)
compiled = [module for name, module in sys.modules.items() if name.startswith("laggard_")]
print(*(sum(made.predict.stats.cache_misses.values()) for made in compiled))
print(found.numpy().tobytes().hex())
"""


# what a notebook may have done before: numba has compiled, and its settings are read
NUMBA_FIRST = """
import numba
double = numba.njit(lambda x: 2 * x)
assert double(2.0) == 4.0
"""


def start(cache: Path, script: str = SCRIPT, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "XDG_CACHE_HOME": str(cache), **environment},
    )


def answer(process: "subprocess.Popen[str]") -> str:
    out, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    return out


@pytest.mark.slow
def test_processes_share_compiled_sources(tmp_path):
    """Each source is compiled once for each vector width, and gives the same bits."""
    from llvmlite import binding

    features = binding.get_host_cpu_features().flatten() + ",+prefer-256-bit"
    narrow = {"NUMBA_CPU_NAME": binding.get_host_cpu_name(), "NUMBA_CPU_FEATURES": features}
    processes = [start(tmp_path), start(tmp_path), start(tmp_path, **narrow)]
    (one, bits), (other, same), (narrowed, also) = (
        answer(process).split() for process in processes
    )
    assert bits == same == also
    assert narrowed == "1"
    # of the two with the same source, one has compiled it and the other has waited
    assert {one, other} == {"0", "1"}
    files = [path for path in (tmp_path / "laggard" / "compiled").rglob("*") if path.is_file()]
    suffixes = [path.suffix for path in files]
    assert (suffixes.count(".py"), suffixes.count(".nbc")) == (2, 4)
    assert answer(start(tmp_path)).split() == ["0", bits]
    late = SCRIPT.replace('assert "numba" not in sys.modules', NUMBA_FIRST)
    assert answer(start(tmp_path, late)).split() == ["0", bits]
    assert len([path for path in (tmp_path / "laggard" / "compiled").rglob("*.nbc")]) == 4


def test_networks_are_compiled_one_after_another():
    """Functions that numba compiled for other code, or for the previous network, are found."""
    import numba

    def least(x, place):
        return x[min(place, len(x) - 1)]

    x = np.arange(3.0)
    assert numba.njit(least)(x, 5) == 2
    for _ in range(2):
        with compiler._widest_vectors():
            last = numba.njit(least)
            last.compile("f8(f8[::1], i8)")
        assert last(x, 5) == 2
    assert numba.njit(least)(x, 1) == 1


def test_compiling_needs_no_folder_for_cache(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    monkeypatch.setattr(compiler, "_compile", lambda module: module)
    compiler.compile_passes.cache_clear()
    module = compiler.compile_passes()
    compiler.compile_passes.cache_clear()
    x = np.ones(3, np.float32)
    module.set_all(x, np.float32(2))
    assert x.tolist() == [2, 2, 2]
    assert blocked.read_text() == "no folder"


def test_failure_of_numba_warns_once_and_uses_autograd(monkeypatch):
    def fail(text):
        raise ImportError("no numba here\nand more")

    monkeypatch.setattr(compiled_cache, "source_path", fail)
    compiler.compile_passes.cache_clear()
    module, *arguments = problem("mlp", 5)
    with pytest.warns(UserWarning, match=r"ImportError: no numba here$"):
        found = Threads(module, cross_entropy, 1).gradients(*arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Threads(module, cross_entropy, 1).gradients(*arguments)
    compiler.compile_passes.cache_clear()
    agree(found, gradients_by_torch(module, *arguments), 0)
