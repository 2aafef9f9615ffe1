"""The LSTM is that of its equations, and learns a language."""

import pytest
import torch

from laggard.models import LSTM, Supervised, characters
from laggard.models.flat import flatten

POSITIONS, CLASSES, WIDTH = 9, 27, 6


def by_the_equations(module, x):
    """c = sigmoid(f) c + sigmoid(i) tanh(g), h = sigmoid(o) tanh(c), from c = h = 0; then the
    logits of every h.
    """
    embedding, *layers, logits = module
    vectors = embedding.weight[x.long()]
    for layer in layers:
        h = c = torch.zeros(len(x), WIDTH, dtype=torch.float64)
        outputs = []
        for at in range(x.shape[1]):
            gates = (
                vectors[:, at] @ layer.weight_ih_l0.T + layer.bias_ih_l0 + h @ layer.weight_hh_l0.T
            )
            i, f, g, o = (gates + layer.bias_hh_l0).split(WIDTH, dim=1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            outputs.append(h)
        vectors = torch.stack(outputs, dim=1)
    return vectors @ logits.weight.T + logits.bias


# vmap calls torch's LSTM once for each model, with a warning: there is no batching rule for it
@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("backend", ["threads", "vmap"])
def test_gradient_matches_equations(depth, backend):
    data = characters(samples=30, positions=POSITIONS, words=20)
    network = LSTM(WIDTH, depth)
    task = Supervised(
        network.build, data, 5, backend=backend, dtype=torch.float64, threads=1, device="cpu"
    )
    weights = task.start([3, 4])
    batch = torch.arange(5)
    gradients, losses = task.gradients(weights[None], [batch])
    for member, row in enumerate(weights):
        module = network.build((POSITIONS,), CLASSES).double()
        torch.nn.utils.vector_to_parameters(row, module.parameters())
        log = by_the_equations(module, data.train_x[batch].double()).log_softmax(-1)
        loss = -log.gather(-1, data.train_y[batch].unsqueeze(-1)).mean()
        expected = flatten(torch.autograd.grad(loss, tuple(module.parameters())))
        torch.testing.assert_close(gradients[0, member], expected, rtol=1e-12, atol=1e-12)
        assert losses[0, member].item() == pytest.approx(loss.item(), rel=1e-12)


def test_batched_evaluation_matches_each_model():
    data = characters(samples=30, positions=POSITIONS, words=20)
    alone, batched = (
        Supervised(
            LSTM(WIDTH).build,
            data,
            5,
            backend=backend,
            dtype=torch.float64,
            threads=1,
            device="cpu",
        )
        for backend in ("threads", "vmap")
    )
    weights = alone.start([3, 4])
    for name, measured in alone.evaluate(weights).items():
        torch.testing.assert_close(
            batched.evaluate(weights)[name], measured, rtol=1e-12, atol=1e-12
        )
