"""The compiled gradient is autograd's, of every chain that is recognised; whatever is not one goes
to autograd.
"""

import copy
import os
import subprocess
import sys
import warnings
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss, nll_loss

from laggard.models import MLP, LeNet5, Logistic
from laggard.models.backends.autograd import Autograd
from laggard.models.backends.compiled import compiler, kernels, layers, network
from laggard.models.backends.compiled.layers import NotCompiledError
from laggard.models.backends.compiled.plan import LARGEST_KERNEL, build_plan
from laggard.models.backends.threads import Threads
from laggard.models.flat import flatten

SAMPLES, CLASSES, MODELS = 40, 4, 3
ROWS, IMAGE = (6,), (2, 11, 10)


def images() -> nn.Module:
    """Odd sides and numbers of channels, oblong kernels, padding, pooling of a convolution and
    alone.
    """
    return nn.Sequential(
        nn.Conv2d(2, 3, (3, 2), padding=(1, 0)), nn.ReLU(), nn.MaxPool2d(2), nn.Tanh(),
        nn.Conv2d(3, 4, 2, bias=False), nn.Conv2d(4, 2, 1, padding=1), nn.ELU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(2 * 3 * 2, CLASSES),
    )  # fmt: skip


CHAINS = {
    "images": (images, IMAGE),
    "mlp": (lambda: MLP(hidden=(7, 35)).build((2, 3), CLASSES), (2, 3)),
    "wide": (lambda: MLP(hidden=(3,)).build((67,), CLASSES), (67,)),
    "logistic": (lambda: Logistic().build(ROWS, CLASSES), ROWS),
    "no bias": (lambda: nn.Linear(6, CLASSES, bias=False), ROWS),
    "units that follow units": (
        lambda: nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.ReLU(), nn.ELU(0.5), nn.Identity(), nn.Sigmoid()), ROWS
    ),
    "units before anything learns": (
        lambda: nn.Sequential(nn.LeakyReLU(0.2), nn.Flatten(), nn.Hardtanh(-0.3, 0.8), nn.Linear(6, CLASSES)), (2, 3)
    ),
    "pooling before anything learns": (
        lambda: nn.Sequential(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(2 * 5 * 5, CLASSES)), IMAGE
    ),
    "chains in chains": (
        lambda: nn.Sequential(nn.Sequential(OrderedDict(one=nn.Linear(6, 5), two=nn.ReLU(inplace=True))),
                              nn.Sequential(nn.Linear(5, CLASSES))), ROWS,
    ),
}  # fmt: skip


# half a minute to compile; CI compiles LeNet-5
IMAGES = pytest.param("images", marks=pytest.mark.slow)


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


def by_autograd(module, weights, x, y, index):
    autograd = Autograd(copy.deepcopy(module), cross_entropy)
    found = [
        autograd.gradient(row, x[batch], y[batch])
        for row, batch in zip(weights, index, strict=True)
    ]
    return [torch.stack(column) for column in zip(*found, strict=True)]


def agree(one, other, tolerance=1e-6):
    """Equal up to `tolerance` of each row's largest entry."""
    for mine, its in zip(one, other, strict=True):
        scale = its.abs().reshape(len(its), -1).amax(1).clamp_min(1e-3)
        assert ((mine - its).abs().reshape(len(its), -1).amax(1) <= tolerance * scale).all()


@pytest.mark.parametrize("batch", [1, 32, 33, 100])
@pytest.mark.parametrize("name", [IMAGES, *list(CHAINS)[1:]])
def test_a_compiled_gradient_is_autograd_s(name, batch):
    given = problem(name, batch)
    agree(compiled(*given), by_autograd(*given))


