"""A gradient written out is autograd's, of every chain that is recognised; whatever is not one goes to autograd."""

import copy
from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss, nll_loss

from laggard.models import MLP, LeNet5, Logistic
from laggard.models.backends.handwritten import Autograd, Chain, backpropagation
from laggard.models.backends.handwritten.convolution import Windows
from laggard.models.backends.handwritten.stages import MaxPool, Pooling
from laggard.models.flat import Bound, flatten

F64 = torch.float64


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def problem(module, shape, dtype=F64, batch=5):
    """Weights for `module`, inputs with flat patches as images have them, labels."""
    params = len(flatten(module.to(dtype).parameters()))
    weights = 0.1 * torch.randn(params, generator=generator(), dtype=dtype)
    x = torch.randn(batch, *shape, generator=generator(1), dtype=dtype).relu()
    x[..., : shape[-1] // 3] = -0.4
    return weights, x, torch.randint(3, (batch,), generator=generator(2))


def both(module, shape, dtype=F64, loss=cross_entropy, batch=5):
    """The gradient and loss by hand and by autograd."""
    weights, x, y = problem(module, shape, dtype, batch)
    chain = backpropagation(copy.deepcopy(module), loss)
    assert isinstance(chain, Chain)
    fits = chain._plan_for(x) is not None
    return fits, chain.gradient(weights, x, y), Autograd(Bound(copy.deepcopy(module)), loss).gradient(weights, x, y)


def agree(one, other, tolerance):
    for mine, its in zip(one, other, strict=True):
        torch.testing.assert_close(mine, its, rtol=tolerance, atol=tolerance)


def images(*layers, features, classes=3):
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(features, classes))


CHAINS = {
    "lenet5": (LeNet5().build((1, 28, 28), 10), (1, 28, 28)),
    "mlp": (MLP(hidden=(7, 5)).build((2, 3), 4), (2, 3)),
    "logistic": (Logistic().build((6,), 3), (6,)),
    "as LeNet-5 is usually written": (
        images(nn.Conv2d(1, 4, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), features=4 * 7 * 6),
        (1, 14, 12),
    ),
    "no bias anywhere": (
        nn.Sequential(
            nn.Conv2d(2, 3, 3, bias=False), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(3 * 3 * 3, 3, bias=False)
        ),
        (2, 8, 8),
    ),
    "strides, oblong kernels, odd sides": (
        images(
            nn.Conv2d(1, 3, (3, 2), stride=(2, 1), padding=(1, 0)),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(3, 4, 2, stride=2),
            features=4 * 2 * 3,
        ),
        (1, 19, 14),
    ),
    "pooling with stride": (images(nn.Conv2d(1, 3, 3, stride=2), nn.MaxPool2d(2), features=3 * 3 * 4), (1, 13, 17)),
    "pooling twice, and of the inputs": (
        images(nn.MaxPool2d(2), nn.Conv2d(2, 3, 3), nn.MaxPool2d(2), nn.MaxPool2d(2), features=3 * 2 * 2), (2, 21, 23)
    ),
    "convolution without pooling": (
        images(nn.Conv2d(1, 3, 3, padding=1), nn.Tanh(), nn.Conv2d(3, 2, 3), features=2 * 4 * 5), (1, 6, 7)
    ),
    "smooth units": (nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.GELU(), nn.Linear(5, 4), nn.Sigmoid()), (2, 3)),
    "units that follow units": (nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.ReLU(), nn.ReLU(), nn.Identity()), (6,)),
    "units before anything learns": (nn.Sequential(nn.ReLU(), nn.Flatten(), nn.Tanh(), nn.Linear(6, 4)), (2, 3)),
    "chains in chains": (
        nn.Sequential(nn.Sequential(OrderedDict(one=nn.Linear(6, 5), two=nn.ReLU())), nn.Sequential(nn.Linear(5, 3))),
        (6,),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHAINS)
