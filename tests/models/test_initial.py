"""Weights in a file: how many models they are, in which order of parameters, and what does not
fit.
"""

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from laggard.models import Quadratic
from laggard.models.flat import flatten
from laggard.models.initial import WarmStart, count_initial, read_initial

MODULE = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
SHAPES = {name: tuple(parameter.shape) for name, parameter in MODULE.named_parameters()}
PARAMS = 12


def count(file):
    return count_initial(str(file), PARAMS, lambda: SHAPES)


def test_state_dict_is_one_model(tmp_path):
    state = MODULE.state_dict()
    assert len(state) > len(SHAPES)  # statistics of batch normalisation
    save_file(dict(reversed(state.items())), tmp_path / "state")
    assert count(tmp_path / "state") == 1
    found = read_initial(str(tmp_path / "state"), PARAMS, SHAPES)
    assert torch.equal(found, flatten(MODULE.parameters())[None])


@pytest.mark.parametrize("members", [1, 3, PARAMS])
def test_weights_of_result_have_row_for_model(tmp_path, members):
    weights = torch.randn(members, PARAMS, generator=torch.Generator().manual_seed(0))
    save_file({"weights": weights}, tmp_path / "weights")
    assert count(tmp_path / "weights") == members
    assert torch.equal(read_initial(str(tmp_path / "weights"), PARAMS, SHAPES), weights)


def test_parameter_called_weights_is_no_result(tmp_path):
    """The parameter has the size of the model, but not the shape (members, params)."""
    weights = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    save_file({"weights": weights}, tmp_path / "state")
    shapes = {"weights": (3, 4)}
    assert count_initial(str(tmp_path / "state"), PARAMS, lambda: shapes) == 1
    assert torch.equal(
        read_initial(str(tmp_path / "state"), PARAMS, shapes), weights.view(1, PARAMS)
    )


@pytest.mark.parametrize(
    ("tensors", "text"),
    [
        ({"weights": torch.zeros(1, 11)}, r"weights \(members, 12\)"),
        ({"weights": torch.zeros(2, 1, 12)}, r"weights \(members, 12\)"),
        ({"x": torch.zeros(11)}, "with 11: expected the model's 12 parameters"),
        ({"x": torch.zeros(12)}, r"with none: expected 0.weight of the shape \(2, 3\)"),
        ({**dict(MODULE.named_parameters()), "x": torch.zeros(0)}, "expected no parameter x"),
    ],
)
def test_file_of_another_model_is_refused(tmp_path, tensors, text):
    save_file(tensors, tmp_path / "other")
    with pytest.raises(ValueError, match=text):
        count(tmp_path / "other")


def test_file_without_tensors_is_refused(tmp_path):
    (tmp_path / "text").write_text("no tensors")
    with pytest.raises(ValueError, match="a safetensors file"):
        count(tmp_path / "text")


def test_members_start_from_one_or_several_rows():
    start = torch.tensor([[3.0, 4.0], [5.0, 6.0]])
    assert torch.equal(WarmStart(Quadratic(dim=2), start).start([0, 1]), start)
    assert torch.equal(WarmStart(Quadratic(dim=2), start[:1]).start([0, 1]), start[[0, 0]])
    for wrong in (torch.zeros(3, 2), torch.zeros(2, 3), torch.zeros(2)):
        with pytest.raises(ValueError, match=r"expected the shape \(1, 2\) or \(2, 2\), got "):
            WarmStart(Quadratic(dim=2), wrong).start([0, 1])
