"""The fused kernel of LeNet-5's gradient, compiled as C++, and the script that measures it on a GPU."""

import shutil
import sys

import pandas as pd
import pytest

from tests.benchmarks.gpu import __main__ as script
from tests.benchmarks.gpu.kernel import OnCpu, block_bytes

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler here"),
]


@pytest.mark.parametrize("group", script.GROUPS)
def test_block_is_as_large_as_its_launch_says(group, tmp_path):
    assert OnCpu(tmp_path, group).block_bytes == block_bytes(group)


def test_six_steps_run_and_kernel_is_autograd(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["gpu", "--out", str(tmp_path), "--device", "cpu"])
    assert script.main() == 0
    agreement = pd.read_csv(tmp_path / "agreement.csv")
    assert agreement["same bits twice"].all()
    assert agreement["largest error"].max() < 1e-6
    assert len(agreement) == len(script.GROUPS) * 4
    training = pd.read_csv(tmp_path / "training.csv").pivot(index="member", columns="backend")
    losses = training["test_loss"]
    assert losses["fused"].to_numpy() == pytest.approx(losses["unfold-graphs"].to_numpy(), rel=1e-4)
    engine = pd.read_csv(tmp_path / "engine.csv")
    assert set(engine["times"]) == set(script.LAWS)
    assert (engine["gradients a second"] > 0).all()


def test_failed_step_costs_no_other(tmp_path, capsys):
    def broken():
        yield {"models": 1}
        raise RuntimeError("out of memory")

    assert not script.save(broken, tmp_path)
    assert len(pd.read_csv(tmp_path / "broken.csv")) == 1
    assert "broken: RuntimeError: out of memory" in capsys.readouterr().out
