"""Runs that start from weights in a file: what they start from, and what they then do."""

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from laggard import ConfigError, load, run, sweep
from laggard.experiments.config.grid import runs
from laggard.models import MLP, Quadratic, Supervised, synthetic
from laggard.simulator.timing.streams import BATCHES, stream

NETWORK = """\
# A small network.
cluster: {workers: 2, compute: {law: gamma, mean: 0.01, cv: 0.3}}
algorithm: async_ps
task: {model: mlp, hidden: [5], dataset: {name: synthetic, samples: 100, features: 4}, batch: 10, dtype: float64}
learning: {lr: 0.3}
stop: {updates: 20}
evaluate: {every_updates: 10}
"""
EXACT = "task={model: quadratic, dim: 3, condition: 10}"  # a full batch: without noise


def weights(result):
    return f"task.initial_file={result.path / 'weights.safetensors'}"


@pytest.mark.parametrize("algorithm", ["sync_ps", "{name: all_reduce, collective: ring}", "dpsgd"])
def test_two_warm_runs_equal_one_long_run(ran, algorithm):
    """SGD on a noiseless quadratic has no state beside the weights; the mean of two equal models
    is exact.
    """
    given = [EXACT, f"algorithm={algorithm}", "cluster.workers=2", "sweep.learning.lr=[0.1, 0.2]"]
    first = ran(*given, "stop.updates=7")
    second = ran(*given, "stop.updates=9", weights(first))
    both = ran(*given, "stop.updates=16")
    assert torch.equal(second.weights, both.weights)
    assert not torch.equal(second.weights[0], second.weights[1])


def test_state_dict_of_torch_starts_a_run(toy, tmp_path):
    """Torch's layers and optimiser run plain SGD from the same state_dict on the same mini-
    batches.
    """
    data = synthetic(samples=100, features=4)
    torch.manual_seed(3)
    module = MLP(hidden=[5]).build(data.shape, data.classes).double()
    save_file(module.state_dict(), tmp_path / "start.safetensors")
    given = [
        f"task.initial_file={tmp_path / 'start.safetensors'}",
        "cluster.workers=1",
        "algorithm=sync_ps",
    ]
    result = run(load(toy(text=NETWORK), *given), tmp_path)
    batches = Supervised(MLP(hidden=[5]).build, data, batch=10).batches(0, [stream(0, BATCHES, 0)])
    optimizer = torch.optim.SGD(module.parameters(), lr=0.3)
    for _ in range(20):
        index = next(batches)
        optimizer.zero_grad()
        nn.functional.cross_entropy(
            module(data.train_x[index].double()), data.train_y[index]
        ).backward()
        optimizer.step()
    expected = torch.cat([parameter.detach().flatten() for parameter in module.parameters()])
    torch.testing.assert_close(result.weights[0], expected, rtol=1e-12, atol=1e-12)


def test_members_start_from_one_or_own_models(toy, tmp_path):
    path = toy()
    grid = run(load(path, "sweep.learning.lr=[0.1, 0.2]", "sweep.learning.seed=[0, 1]"), tmp_path)
    alone = run(load(path), tmp_path)
    each = run(
        load(path, weights(grid), "sweep.learning.lr=[0.3, 0.4, 0.5, 0.6]", "stop.updates=1"),
        tmp_path,
    )
    same = run(
        load(path, weights(alone), "sweep.learning.lr=[0.3, 0.4]", "stop.updates=1"), tmp_path
    )
    ends = grid.metrics.groupby("member")["test_loss"].last().tolist()
    assert each.metrics["test_loss"][:4].tolist() == ends
    assert len(set(ends)) == 4
    assert same.metrics["test_loss"][:2].tolist() == [alone.metrics["test_loss"].iloc[-1]] * 2


def test_files_are_swept_and_identified_by_content(toy, tmp_path):
    path = toy()
    for name, value in (("a", 1.0), ("b", 2.0), ("moved", 1.0)):
        save_file({"weights": torch.full((1, 3), value)}, tmp_path / name)
    results = sweep(
        load(path, f"sweep.task.initial_file=[{tmp_path / 'a'}, {tmp_path / 'b'}]"),
        tmp_path,
        jobs=1,
    )
    assert runs(load(path, f"task.initial_file={tmp_path / 'moved'}"))[0].id == results.names[0]
    losses = [result.metrics["test_loss"].iloc[0] for result in results]
    assert losses[1] == pytest.approx(4 * losses[0])  # twice as far from the optimum 0
    assert (
        losses[0] == Quadratic(dim=3, condition=10).evaluate(torch.ones(1, 3))["test_loss"].item()
    )


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"x": torch.zeros(48)}, "expected the model's 49 parameters"),
        ({"weights": torch.zeros(3, 49)}, "expected one model, or one for each of the 2 members"),
        (None, "expected a safetensors file"),
    ],
)
def test_invalid_initial_weights_are_refused(toy, tmp_path, tensors, message):
    path, file = toy(text=NETWORK), tmp_path / "start"
    file.write_text("no tensors")
    if tensors is not None:
        save_file(tensors, file)
    words = f"task.initial_file={file}", "sweep.learning.lr=[0.1, 0.2]"
    with pytest.raises(ConfigError) as caught:
        load(path, *words)
    assert str(caught.value).startswith(f"{path}: task.initial_file: {message}")
    assert f", got {file} with " in str(caught.value)
    file.unlink()
    with pytest.raises(ConfigError, match=r"task\.initial_file: expected a file that can be read"):
        load(path, *words)
