"""Gradients in the background are those of a call that waits, in any thread and order."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from laggard.models import MLP, Augmentation, Supervised, synthetic, synthetic_images
from laggard.models.backends.background import BackgroundGradients
from laggard.models.losses import CrossEntropyLoss

ROWS = 4


class Jobs:
    """Jobs that note their thread, and begin in the one thread only after `begin` is set."""

    def __init__(self, wrong=None, members=1):
        self.by, self.begin, self.began, self.wrong = (
            {},
            threading.Event(),
            threading.Event(),
            wrong,
        )
        self.gradients, self.losses = torch.zeros(ROWS, 3), torch.zeros(ROWS)
        self.executor = ThreadPoolExecutor(1)
        self.call = BackgroundGradients(
            self.executor, self.job, range(ROWS), self.gradients, self.losses, members
        )

    def job(self, row):
        mine = threading.current_thread() is threading.main_thread()
        if not mine:
            self.began.set()
            assert self.begin.wait(10)
        assert row not in self.by
        if row == self.wrong:
            raise MemoryError("no memory")
        self.by[row] = "caller" if mine else "thread"
        self.gradients[row], self.losses[row] = float(row), -float(row)

    def end(self):
        self.begin.set()
        self.executor.shutdown(wait=True)


@pytest.fixture
def jobs(request):
    made = Jobs(**getattr(request, "param", {}))
    yield made
    made.end()


def test_caller_computes_rows_that_no_thread_began(jobs):
    """The thread stays at row 0: row 2 is computed by its caller, who then waits for row 0 and
    computes 1 and 3.
    """
    assert jobs.began.wait(10)
    assert jobs.call.result(2)[0].tolist() == [[2.0] * 3]
    assert jobs.by == {2: "caller"}
    threading.Timer(0.2, jobs.begin.set).start()
    assert jobs.call.result(0)[1].tolist() == [0.0]
    assert jobs.by == {2: "caller", 1: "caller", 3: "caller", 0: "thread"}


def test_caller_takes_rows_of_threads(jobs):
    jobs.end()
    assert [float(jobs.call.result(row)[1]) for row in range(ROWS)] == [0.0, -1.0, -2.0, -3.0]
    assert set(jobs.by.values()) == {"thread"}


@pytest.mark.parametrize("jobs", [{"members": 2}], indirect=True)
def test_gradient_has_rows_of_its_members(jobs):
    jobs.begin.set()
    gradients, losses = jobs.call.result(1)
    assert (gradients.tolist(), losses.tolist()) == ([[2.0] * 3, [3.0] * 3], [-2.0, -3.0])


def test_cancelled_call_computes_only_requested_rows(jobs):
    assert jobs.began.wait(10)
    jobs.call.cancel()
    jobs.end()
    assert jobs.by == {0: "thread"}
    assert float(jobs.call.result(3)[1]) == -3.0
    assert jobs.by == {0: "thread", 3: "caller"}


@pytest.mark.parametrize("jobs", [{"wrong": 0}, {"wrong": 3}], indirect=True)
def test_error_is_raised_at_each_request(jobs):
    """It occurs in the thread, which begins with row 0, and in its caller."""
    assert jobs.began.wait(10)
    jobs.begin.set()
    for row in {1, 2} if jobs.wrong == 0 else ():
        assert jobs.call.result(row)
    for _ in range(2):
        with pytest.raises(MemoryError):
            jobs.call.result(jobs.wrong)


def task(backend_dtype=torch.float32, threads=2, **given):
    data = synthetic(samples=60, features=6, classes=3)
    return Supervised(
        MLP(hidden=(5,)).build, data, 8, device="cpu", threads=threads, dtype=backend_dtype, **given
    )


def asked(task, members, seed=0):
    torch.manual_seed(seed)
    weights = torch.randn(3, members, task.params, dtype=task.dtype)
    return weights, [torch.randint(60, (8,)) for _ in range(3)]


def test_only_compiled_gradients_run_in_background():
    """Other gradients would hold the interpreter's lock: torch computes regularisers, augmentation
    and dropout.
    """
    assert task().submit(*asked(task(), 1)) is not None
    loss = CrossEntropyLoss(regularizer=0.1)
    for other in (task(threads=1), task(torch.float64), task(backend="vmap"), task(loss=loss)):
        assert other.submit(*asked(other, 1)) is None
    images = synthetic_images(samples=60, size=4)
    varied = Supervised(
        MLP(hidden=(5,)).build, images, 8, augment=Augmentation(flip=True), device="cpu", threads=2
    )
    assert varied.submit(*asked(varied, 1)) is None


def test_indices_out_of_range_are_refused():
    given = task()
    weights, batches = asked(given, 1)
    batches[2][7] = 60
    with pytest.raises(IndexError, match="index 60: expected 0 to 59"):
        given.submit(weights, batches)
