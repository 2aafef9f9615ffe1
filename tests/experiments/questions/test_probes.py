"""Probes against recursions written out by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from laggard import load
from laggard.experiments.config.errors import ConfigError
from laggard.experiments.config.grid import RunSpec, runs
from laggard.experiments.questions import probes
from laggard.experiments.questions.probes import (
    expansions,
    fit_momentum,
    gradient_statistics,
    leaving,
    minima,
    momentum,
    run_probe,
)
from laggard.models import Logistic, Supervised, synthetic

DELAYED = """\
cluster: {workers: 1}
algorithm: {name: delayed, delay: 2}
task: {model: quadratic, curvature: 1.0}
learning: {lr: 0.1, compensation: {name: dc_asgd_c, strength: STRENGTH}}
stop: {updates: 12}
"""


def by_hand(strength, delay, lr=0.1, updates=12):
    """w <- w - lr (g + strength g^2 (w - w_read)) with g = w_read, and in each quarter the mean
    distances to g = w.
    """
    models, ours, theirs = [1.0], [], []
    for step in range(updates):
        now, read = models[step], models[max(0, step - delay)]
        corrected = read + strength * read**2 * (now - read)
        ours.append(abs(corrected - now))
        theirs.append(abs(read - now))
        models.append(now - lr * corrected)
    return [np.mean(ours[i : i + 3]) / np.mean(theirs[i : i + 3]) for i in range(0, updates, 3)]


def test_exact_hessian_gives_fresh_gradient_of_quadratic(toy, monkeypatch):
    """And the other forms those of the recursion along a run without compensation; g^2 is g g^T of
    one weight.
    """
    config = load(toy(text=DELAYED.replace("STRENGTH", "0.0")))
    monkeypatch.setattr("laggard.experiments.questions.probes.distances.EVERY", 1)
    rows = expansions(config, RunSpec(config).arguments())
    share = {(row["form"], row["strength"], row["quarter"]): row["number"] for row in rows}
    models = [1.0]
    for step in range(12):
        models.append(models[step] - 0.1 * models[max(0, step - 2)])
    late = [(models[step], models[max(0, step - 2)]) for step in range(9, 12)]
    for strength in (0.3, 3.0):
        ours = np.mean([abs(read + strength * read**2 * (now - read) - now) for now, read in late])
        expected = pytest.approx(ours / np.mean([abs(read - now) for now, read in late]), rel=1e-4)
        assert share["constant", strength, 4] == expected
        assert share["outer", strength, 4] == expected
    assert all(share["exact", 1.0, quarter] < 1e-5 for quarter in (1, 2, 3, 4))
    assert share["exact", 3.0, 4] == pytest.approx(2.0, rel=1e-4)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("delay", [0, 1, 4])
def test_quadratic_is_left_only_above_limit_of_theory(toy, delay, momentum):
    """The roots of z^(D+2) - (1 + m) z^(D+1) + m z^D + lr h z, not the formula by which the probe
    scales rates.
    """
    text = f"""\
