"""A vector and a module are one model, and both backends take its gradients: one each, whatever the
company.
"""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from laggard.models import MLP, LeNet5
from laggard.models.backends.batched import Batched, find_device
from laggard.models.backends.chunked import Chunked
from laggard.models.backends.threads import Threads
from laggard.models.flat import Bound, flatten, shapes, unflatten

SAMPLES, BATCH, MODELS = 40, 5, 6
SMALL = MLP(hidden=(7,))


def problem(network=SMALL, shape=(5,), dtype=torch.float64):
    """A module, `MODELS` rows of weights, inputs, labels, and a mini-batch of indices per model."""
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        module = network.build(shape, 10).to(dtype)
    start = flatten(module.parameters()).detach()
    weights = start + 0.05 * torch.randn(MODELS, len(start), generator=generator, dtype=dtype)
    x = torch.randn(SAMPLES, *shape, generator=generator, dtype=dtype)
    y = torch.randint(10, (SAMPLES,), generator=generator)
    index = torch.randint(SAMPLES, (MODELS, BATCH), generator=generator)
    return module, weights, x, y, index


def test_flatten_and_unflatten_are_inverse():
    module = LeNet5().build((1, 28, 28), 10)
    flat = flatten(module.parameters()).detach()
    views = unflatten(flat, shapes(module))
    assert flat.shape == (61_706,)
    assert all(
        torch.equal(view, parameter)
        for view, parameter in zip(views, module.parameters(), strict=True)
    )
    assert torch.equal(flatten(views), flat)
    assert views[3].untyped_storage().data_ptr() == flat.untyped_storage().data_ptr()


def test_shapes_that_do_not_add_up_are_refused():
    with pytest.raises(RuntimeError):
        unflatten(torch.zeros(5), [torch.Size([2]), torch.Size([2])])


def test_a_bound_module_stands_for_the_row_it_loaded():
    module, weights, x, *_ = problem()
    bound = Bound(module)
    assert torch.equal(flatten(bound.load(weights[1]).parameters()), weights[1])
    assert not torch.equal(bound.load(weights[1])(x), bound.load(weights[2])(x))


@pytest.mark.parametrize("backend", [Threads, Batched])
def test_the_gradient_is_plain_autograd_of_the_module(backend):
    module, weights, x, y, index = problem()
    gradients, losses = backend(module, cross_entropy).gradients(weights, x, y, index)
    for row in range(MODELS):
        nn.utils.vector_to_parameters(weights[row], module.parameters())
        loss = cross_entropy(module(x[index[row]]), y[index[row]])
        plain = flatten(torch.autograd.grad(loss, tuple(module.parameters())))
        torch.testing.assert_close(gradients[row], plain, rtol=0, atol=1e-12)
        torch.testing.assert_close(losses[row], loss.detach(), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
def test_threads_and_one_batched_call_agree(dtype, tolerance):
    module, weights, x, y, index = problem(LeNet5(), (1, 28, 28), dtype)
    one, other = (
        Threads(module, cross_entropy, threads=2),
        Chunked(Batched(module, cross_entropy), most=2),
    )
    pairs = zip(*(backend.gradients(weights, x, y, index) for backend in (one, other)), strict=True)
    for threads, batched in pairs:
        torch.testing.assert_close(threads, batched, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(
        one.outputs(weights, x), other.outputs(weights, x), rtol=tolerance, atol=tolerance
    )


# An odd number of parameters lets rows of a stack begin at every alignment, on which last digits
# depend.
ODD = (MLP(hidden=(37,)), (6,), torch.float64)


@pytest.mark.parametrize(
    "network", [ODD, (LeNet5(), (1, 28, 28), torch.float32)], ids=["mlp", "lenet5"]
)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_model_s_gradient_does_not_depend_on_its_company(network, threads):
    module, weights, x, y, index = problem(*network)
    together = Threads(module, cross_entropy, threads).gradients(weights, x, y, index)
    alone = Threads(module, cross_entropy, threads=1)
    for row in range(MODELS):
        gradient, loss = alone.gradients(weights[row : row + 1].clone(), x, y, index[row : row + 1])
        assert torch.equal(gradient[0], together[0][row])
        assert torch.equal(loss[0], together[1][row])


@pytest.mark.parametrize("backend", [Threads, Batched])
def test_outputs_are_in_the_order_of_models_and_samples(backend):
    module, weights, *_ = problem()
    # three chunks
    x = torch.randn(600, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    outputs = backend(module, cross_entropy).outputs(weights, x)
    nn.utils.vector_to_parameters(weights[3], module.parameters())
    torch.testing.assert_close(outputs[3], module(x).detach(), rtol=0, atol=1e-12)
    assert outputs.shape == (MODELS, 600, 10)


def test_gradients_are_taken_under_no_grad_too():
    module, weights, x, y, index = problem()
    with torch.no_grad():
        gradients, _ = Threads(module, cross_entropy, threads=1).gradients(weights, x, y, index)
    assert gradients.abs().sum() > 0


def test_a_parameter_that_the_loss_never_sees_has_gradient_zero():
    module = nn.Linear(5, 10).to(torch.float64)
    module.idle = nn.Parameter(torch.ones(3, dtype=torch.float64))
    weights = flatten(module.parameters()).detach().repeat(2, 1)
    *_, x, y, index = problem()
    for backend in (Threads(module, cross_entropy), Batched(module, cross_entropy)):
        gradients, _ = backend.gradients(weights, x, y, index[:2])
        assert torch.equal(
            unflatten(gradients[0], shapes(module))[-1], torch.zeros(3, dtype=torch.float64)
        )


def test_devices_and_threads_that_are_not_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert find_device("auto") == torch.device("cpu")
    with pytest.raises(ValueError, match="no GPU"):
        find_device("cuda")
    with pytest.raises(ValueError, match="'tpu'"):
        find_device("tpu")
    with pytest.raises(ValueError, match="threads = 0"):
        Threads(nn.Linear(1, 1), cross_entropy, threads=0)