@pytest.mark.parametrize("seed", range(12))
def test_a_random_perceptron_s_gradient_is_autograd_s(seed):
    rng = np.random.default_rng(seed)
    sizes = [int(size) for size in rng.integers(1, 80, size=rng.integers(2, 5))]
    units = [
        nn.ReLU(),
        nn.Tanh(),
        nn.Sigmoid(),
        nn.ELU(),
        nn.LeakyReLU(0.1),
        nn.Hardtanh(),
        nn.Identity(),
    ]
    layers = []
    for inputs, outputs in zip(sizes, [*sizes[1:], CLASSES], strict=True):
        layers += [
            nn.Linear(inputs, outputs, bias=bool(rng.integers(2))),
            units[rng.integers(len(units))],
        ]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = nn.Sequential(*copy.deepcopy(layers))
        for parameter in module.parameters():
            nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5)
        weights = flatten(module.parameters()).detach()[None]
        x, y = torch.randn(SAMPLES, sizes[0]), torch.randint(CLASSES, (SAMPLES,))
    index = torch.from_numpy(rng.integers(SAMPLES, size=(1, int(rng.integers(1, 70)))))
    agree(compiled(module, weights, x, y, index), by_autograd(module, weights, x, y, index))


@pytest.mark.parametrize("name", [IMAGES, "mlp"])
def test_outputs_are_the_module_s(name):
    module, weights, x, _, _ = problem(name, 1)
    backend = Threads(module, cross_entropy, 2)
    backend._mine = None
    x = torch.cat([x, x, x])  # several pieces, the last one short
    autograd = Autograd(copy.deepcopy(module), cross_entropy)
    agree(backend.outputs(weights, x), torch.stack([autograd.outputs(row, x) for row in weights]))


@pytest.mark.parametrize("name", [IMAGES, "mlp"])
def test_bits_depend_neither_on_threads_nor_on_company(name):
    module, weights, x, y, index = problem(name, 37)
    two = compiled(module, weights, x, y, index, threads=2)
    backend = Threads(module, cross_entropy, 1)
    for row in (2, 0, 1, 0):  # what another gradient leaves behind changes nothing
        one = backend.gradients(weights[row : row + 1], x, y, index[row : row + 1])
        assert torch.equal(one[0][0], two[0][row])
        assert torch.equal(one[1][0], two[1][row])