cluster: {{workers: 1}}
algorithm: {{name: delayed, delay: {delay}}}
task: {{model: quadratic, curvature: [3.0, 1.0], dtype: float64}}
learning: {{lr: 1.0, momentum: {momentum}}}
stop: {{updates: 1}}
sweep: {{learning.lr: [0.97, 1.03]}}
"""
    config = load(toy(text=text))
    rows = leaving(config, RunSpec(config).arguments())
    found = {(row["of"], row["member"]): row["number"] for row in rows}
    assert found["sharpness", 0] == pytest.approx(3.0 + minima.DECAY, rel=1e-6)
    assert found["slope", 0] < 1e-6
    assert found["growth", 0] < 1 < found["growth", 1]


def test_grid_is_probed_once_and_keeps_its_axes(toy, tmp_path, monkeypatch):
    text = (
        DELAYED.replace("STRENGTH", "0.5")
        + "sweep: {algorithm.delay: [1, 2], learning.compensation.strength: [0.0, 2.0]}\n"
    )
    planned = runs(load(toy(text=text)))
    first = run_probe("closeness", planned, tmp_path)
    assert set(first.groupby(["delay", "strength", "quarter"]).size()) == {1}
    shares = first.set_index(["strength", "delay", "quarter"])["value"].sort_index()
    np.testing.assert_allclose(shares.loc[0.0], 1.0)
    for delay in (1, 2):
        np.testing.assert_allclose(shares.loc[2.0, delay], by_hand(2.0, delay), rtol=1e-4)
    assert set(first["device"]) == {"cpu"}
    # nothing is simulated again
    monkeypatch.setattr(probes, "PROBES", {})
    assert run_probe("closeness", planned, tmp_path).equals(first)


def test_member_that_diverges_is_lost(toy, tmp_path):
    text = DELAYED.replace("STRENGTH", "1.0").replace("updates: 12", "updates: 400")
    planned = runs(load(toy(text=text + "sweep: {learning.lr: [0.1, 30.0], seeds: 2}\n")))
    found = run_probe("closeness", planned, tmp_path)
    late = found[found["quarter"] == 4]
    assert late["lost"].tolist() == (late["lr"] == 30.0).tolist()


def test_heavy_ball_has_its_own_momentum():
    """w(t+1) = w(t) + 0.6 (w(t) - w(t-1)) - 0.4 w(t) + noise: autocovariances obey it from lag 1
    on.
    """
    rng = np.random.default_rng(1)
    models = np.zeros((20_000, 16))
    for t in range(1, len(models) - 1):
        step = 0.6 * (models[t] - models[t - 1]) - 0.4 * models[t]
        models[t + 1] = models[t] + step + rng.standard_normal(16)
    assert fit_momentum(models, 4) == pytest.approx(0.6, abs=0.02)


def test_delay_of_one_is_momentum_lr_times_curvature(toy):
    """w(t+1) = w(t) - a w(t-1) + noise is a heavy ball with mu = a, here 0.3: two workers that take
    turns.
    """
    text = """\
cluster: {workers: 2, compute: {law: constant, mean: 1.0}}
algorithm: {name: async_ps}
task: {model: quadratic, dim: 64, initial: 0.0, noise: 1.0}
learning: {lr: 0.3}
stop: {updates: 3000}
"""
    config = load(toy(text=text))
    (row,) = momentum(config, RunSpec(config).arguments())
    assert row["number"] == pytest.approx(0.3, abs=0.02)


def labels_of_the_model(data, weights):
    """Labels that a logistic regression of these weights gives the training set, at random by its
    own probabilities.
    """
    x = data.train_x.flatten(1).double()
    slopes, offsets = (
        weights[: -data.classes].unflatten(0, (data.classes, -1)),
        weights[-data.classes :],
    )
    chances = (x @ slopes.T + offsets).softmax(1)
    return torch.multinomial(chances, 1, generator=torch.Generator().manual_seed(1))[:, 0]


def logistic(data, batch):
    task = Supervised(Logistic().build, data, batch=batch, dtype=torch.float64)
    batches = task.batches(0, [np.random.default_rng(0)])
    return task, [next(batches) for _ in range(len(data.train_x) // batch)]


def test_fisher_matrix_of_own_labels_is_hessian():
    """E[g g^T] = E[H] for them (Zheng et al. 2017, section 3), and not for other labels."""
    data = synthetic(samples=6_000, features=4, classes=3)
    read, ahead = 3 * logistic(data, 1)[0].start([0]), 0.01 * logistic(data, 1)[0].start([1])
    numbers = []
    for labels in (labels_of_the_model(data, read[0]), data.train_y):
        task, batches = logistic(replace(data, train_y=labels), 1_000)
        numbers.append(gradient_statistics.measure_curvature(task, read, read + ahead, batches))
    own, other = numbers
    assert float(own["fisher"] / own["hessian"]) == pytest.approx(1.0, abs=0.08)
    assert float(own["cosine"]) > 0.99
    assert abs(float(other["fisher"] / other["hessian"]) - 1) > 0.3


def test_curvature_equals_second_differences_and_squared_slopes():
    task, batches = logistic(synthetic(samples=64, features=4), 8)
    read = task.start([0, 1])
    step = 1e-4 * task.start([2, 3])
    found = gradient_statistics.measure_curvature(task, read, read + step, batches)
    whole, singles = [torch.arange(64)], [torch.tensor([sample]) for sample in range(64)]
    ahead, behind = (
        task.gradients((read + sign * step)[None], whole)[0][0] for sign in (0.5, -0.5)
    )
    slopes = (task.gradients(read.expand(64, *read.shape).contiguous(), singles)[0] * step).sum(-1)
    of_batches = (task.gradients(read.expand(8, *read.shape).contiguous(), batches)[0] * step).sum(
        -1
    )
    np.testing.assert_allclose(found["hessian"], ((ahead - behind) * step).sum(-1), rtol=1e-5)
    np.testing.assert_allclose(found["fisher"], slopes.square().mean(0), rtol=1e-9)
    np.testing.assert_allclose(found["outer"], of_batches.square().mean(0), rtol=1e-9)


def test_variance_of_gradients_is_inverse_to_batch():
    """tr Cov(g_b) = tr Cov(g_i) / B, and squares of means less their own variance are those of the
    whole set.
    """
    data = synthetic(samples=4_000, features=4)
    task, batches = logistic(data, 8)
    read = task.start([0])
    now = read + 0.5 * task.start([1])
    found = gradient_statistics.measure_variation(task, read, now, batches)
    samples = torch.arange(4_000)
    single = task.gradients(read.expand(4_000, *read.shape).contiguous(), list(samples[:, None]))[0]
    before, after = (task.gradients(each[None], [samples])[0] for each in (read, now))
    assert float(found["variance"]) == pytest.approx(float(single.var(0).sum()) / 8, rel=0.1)
    assert float(found["signal"]) == pytest.approx(float(before.square().sum()), rel=0.02)
    assert float(found["change"]) == pytest.approx(float((after - before).square().sum()), rel=0.02)


def test_means_of_few_mini_batches_are_unbiased():
    """Where the whole gradient is 0, its square is 0 on average, though no mini-batch's is."""
    task, _ = logistic(synthetic(samples=400, features=4), 400)
    search, whole = task.start([0]), [torch.arange(400)]
    for _ in range(750):  # the square of the whole gradient is 1e-9 then
        search = search - task.gradients(search[None], whole)[0][0]
    task, _ = logistic(synthetic(samples=400, features=4), 4)
    batches = task.batches(0, [np.random.default_rng(0)])
    drawn = [[next(batches) for _ in range(8)] for _ in range(200)]
    found = [gradient_statistics.measure_variation(task, search, search, each) for each in drawn]
    signal, variance = (
        np.array([float(each[name]) for each in found]) for name in ("signal", "variance")
    )
    assert abs(signal.mean()) < 4 * signal.std() / np.sqrt(len(signal))
    assert abs(signal.mean()) < 0.2 * variance.mean() / 8


