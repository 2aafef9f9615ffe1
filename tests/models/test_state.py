"""A module whose output is more than a function of its parameters and its input is refused,
whatever it does.
"""

import pytest
import torch
from torch import nn

from laggard.models import Supervised, synthetic
from laggard.models.layers import describe_module
from tests.models.plain import gradient_by_torch

DATA = synthetic(samples=40, features=6, classes=3)


class Counting(nn.Module):
    """It counts its calls in a buffer, in place or by a new one."""

    def __init__(self, in_place):
        super().__init__()
        self.full, self.in_place = nn.Linear(6, 3), in_place
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        if self.in_place:
            self.calls += 1
        else:
            self.calls = self.calls + 1
        return self.full(x) / self.calls


class Scaled(nn.Module):
    """A buffer that stays what it was, and one of whole numbers."""

    def __init__(self):
        super().__init__()
        self.full = nn.Linear(6, 3)
        self.register_buffer("scale", torch.tensor([1.0, 2.0, 3.0]))
        self.register_buffer("order", torch.tensor([2, 0, 1, 5, 4, 3]))

    def forward(self, x):
        return self.full(x[:, self.order]) * self.scale


class Noisy(nn.Module):
    def __init__(self, draw):
        super().__init__()
        self.full, self.draw = nn.Linear(6, 3), draw

    def forward(self, x):
        return self.full(x) + self.draw(x)[..., :3]


class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.full = (
            nn.MultiheadAttention(6, 2, dropout=0.1, batch_first=True),
            nn.Linear(6, 3),
        )

    def forward(self, x):
        x = x[:, None]
        return self.full(self.attention(x, x, x)[0][:, 0])


def instance_norm(**settings):
    norm = nn.InstanceNorm1d(2, **settings)
    return nn.Sequential(nn.Unflatten(1, (2, 3)), norm, nn.Flatten(), nn.Linear(6, 3))


BUFFERS, RANDOM = "changes buffers in its forward pass", "draws random numbers in its forward pass"
STATE = {
    "in place": (lambda: Counting(in_place=True), rf"Counting {BUFFERS} \(calls\)"),
    "by a new one": (lambda: Counting(in_place=False), rf"Counting {BUFFERS} \(calls\)"),
    "instance norm": (
        lambda: instance_norm(track_running_stats=True),
        rf"{BUFFERS} \(1\.running_mean, 1\.running_var\)",
    ),
    "alpha dropout": (
        lambda: nn.Sequential(nn.Linear(6, 3), nn.AlphaDropout(0.1), nn.AlphaDropout(0.0)),
        rf"Sequential {RANDOM} \(1\)",
    ),
    "dropout in a function": (
        lambda: Noisy(lambda x: nn.functional.dropout(x, 0.5)),
        f"Noisy {RANDOM}",
    ),
    "noise": (lambda: Noisy(torch.randn_like), f"Noisy {RANDOM}"),
    "dropout of attention": (Attending, f"Attending {RANDOM}"),
    "dropout beside noise": (
        lambda: nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.1), Noisy(torch.rand_like)),
        f"Sequential {RANDOM}",
    ),
}


@pytest.mark.parametrize("name", STATE)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_state_beside_parameters_is_refused(name, device):
    make, message = STATE[name]
    with torch.device(device):
        module = make()
    before = torch.get_rng_state()
    with pytest.raises(ValueError, match=message):
        describe_module(module, DATA.shape, DATA.classes)
    assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(ValueError, match=message):
        Supervised(lambda shape, classes: make(), DATA, batch=4)


@pytest.mark.parametrize(
    "make",
    [
        Scaled,
        lambda: nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.0)),
        lambda: nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.5).eval()),
        lambda: nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)),
        instance_norm,
    ],
)
@pytest.mark.parametrize("backend", ["threads", "vmap"])
def test_constant_buffers_and_idle_dropout_are_accepted(make, backend):
    task = Supervised(
        lambda shape, classes: make(),
        DATA,
        4,
        backend=backend,
        dtype=torch.float64,
        threads=1,
        device="cpu",
    )
    weights = task.start([0, 0])
    gradients, losses = task.gradients(weights[None], [torch.arange(4)])
    assert torch.equal(gradients[0, 0], gradients[0, 1])
    x, y = DATA.train_x[:4].double(), DATA.train_y[:4]
    expected, loss = gradient_by_torch(make().double(), weights[0], x, y)
    torch.testing.assert_close(gradients[0, 0], expected, rtol=1e-10, atol=1e-10)
    assert losses[0, 0].item() == pytest.approx(loss.item(), rel=1e-12)
    assert task.evaluate(weights)["test_loss"].isfinite().all()


class Pair(nn.Linear):
    def forward(self, x):
        return super().forward(x), x


@pytest.mark.parametrize(
    ("module", "text"),
    [
        (nn.Linear(6, 2), r"Linear: expected 3 logits, .* got \(2, 2\)"),
        (nn.Sequential(nn.Linear(6, 6), nn.Flatten(0)), r"expected 3 logits, .*, got \(12,\)"),
        (Pair(6, 3), "Pair: expected a tensor as output, got tuple"),
    ],
)
def test_output_without_logits_is_refused(module, text):
    with pytest.raises(ValueError, match=text):
        describe_module(module, DATA.shape, DATA.classes)
