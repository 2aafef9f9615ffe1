"""A module whose output is more than a function of its parameters and its input is refused,
whatever it does.
"""

import pytest
import torch
from torch import nn

from laggard.models import Supervised, synthetic
from laggard.models.layers import describe_module

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


STATE = {
    "in place": (
        lambda: Counting(in_place=True),
        r"Counting changes buffers in its forward pass \(calls\), but",
    ),
    "by a new one": (
        lambda: Counting(in_place=False),
        r"Counting changes buffers .*\(calls\).*: use BatchNorm, or a ",
    ),
    "instance norm": (
        lambda: nn.Sequential(
            nn.Unflatten(1, (2, 3)),
            nn.InstanceNorm1d(2, track_running_stats=True),
            nn.Flatten(),
            nn.Linear(6, 3),
        ),
        r"changes buffers .*\(1\.running_mean, 1\.running_var\).* such as GroupNorm",
    ),
    "alpha dropout": (
        lambda: nn.Sequential(nn.Linear(6, 3), nn.AlphaDropout(0.1), nn.AlphaDropout(0.0)),
        r"Sequential draws random numbers in its forward pass \(1\), but .* out, or draw them by nn.Dropout",
    ),
    "dropout in a function": (
        lambda: Noisy(lambda x: nn.functional.dropout(x, 0.5)),
        "Noisy draws random numbers in its forward pass, but",
    ),
    "noise": (lambda: Noisy(torch.randn_like), "Noisy draws random numbers in its forward pass"),
    "dropout of attention": (Attending, "Attending draws random numbers in its forward pass"),
    "dropout beside noise": (
        lambda: nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.1), Noisy(torch.rand_like)),
        "Sequential draws random numbers in its forward pass, but",
    ),
}


@pytest.mark.parametrize("what", STATE)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_state_beside_the_parameters_is_refused_by_name(what, device):
    make, message = STATE[what]
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
        lambda: nn.Sequential(
            nn.Unflatten(1, (2, 3)), nn.InstanceNorm1d(2), nn.Flatten(), nn.Linear(6, 3)
        ),
    ],
)
@pytest.mark.parametrize("backend", ["threads", "vmap"])
def test_buffers_that_stay_and_dropout_of_nothing_are_taken(make, backend):
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
    module = make().double()
    nn.utils.vector_to_parameters(weights[0], module.parameters())
    loss = nn.functional.cross_entropy(module(DATA.train_x[:4].double()), DATA.train_y[:4])
    assert losses[0, 0].item() == pytest.approx(loss.item(), rel=1e-12)
    assert task.evaluate(weights)["test_loss"].isfinite().all()


class Pair(nn.Linear):
    def forward(self, x):
        return super().forward(x), x


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: nn.Linear(6, 2),
            r"Linear: expected 3 logits, a number for each class, got \(2, 2\) for 2 inputs",
        ),
        (lambda: nn.Flatten(0), r"Flatten: expected 3 logits, .*, got \(12,\) for 2 inputs"),
        (lambda: Pair(6, 3), "Pair: expected a tensor as output, got tuple"),
    ],
)
def test_what_gives_no_logits_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        describe_module(make(), DATA.shape, DATA.classes)