def test_measured_models_are_sixteen_updates_apart(monkeypatch):
    """Every 125 updates one begins; mini-batches are drawn for it, and 8 of the 32 have a gradient
    for each sample.
    """
    monkeypatch.setattr(
        gradient_statistics, "measure_variation", lambda task, *models: {"pair": models}
    )
    monkeypatch.setattr(
        gradient_statistics, "measure_curvature", lambda task, *models: {"single": models}
    )
    probe = gradient_statistics.VariationProbe(None, iter(range(1_000)))
    for update in range(300):
        assert probe.correct(torch.zeros(1), None, update, "state", 0.1) == (
            torch.zeros(1),
            "state",
        )
    drawn = [found["pair"] for found in probe.measured]
    assert [(read, now) for read, now, _ in drawn] == [(0, 16), (125, 141), (250, 266)]
    assert [batches for *_, batches in drawn] == [[*range(32)], [*range(32, 64)], [*range(64, 96)]]
    assert [found["single"][2] for found in probe.measured] == [
        [*range(8)],
        [*range(32, 40)],
        [*range(64, 72)],
    ]


def test_run_is_measured_in_ten_parts(toy, tmp_path):
    text = """\
cluster: {workers: 1}
algorithm: {name: delayed}
task: {model: logistic, dataset: synthetic, batch: 8}
learning: {lr: 0.1}
stop: {updates: 1250}
sweep: {seeds: 2}
"""
    found = run_probe("variation", runs(load(toy(text=text))), tmp_path)
    assert sorted(found["part"].unique()) == list(range(1, 11))
    assert found["seed"].nunique() == 2
    assert np.isfinite(found["value"]).all()
    change = found[found["of"] == "change"].groupby("part")["value"].mean()
    assert change[1] > 10 * abs(change[10])
    short = runs(load(toy(text=text.replace("1250", "1141"))))
    with pytest.raises(
        ConfigError, match="stop: expected at least 1142 updates for 10 measurements, got 1141"
    ):
        run_probe("variation", short, tmp_path)
