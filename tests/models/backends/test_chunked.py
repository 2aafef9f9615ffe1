"""Calls in pieces: the same rows in the same order, within the memory that is free, whatever runs
short.
"""

import pytest
import torch

from laggard.models.backends.chunked import Chunked

PARAMS, BATCH, SAMPLES = 3, 2, 600
EACH = 100  # bytes that a model takes here


class Echo:
    """A backend whose answers tell which rows were asked for, on a device with little room."""

    lanes, name = 7, "echo"

    def __init__(self, room=10**9):
        self.room, self.calls, self.taken = room, [], 0

    def gradients(self, weights, x, y, index):
        self._take(len(weights))
        return weights + index.sum(1, keepdim=True), weights[:, 0]

    def outputs(self, weights, x):
        self._take(len(weights))
        return weights[:, None, :] + x[None, :, None]

    def _take(self, models):
        self.calls.append(models)
        self.taken = models * EACH
        if self.taken > self.room:
            raise torch.OutOfMemoryError("no room")


class Gauge:
    """The memory that the echo takes, and the free memory that it reports."""

    def __init__(self, echo, free):
        self.echo, self.stated, self.asked, self.released = echo, free, 0, 0

    def free(self):
        self.asked += 1
        return self.stated

    def peak(self, call):
        answer = call()
        return answer, self.echo.taken

    def release(self):
        self.released += 1


def ask(chunked, models):
    """Make a call for a number of models, and check its answer."""
    weights = torch.arange(models * PARAMS, dtype=torch.float64).reshape(models, PARAMS)
    index = torch.arange(models * BATCH).reshape(models, BATCH)
    gradients, losses = chunked.gradients(weights, torch.zeros(1), torch.zeros(1), index)
    assert torch.equal(gradients, weights + index.sum(1, keepdim=True))
    assert torch.equal(losses, weights[:, 0])


def measured(room, free):
    echo = Echo(room)
    gauge = Gauge(echo, free)
    return Chunked(echo, memory=gauge), echo, gauge


def test_pieces_take_half_of_free_memory():
    chunked, echo, _ = measured(room=10**9, free=200 * EACH)
    ask(chunked, 1000)
    first, *others = echo.calls
    assert first <= 32
    assert max(others) <= 100
    assert max(others) - min(others) <= 1  # few sizes, few recordings
    assert sum(echo.calls) == 1000
    assert len(others) <= 11


def test_size_that_fitted_is_not_measured_again():
    chunked, echo, gauge = measured(room=10**9, free=10**9)
    for _ in range(3):
        ask(chunked, 528)
    before, calls = gauge.asked, len(echo.calls)
    ask(chunked, 528)
    assert gauge.asked == before  # the driver takes its time
    assert echo.calls[calls:] == [528]


@pytest.mark.parametrize("room", [1, 5, 31, 32, 100])
def test_pieces_are_halved_when_memory_runs_out(room):
    chunked, _, gauge = measured(room=room * EACH, free=10**9)
    ask(chunked, 300)
    assert gauge.released >= 1
    failures = gauge.released
    ask(chunked, 300)
    assert gauge.released == failures  # what was too much is not tried again


def test_error_is_raised_where_no_model_fits():
    chunked, _, _ = measured(room=EACH - 1, free=10**9)
    with pytest.raises(torch.OutOfMemoryError):
        ask(chunked, 4)


def test_other_batch_size_is_measured_again():
    chunked, echo, gauge = measured(room=10**9, free=10**9)
    ask(chunked, 64)
    asked = gauge.asked
    chunked.gradients(
        torch.zeros(64, PARAMS),
        torch.zeros(1),
        torch.zeros(1),
        torch.zeros(64, 5, dtype=torch.long),
    )
    assert gauge.asked > asked or echo.calls[-1] <= 32


def test_given_bound_is_kept():
    echo = Echo()
    ask(Chunked(echo, most=7), 30)
    assert max(echo.calls) <= 7
    with pytest.raises(ValueError, match="chunk = 0"):
        Chunked(echo, most=0)


@pytest.mark.parametrize("memory", [False, True])
def test_outputs_keep_order_of_models_and_samples(memory):
    echo = Echo(room=20 * EACH)
    chunked = Chunked(
        echo, memory=Gauge(echo, 10**9) if memory else None, most=None if memory else 9
    )
    weights, x = torch.rand(50, PARAMS), torch.rand(SAMPLES)
    assert torch.equal(chunked.outputs(weights, x), weights[:, None, :] + x[None, :, None])
    assert chunked.lanes == 7
    assert chunked.name == "echo"


def test_measured_piece_is_not_recorded():
    plain, recorded = Echo(), Echo()
    recorded.unrecorded = plain
    chunked = Chunked(recorded, memory=Gauge(plain, 10**9))
    ask(chunked, 80)
    ask(chunked, 80)
    assert plain.calls == [27]  # of three equal pieces
    assert recorded.calls == [53, 80]


@pytest.mark.parametrize(("free", "passes"), [(10**9, 1), (2 * 40 * EACH, 3), (4 * 40 * EACH, 2)])
def test_evaluation_takes_samples_that_fit(free, passes):
    """A pass of 40 models takes 40 times `EACH` bytes for 250 samples, and half of what is free is
    for one pass.
    """
    echo = Echo()
    chunked = Chunked(echo, memory=Gauge(echo, free))
    weights, x = torch.rand(40, PARAMS), torch.rand(SAMPLES)
    expected = weights[:, None, :] + x[None, :, None]
    assert torch.equal(chunked.outputs(weights, x), expected)
    before = len(echo.calls)
    for _ in range(2):
        assert torch.equal(chunked.outputs(weights, x), expected)
    assert len(echo.calls) - before == 2 * passes