def test_of_equal_values_the_first_is_the_largest():
    """All ties of four values out of two: where each gradient goes is torch's own answer."""
    cases = torch.cartesian_prod(*[torch.tensor([0.0, 1.0, float("nan")])] * 4)
    count = -(-len(cases) // kernels.SAMPLES)
    x = torch.zeros(count * kernels.SAMPLES, 1, 2, 2)
    x[: len(cases)] = cases.reshape(-1, 1, 2, 2)
    usual = x.clone().requires_grad_()
    y = nn.functional.max_pool2d(usual, 2)
    y.sum().backward()
    for piece in range(count):
        part = slice(piece * kernels.SAMPLES, (piece + 1) * kernels.SAMPLES)
        mine, winners, back = (
            np.zeros(32, np.float32),
            np.zeros(32, np.float32),
            np.zeros(128, np.float32),
        )
        kernels.pool(x[part].flatten(1).t().contiguous().flatten().numpy(), 1, 2, 2, mine, winners)
        kernels.unpool(np.ones(32, np.float32), winners, 1, 2, 2, back)
        np.testing.assert_array_equal(mine, y[part].detach().flatten().numpy())
        np.testing.assert_array_equal(back.reshape(4, 32).T, usual.grad[part].flatten(1).numpy())


@pytest.mark.parametrize("name", [IMAGES, "mlp"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_where_autograd_has_no_finite_loss_or_gradient_there_is_none(name, value):
    """Whichever weight it is. Where a convolution pads, torch leaves out 0 times infinity, which
    here is NaN.
    """
    module, weights, x, y, index = problem(name, 9)
    for place in range(0, weights.shape[1], 7):
        changed = weights[:1].clone()
        changed[0, place] = value
        found, expected = (how(module, changed, x, y, index[:1]) for how in (compiled, by_autograd))
        for mine, its in zip(found, expected, strict=True):
            assert its.isfinite().all() or not mine.isfinite().all()
    gradient, loss = compiled(module, torch.full_like(weights, float("nan")), x, y, index)
    assert loss.isnan().all()
    assert not gradient.isfinite().all(1).any()


@pytest.mark.parametrize("label", [-1, CLASSES])
def test_a_bad_label_is_named(label):
    module, weights, x, y, index = problem("mlp", 5)
    y[3] = label
    with pytest.raises(
        IndexError, match=f"label {label}: expected 0 to {CLASSES - 1}, .* {CLASSES} classes"
    ):
        compiled(module, weights, x, y, index)


@pytest.mark.parametrize("sample", [-1, SAMPLES])
def test_a_bad_index_is_named(sample):
    module, weights, x, y, index = problem("mlp", 5)
    index[1, 2] = sample
    with pytest.raises(
        IndexError, match=f"index {sample}: expected 0 to {SAMPLES - 1}, .* {SAMPLES} samples"
    ):
        compiled(module, weights, x, y, index)


def test_data_are_checked_anew_when_they_change():
    module, weights, x, y, index = problem("mlp", 5)
    backend = Threads(module, cross_entropy, 1)
    before, _ = backend.gradients(weights, x, y, index)
    x *= 2
    after, _ = backend.gradients(weights, x, y, index)
    assert not torch.equal(before, after)
    y[0] = CLASSES
    with pytest.raises(IndexError, match="label"):
        backend.gradients(weights, x, y, index)


def test_data_that_do_not_change_are_checked_once(monkeypatch):
    """Whichever mini-batches are asked for, in however many calls."""
    module, weights, x, y, index = problem("mlp", 5)
    checked, check = [], network._check_range
    monkeypatch.setattr(
        network, "_check_range", lambda name, *rest: (checked.append(name), check(name, *rest))
    )
    backend = Threads(module, cross_entropy, 1)
    for _ in range(3):
        backend.gradients(weights, x, y, index)
    assert checked.count("label") == 1
    backend.gradients(weights, x.clone(), y, index)
    assert checked.count("label") == 2


def smoothed(outputs, targets):
    return cross_entropy(outputs, targets, label_smoothing=0.1)


def squared(outputs, targets):
    return mse_loss(outputs, nn.functional.one_hot(targets, outputs.shape[1]).to(outputs.dtype))


@pytest.mark.parametrize("loss", [nll_loss, smoothed, squared])
def test_other_losses_go_to_autograd(loss):
    module, weights, x, y, index = problem("mlp", 5)
    mine, its = (
        Threads(module, loss, 1).gradients(weights, x, y, index),
        Autograd(copy.deepcopy(module), loss),
    )
    expected = [
        its.gradient(row, x[batch], y[batch])[0]
        for row, batch in zip(weights, index.long(), strict=True)
    ]
    assert torch.equal(mine[0], torch.stack(expected))


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
        module, x = nn.Sequential(nn.Linear(3, 5), nn.Flatten(), nn.Linear(10, CLASSES)), x
        weights = flatten(module.parameters()).detach().repeat(MODELS, 1)
    index = index.long()
    for mine, its in zip(Threads(module, cross_entropy, 1).gradients(weights, x, y, index),
                         by_autograd(module, weights, x, y, index), strict=True):  # fmt: skip
        assert torch.equal(mine, its)


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


class Skipping(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


def hooked():
    layer = nn.Linear(6, 3)
    layer.register_forward_hook(lambda _, __, y: 2 * y)
    return nn.Sequential(layer)


def patched():
    layer = nn.Linear(6, 3)
    layer.forward = lambda x: 2 * nn.functional.linear(x, layer.weight, layer.bias)
    return nn.Sequential(layer)


def shared():
    layer = nn.Linear(6, 6)
    return nn.Sequential(layer, nn.ReLU(), layer)


def frozen():
    module = nn.Sequential(nn.Linear(6, 3))
    module[0].bias.requires_grad_(False)
    return module


def with_a_parameter_of_its_own():
    module = nn.Sequential(nn.Linear(6, 3))
    module.register_parameter("idle", nn.Parameter(torch.ones(2)))
    return module


def with_a_parameter_in_a_layer():
    module = nn.Sequential(nn.Linear(6, 3))
    module[0].idle = nn.Parameter(torch.ones(2))
    return module


STRANGERS = {
    "a derived layer": lambda: nn.Sequential(Doubled(6, 3)),
    "a derived chain": lambda: Skipping(nn.Linear(6, 6)),
    "a hook": hooked,
    "another forward": patched,
    "a layer twice": shared,
    "a frozen parameter": frozen,
    "a parameter of its own": with_a_parameter_of_its_own,
    "a parameter in a layer": with_a_parameter_in_a_layer,
    "weight norm": lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(6, 3))),
    "an unknown layer": lambda: nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6)),
    "a unit that is not monotone": lambda: nn.Sequential(nn.Linear(6, 6), nn.GELU()),
    "a layer alone": lambda: nn.Bilinear(6, 6, 3),
    "nothing to learn": lambda: nn.Sequential(nn.Flatten()),
}