def test_a_gradient_written_out_is_autograd_s(name):
    module, shape = CHAINS[name]
    fits, mine, its = both(module, shape)
    assert fits
    assert its[0].abs().max() > 1e-3
    agree(mine, its, 1e-12)


@pytest.mark.parametrize("batch", [1, 32])
def test_in_single_precision_they_agree_to_rounding(batch):
    fits, mine, its = both(*CHAINS["lenet5"], dtype=torch.float32, batch=batch)
    assert fits
    agree(mine, its, 1e-6)


@pytest.mark.parametrize("name", ["mlp", "logistic", "chains in chains"])
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_full_layers_agree_bit_for_bit(name, dtype):
    module, shape = CHAINS[name]
    _, mine, its = both(module, shape, dtype)
    assert all(torch.equal(one, other) for one, other in zip(mine, its, strict=True))


def smoothed(outputs, targets):
    return cross_entropy(outputs, targets, label_smoothing=0.1)


def squared(outputs, targets):
    return mse_loss(outputs, nn.functional.one_hot(targets, outputs.shape[1]).to(outputs.dtype))


@pytest.mark.parametrize("loss", [cross_entropy, nll_loss, smoothed, squared])
def test_any_loss_of_the_outputs_will_do(loss):
    fits, mine, its = both(*CHAINS["mlp"], loss=loss)
    assert fits
    agree(mine, its, 1e-12)


def test_a_label_that_is_ignored_weighs_nothing():
    module, shape = CHAINS["mlp"]
    weights, x, y = problem(module, shape)
    y[1] = -100
    mine = backpropagation(copy.deepcopy(module), cross_entropy).gradient(weights, x, y)
    agree(mine, Autograd(Bound(copy.deepcopy(module)), cross_entropy).gradient(weights, x, y), 0)


def test_targets_may_be_probabilities():
    module, shape = CHAINS["mlp"]
    weights, x, _ = problem(module, shape)
    y = torch.rand(5, 4, dtype=F64, generator=generator()).softmax(1)
    mine = backpropagation(copy.deepcopy(module), cross_entropy).gradient(weights, x, y)
    agree(mine, Autograd(Bound(copy.deepcopy(module)), cross_entropy).gradient(weights, x, y), 0)


def test_of_equal_values_the_first_is_the_largest():
    """All ties of four values out of two: where each gradient goes is torch's own answer."""
    cases = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 4)
    x = cases.t().reshape(2, 2, -1)[None].contiguous()  # (channels, height, width, batch)
    pooling = Pooling(x, x.shape)
    usual = x.movedim(-1, 0).clone().requires_grad_()
    y = nn.functional.max_pool2d(usual, 2)
    y.sum().backward()
    assert torch.equal(pooling.forward(x), y.detach().movedim(0, -1))
    assert torch.equal(pooling.backward(torch.ones(1, 1, 1, len(cases))), usual.grad.movedim(0, -1))


def test_a_tournament_lets_nan_win():
    players = torch.tensor([[1.0], [float("nan")], [3.0], [2.0]]).unbind()
    assert MaxPool(players[0], players[0].shape).forward(players).isnan().all()


def test_windows_add_up_to_the_transpose_of_cutting_them_out():
    """<cut(x), c> = <x, add_up(c)> for all x and c."""
    shape = torch.Size((2, 7, 9, 3))
    windows = Windows(torch.empty(0, dtype=F64), shape, (3, 2), (2, 3), (1, 2), first=False)
    x = torch.randn(shape, dtype=F64, generator=generator())
    columns = torch.randn(windows.columns.shape, dtype=F64, generator=generator(1))
    there = (windows.cut(x) * columns).sum()
    torch.testing.assert_close(there, (x * windows.add_up(columns)).sum(), rtol=1e-12, atol=1e-12)


