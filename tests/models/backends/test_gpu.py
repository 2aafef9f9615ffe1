"""What only a GPU can show: recorded graphs, bounded memory, no waiting, the same bits twice."""

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from laggard.models import LeNet5, Supervised
from laggard.models.backends.batched import Batched
from laggard.models.backends.choice import BACKEND_NAMES, choose
from laggard.models.backends.chunked import Chunked, CudaMemory
from laggard.models.backends.graphs import Graphs
from laggard.models.backends.unfolded import Unfolded
from laggard.models.data import Dataset
from laggard.models.flat import flatten
from laggard.simulator import Cluster, Evaluate, Rule, Stop, simulate
from laggard.simulator.algorithms import ALGORITHMS
from laggard.simulator.learning.rules import OPTIMIZERS

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="torch sees no GPU: what needs one was not tried"
)

GPU, CPU = torch.device("cuda"), torch.device("cpu")
SAMPLES, BATCH = 400, 16


def problem(models, device=GPU, dtype=torch.float32):
    """LeNet-5, rows of weights, pictures, labels, and a mini-batch of indices per model, on a
    device.
    """
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        module = LeNet5().build((1, 28, 28), 10).to(dtype)
    start = flatten(module.parameters()).detach()
    weights = start + 0.02 * torch.randn(models, len(start), generator=generator, dtype=dtype)
    x = torch.randn(SAMPLES, 1, 28, 28, generator=generator, dtype=dtype)
    y = torch.randint(10, (SAMPLES,), generator=generator)
    index = torch.randint(SAMPLES, (models, BATCH), generator=generator).int()
    return module.to(device), *(tensor.to(device) for tensor in (weights, x, y, index))


def distance(mine, reference):
    """The largest distance of a model's gradient from what it should be, over the length of that.

    Single numbers say little: sums have another order, and a ReLU near 0 may fall on its other
    side.
    """
    return ((mine - reference).norm(dim=1) / reference.norm(dim=1)).max()


@pytest.mark.parametrize("name", BACKEND_NAMES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_gradients_match_cpu(name, dtype, tolerance):
    """In float32 `vmap` agrees within 1e-3: gradients of grouped convolutions on an H100 differed
    by 2e-4, without TF32.
    """
    tolerance = 1e-3 if "vmap" in name and dtype == torch.float32 else tolerance
    module, *rest = problem(12, CPU, dtype)
    gradients, losses = choose("threads", module, cross_entropy, CPU, threads=1).gradients(*rest)
    module, *rest = problem(12, GPU, dtype)
    backend = choose(name, module, cross_entropy, GPU, threads=1)
    for _ in range(2):  # a graph is recorded, and replayed
        mine = backend.gradients(*rest)
        assert distance(mine[0].cpu(), gradients) <= tolerance
        torch.testing.assert_close(
            mine[1].cpu(), losses, rtol=min(tolerance, 1e-5), atol=min(tolerance, 1e-5)
        )
    assert backend.name in BACKEND_NAMES


@pytest.mark.parametrize(("kind", "tolerance"), [(Batched, 1e-2), (Unfolded, 1e-5)])
def test_replayed_graph_computes_new_values(kind, tolerance):
    """The new gradients differ from the recorded ones by at least a tenth."""
    module, weights, x, y, index = problem(24)
    graphs, plain = Graphs(kind(module, cross_entropy)), kind(module, cross_entropy)
    before = graphs.gradients(weights, x, y, index)[0]
    for shift, count in [(0.01, 24), (0.01, 23), (0.02, 5)]:
        mine = graphs.gradients(weights[:count] + shift, x, y, index[:count])
        its = plain.gradients(weights[:count] + shift, x, y, index[:count])
        assert distance(mine[0], its[0]) <= tolerance
        assert distance(before[:count], its[0]) >= 0.1
        torch.testing.assert_close(mine[1], its[1], rtol=1e-5, atol=1e-5)


def test_pieces_stay_within_free_memory():
    module, weights, x, y, index = problem(1000)
    backend = Unfolded(module, cross_entropy)
    backend.gradients(weights[:1], x, y, index[:1])  # libraries take what they need for good
    room, memory = 2**30, CudaMemory(GPU)
    memory.free = lambda: room
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    chunked, peaks = Chunked(backend, memory=memory), []
    plain = memory.peak

    def noted(call):
        answer, peak = plain(call)
        peaks.append(peak)
        return answer, peak

    memory.peak = noted
    gradients, _ = chunked.gradients(weights, x, y, index)
    assert gradients.shape == weights.shape
    assert torch.cuda.memory_allocated() >= before
    assert max(peaks) <= 0.6 * room
    assert max(peaks) >= 0.2 * room  # and no smaller than need be


def test_run_waits_for_gpu_only_at_evaluations():
    task, rule = (
        _task("unfold-graphs"),
        Rule(OPTIMIZERS["adam"](), lr=torch.tensor([[1e-3], [1e-2]]).double()),
    )
    warm = Stop(updates=40)
    method = ALGORITHMS["delayed"](rule, delay=7)
    simulate(Cluster(1), method, task, stop=warm, evaluate=Evaluate(every_epochs=99), ensemble=2)

    def strict(progress):
        torch.cuda.set_sync_debug_mode("error" if progress.updates < 40 else "default")

    try:
        given = {
            "stop": warm,
            "evaluate": Evaluate(every_epochs=99),
            "ensemble": 2,
            "watch": strict,
        }
        outcome = simulate(Cluster(1), method, task, **given)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert outcome.progress.updates == 40


def test_run_has_same_bits_twice():
    rule = Rule(OPTIMIZERS["sgd"](momentum=0.9), lr=0.01)
    given = {"stop": Stop(updates=20), "learning_seeds": [0, 1]}

    def learnt(backend, device):
        return simulate(
            Cluster(1), ALGORITHMS["delayed"](rule, 3), _task(backend, device), **given
        ).weights.cpu()

    one, other = learnt("unfold-graphs", "cuda"), learnt("unfold-graphs", "cuda")
    assert torch.equal(one, other)
    torch.testing.assert_close(one, learnt("threads", "cpu"), rtol=1e-3, atol=1e-4)


def _task(backend, device="cuda"):
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal((SAMPLES, 1, 28, 28))).float()
    y = torch.from_numpy(rng.integers(10, size=SAMPLES))
    return Supervised(
        LeNet5().build,
        Dataset("noise", x, y, x, y, 10),
        BATCH,
        device=device,
        backend=backend,
        threads=1,
    )