@pytest.mark.parametrize("name", STRANGERS)
def test_modules_that_do_more_than_their_layers_are_not_compiled(name):
    with torch.random.fork_rng(devices=[]), pytest.raises(NotCompiledError):
        build_plan(STRANGERS[name](), (6,))


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(2, 2, 3, groups=2), nn.Conv2d(2, 2, 3, dilation=2), nn.Conv2d(2, 2, 3, stride=2),
        nn.Conv2d(2, 2, 3, padding="same"), nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular"),
        nn.Conv2d(2, 2, 9),
        nn.MaxPool2d(3), nn.MaxPool2d(2, stride=1), nn.MaxPool2d(2, ceil_mode=True), nn.MaxPool2d(2, padding=1),
        nn.Flatten(2), nn.LeakyReLU(-0.1), nn.ELU(-1.0),
    ],
    ids=str,
)  # fmt: skip
def test_layers_in_ways_that_are_not_written_out_are_not_compiled(layer):
    features = layer(torch.zeros(1, *IMAGE)).flatten(1).shape[1]
    build_plan(nn.Sequential(nn.Flatten(), nn.Linear(220, 3)), IMAGE)
    with pytest.raises(NotCompiledError):
        build_plan(nn.Sequential(layer, nn.Flatten(), nn.Linear(features, 3)), IMAGE)


def test_a_kernel_may_have_as_many_entries_as_are_written_out_and_none_more():
    def plan(entries):
        return build_plan(
            nn.Sequential(nn.Conv2d(1, 1, (1, entries)), nn.Flatten()), (1, 1, LARGEST_KERNEL + 1)
        )

    assert plan(LARGEST_KERNEL)
    with pytest.raises(NotCompiledError):
        plan(LARGEST_KERNEL + 1)


@pytest.mark.parametrize(
    "layer", [nn.Conv2d(3, 2, 3), nn.Conv2d(2, 2, 12), nn.Linear(11, 3)], ids=str
)
def test_layers_that_do_not_fit_their_input_are_not_compiled(layer):
    with pytest.raises(NotCompiledError):
        build_plan(nn.Sequential(layer, nn.Flatten(), nn.Linear(4, 3)), IMAGE)


