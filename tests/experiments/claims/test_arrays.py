"""What is stored of a claim decides it again without runs, and what long runs measured is found
again.
"""

import json
import shutil

import numpy as np
import pytest
import xarray as xr

from laggard.experiments.claims import claims, decide_again, ledger, reproduce, studies
from laggard.experiments.claims.arrays import StudyArrays, read_arrays, write_arrays
from laggard.experiments.claims.ledger import STORED, stored_arrays, write_row
from laggard.experiments.claims.presentation import is_outdated
from laggard.experiments.cli import main
from laggard.experiments.results.files import ResultError

CLAIMS = {claim.id: claim for claim in claims()}
ROWS = ledger(STORED, "cpu")
DECIDED = [
    name for name, row in ROWS.items() if stored_arrays(name) and not is_outdated(CLAIMS[name], row)
]


@pytest.mark.parametrize("name", DECIDED)
def test_every_stored_row_is_what_its_stored_arrays_decide(name):
    assert decide_again(CLAIMS[name], "cpu").agrees_with(ROWS[name])


def test_a_claim_is_decided_again_by_its_arrays_alone(folder, tmp_path):
    (claim,) = claims([], folder())
    row = reproduce(claim, "cpu", tmp_path, 1)
    for path in tmp_path.glob("claim-*"):
        shutil.rmtree(path)
    assert decide_again(claim, "cpu", tmp_path / "claims") == row
    path = tmp_path / "claims" / "cpu" / "arrays" / "Z1.json"
    stored = json.loads(path.read_text())
    assert stored["report"]["final(value='loss')"]["dims"] == ["pace", "seed"]
    stored["report"]["final(value='loss')"]["values"][0] = [9.0, 9.0, 9.0]
    path.write_text(json.dumps(stored))
    again = decide_again(claim, "cpu", tmp_path / "claims")
    assert (again.criteria[0].value, again.verdict, again.first_verdict.verdict) == (
        9.0,
        "holds in part",
        "holds",
    )


def test_the_command_decides_again_and_says_where_a_row_differs(folder, tmp_path, capsys):
    own = folder()
    (claim,) = claims([], own)
    given = ["reproduce", "--stored", "--claims", str(own), "--out", str(tmp_path)]
    assert main(given) == 0
    assert capsys.readouterr().out.startswith("Z1  not run under its present criteria: Is a step")
    row = reproduce(claim, "cpu", tmp_path, 1)
    assert main(given) == 0
    told = capsys.readouterr().out
    assert told.startswith("Z1  holds  (")
    assert f"holds  loss of the slow: {row.criteria[0].measured}  (<= 1.5)" in told
    write_row(row.model_copy(update={"verdict": "fails"}), None, tmp_path / "claims")
    assert main(given) == 1
    assert "Z1: the stored arrays decide otherwise than its row: fails" in capsys.readouterr().err
    (tmp_path / "claims" / "cpu" / "arrays" / "Z1.json").unlink()
    assert main(given) == 0
    assert "(no arrays stored)" in capsys.readouterr().out


def test_another_criterion_decides_by_the_same_arrays_unless_it_needs_more(folder, tmp_path):
    (claim,) = claims([], folder())
    first = reproduce(claim, "cpu", tmp_path, 1)
    (harder,) = claims([], folder(("at_most=1.5", "at_most=-1.0")))
    row = decide_again(harder, "cpu", tmp_path / "claims")
    assert (row.verdict, row.first_verdict, row.runs) == (
        "holds in part",
        first.first_verdict,
        first.runs,
    )
    (other,) = claims(
        [], folder(('final(results["report"], "loss")', 'final(results["report"], "time")'))
    )
    with pytest.raises(ResultError, match=r"final\(value='time'\): is not among the stored arrays"):
        decide_again(other, "cpu", tmp_path / "claims")


def test_arrays_are_read_as_they_were_written_whatever_json_lacks(tmp_path):
    values = np.array([[1 / 3, np.inf], [np.nan, -np.inf]])
    array = xr.DataArray(
        values, dims=("lr", "method"), coords={"lr": [0.1, 0.2], "method": ["a", "b"]}
    )
    path = tmp_path / "arrays.json"
    write_arrays(path, {"grid": StudyArrays(None, {"final(value='loss')": array})})
    json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    xr.testing.assert_identical(read_arrays(path)["grid"].arrays["final(value='loss')"], array)
    path.write_text('{"grid": [1]}')
    with pytest.raises(ResultError, match=r"arrays\.json: holds no arrays of a claim"):
        read_arrays(path)


def test_what_a_long_run_measured_is_kept_and_not_run_again(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(studies, "LONG", 0.0)
    (claim,) = claims([], folder())
    row = reproduce(claim, "cpu", tmp_path, 1)
    kept = sorted(path.name for path in (tmp_path / "claims" / "partial").iterdir())
    assert kept == sorted(row.runs)
    for path in tmp_path.glob("claim-*"):
        shutil.rmtree(path)
    told = []
    again = reproduce(claim, "cpu", tmp_path, 1, told.append)
    assert all(ended.seconds is None for ended in told)
    assert again == row
    damaged = tmp_path / "claims" / "partial" / kept[0] / "metrics.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    told.clear()
    assert reproduce(claim, "cpu", tmp_path, 1, told.append).numbers == row.numbers
    assert [ended.run.id for ended in told if ended.seconds is not None] == [kept[0]]


def test_what_was_kept_of_another_run_is_not_taken_up(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(studies, "LONG", 0.0)
    (claim,) = claims([], folder())
    row = reproduce(claim, "cpu", tmp_path, 1)
    one, other, *_ = sorted(path for path in (tmp_path / "claims" / "partial").iterdir())
    shutil.rmtree(one)
    shutil.copytree(other, one)
    for path in tmp_path.glob("claim-*"):
        shutil.rmtree(path)
    told = []
    assert reproduce(claim, "cpu", tmp_path, 1, told.append).numbers == row.numbers
    assert [ended.run.id for ended in told if ended.seconds is not None] == [one.name]