def test_a_call_leaves_nothing_behind_for_the_next():
    module, shape = CHAINS["lenet5"]
    weights, x, y = problem(module, shape)
    used, fresh = (backpropagation(copy.deepcopy(module), cross_entropy) for _ in range(2))
    for size in (5, 3, 2, 4, 1, 5):  # more shapes than are kept
        used.gradient(-weights, x[:size].flip(0), y[:size])
    used.outputs(-weights, x)
    one, other = used.gradient(weights, x, y), fresh.gradient(weights, x, y)
    assert all(torch.equal(mine, its) for mine, its in zip(one, other, strict=True))


def test_outputs_are_the_module_s_and_stay():
    module, shape = CHAINS["lenet5"]
    weights, x, _ = problem(module, shape)
    chain = backpropagation(copy.deepcopy(module), cross_entropy)
    outputs = chain.outputs(weights, x)
    chain.outputs(-weights, x)
    torch.testing.assert_close(outputs, Autograd(Bound(module), cross_entropy).outputs(weights, x))


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


def with_a_parameter_of_its_own():
    module = nn.Sequential(nn.Linear(6, 3))
    module.register_parameter("idle", nn.Parameter(torch.ones(2)))
    return module


STRANGERS = {
    "a derived layer": lambda: nn.Sequential(Doubled(6, 3)),
    "a derived chain": lambda: Skipping(nn.Linear(6, 6)),
    "a hook": hooked,
    "another forward": patched,
    "a layer twice": shared,
    "weight norm": lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(6, 3))),
    "an unknown layer": lambda: nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6)),
    "units in place": lambda: nn.Sequential(nn.Linear(6, 3), nn.ELU(inplace=True)),
    "a layer alone": lambda: nn.Bilinear(6, 6, 3),
}


@pytest.mark.parametrize("name", STRANGERS)
def test_modules_that_do_more_than_their_layers_go_to_autograd(name):
    with torch.random.fork_rng(devices=[]):
        assert isinstance(backpropagation(STRANGERS[name](), cross_entropy), Autograd)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(2, 2, 3, groups=2),
        nn.Conv2d(2, 2, 3, dilation=2),
        nn.Conv2d(2, 2, 3, padding="same"),
        nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular"),
        nn.Conv2d(16, 8, 3),
        nn.MaxPool2d(3),
        nn.MaxPool2d(2, stride=1),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.MaxPool2d(2, padding=1),
        nn.Flatten(2),
    ],
    ids=str,
)
def test_layers_in_ways_that_are_not_written_out_go_to_autograd(layer):
    module = nn.Sequential(layer, nn.Flatten(), nn.Linear(4, 3))
    assert isinstance(backpropagation(module, cross_entropy), Autograd)


def test_extra_parameters_of_a_layer_have_gradient_zero():
    module = nn.Sequential(nn.Linear(6, 3))
    module[0].idle = nn.Parameter(torch.ones(2))
    _, mine, its = both(module, (6,))
    agree(mine, its, 1e-12)
    assert torch.equal(mine[0][-2:], torch.zeros(2, dtype=F64))


def test_inputs_that_do_not_fit_the_stages_go_to_autograd():
    rows = nn.Sequential(nn.Linear(6, 5), nn.Flatten(), nn.Linear(10, 3))  # a full layer on each of two rows
    fits, mine, its = both(rows, (2, 6))
    assert not fits
    agree(mine, its, 0)


@pytest.mark.parametrize("x", [torch.zeros(5, 1, 20, 20), torch.zeros(5, 3, 28, 28), torch.zeros(5, 1, 28, 28).int()])
def test_bad_inputs_get_torch_s_own_message(x):
    module, _ = CHAINS["lenet5"]
    module = copy.deepcopy(module).float()
    weights = flatten(module.parameters()).detach()
    with pytest.raises(RuntimeError):
        backpropagation(module, cross_entropy).gradient(weights, x, torch.zeros(5, dtype=torch.int64))