@pytest.mark.parametrize(
    "x", [torch.zeros(5, 1, 20, 20), torch.zeros(5, 3, 28, 28), torch.zeros(5, 1, 28, 28).int()]
)
def test_bad_inputs_get_torch_s_own_message(x):
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
found, _ = backend.gradients(weights, torch.randn(50, 20), torch.randint(4, (50,)), torch.arange(45)[None])
compiled = [module for name, module in sys.modules.items() if name.startswith("laggard_")]
print(*(sum(made.predict.stats.cache_misses.values()) for made in compiled))
print(found.numpy().tobytes().hex())
"""


def start(cache: Path, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", SCRIPT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "XDG_CACHE_HOME": str(cache), **environment},
    )  # fmt: skip


def answer(process: "subprocess.Popen[str]") -> str:
    out, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    return out


@pytest.mark.slow
def test_processes_compile_at_once_for_vectors_of_either_width_and_each_source_once_to_the_same_bits(
    tmp_path,
):
    from llvmlite import binding

    narrow = {
        "NUMBA_CPU_NAME": binding.get_host_cpu_name(),
        "NUMBA_CPU_FEATURES": binding.get_host_cpu_features().flatten() + ",+prefer-256-bit",
    }
    processes = [start(tmp_path), start(tmp_path), start(tmp_path, **narrow)]
    (one, bits), (other, same), (narrowed, also) = (
        answer(process).split() for process in processes
    )
    assert bits == same == also
    assert narrowed == "1"
    # one of the two that need the same has compiled it, the other has waited
    assert {one, other} == {"0", "1"}
    files = sorted(
        path for path in (tmp_path / "laggard" / "compiled").rglob("*") if path.suffix != ".pyc"
    )
    assert [path.suffix for path in files].count(".py") == 2
    assert [path.suffix for path in files].count(".nbc") == 4
    stored = [path.stat().st_mtime_ns for path in files]
    assert answer(start(tmp_path)).split() == ["0", bits]
    assert [path.stat().st_mtime_ns for path in files] == stored


def test_without_a_folder_for_the_cache_everything_stays_in_memory(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    monkeypatch.setattr(compiler, "_compile", lambda module: module)
    compiler.compile_passes.cache_clear()
    module = compiler.compile_passes(())
    compiler.compile_passes.cache_clear()
    x, y = np.ones(3, np.float32), np.zeros(3, np.float32)
    module.copy(x, y)
    assert y.tolist() == x.tolist()
    assert blocked.read_text() == "no folder"


def test_where_numba_fails_one_warning_says_so_and_autograd_goes_on(monkeypatch):
    def fail(text):
        raise ImportError("no numba here\nand more")

    monkeypatch.setattr(compiler, "_write_source", fail)
    compiler.compile_passes.cache_clear()
    given = problem("mlp", 5)
    with pytest.warns(
        UserWarning, match="^gradients are not compiled, and slower: ImportError: no numba here$"
    ):
        mine = Threads(given[0], cross_entropy, 1).gradients(*given[1:])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Threads(given[0], cross_entropy, 1).gradients(*given[1:])
    compiler.compile_passes.cache_clear()
    agree(mine, by_autograd(*given), 0)


def test_padding_and_its_transpose_know_sides_that_differ():
    """Uncompiled: the crop is needed by layers behind a padded one alone, which the tests of whole
    networks compile.
    """
    channels, height, width, top, left = 2, 3, 4, 1, 2
    rng = np.random.default_rng(0)
    inner = rng.standard_normal((channels, height, width, kernels.SAMPLES), dtype=np.float32)
    wide = np.pad(inner, [(0, 0), (top, top), (left, left), (0, 0)])
    padded, cropped = np.zeros(wide.size, np.float32), np.zeros(inner.size, np.float32)
    kernels.pad(inner.ravel(), channels, height, width, top, left, padded)
    np.testing.assert_array_equal(padded.reshape(wide.shape), wide)
    around = rng.standard_normal(wide.shape, dtype=np.float32)
    kernels.crop(around.ravel(), channels, height, width, top, left, cropped)
    np.testing.assert_array_equal(cropped.reshape(inner.shape), around[:, top:-top, left:-left])


def test_sides_of_pooling_may_be_a_number_or_a_pair():
    for pooling in (
        nn.MaxPool2d(2),
        nn.MaxPool2d((2, 2)),
        nn.MaxPool2d((2, 2), stride=(2, 2), padding=(0, 0)),
    ):
        assert layers._is_known(pooling)
    for pooling in (
        nn.MaxPool2d((2, 3)),
        nn.MaxPool2d(2, stride=(2, 1)),
        nn.MaxPool2d(3, padding=(1, 0)),
    ):
        assert not layers._is_known(pooling)
