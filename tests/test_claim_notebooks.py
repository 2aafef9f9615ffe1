"""The notebooks on papers, executed cell by cell; all of them in one kernel, whose start takes
longer than each does.

pytest's own collection of notebooks, which starts a kernel for each, leaves these out
(`pyproject.toml`).
"""

import json
from pathlib import Path

import pytest
from jupyter_client.manager import start_new_kernel

from laggard.experiments.claims import claims, standing
from laggard.experiments.claims.ledger import STORED

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("08_claims_*.ipynb"))
CLAIMS = claims()


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    """A client of a kernel in an empty folder, so that nothing is found there that an earlier call
    left behind.
    """
    away = tmp_path_factory.mktemp("checkout") / "notebooks"
    away.mkdir()
    manager, client = start_new_kernel(kernel_name="python3", cwd=str(away))
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def executed(sources, kernel):
    """What the cells show, as data by MIME type, from a namespace without names.

    Raises:
        AssertionError: a cell raised.
    """
    shown = []

    def note(message):
        if message["msg_type"] in ("display_data", "execute_result"):
            shown.append(message["content"]["data"])

    for source in ("%reset -f", *sources):
        reply = kernel.execute_interactive(source, output_hook=note, timeout=120)["content"]
        assert reply["status"] == "ok", f"{source}\n{reply['ename']}: {reply['evalue']}"
    return shown


def test_every_paper_with_a_claim_has_a_notebook():
    assert {path.stem.removeprefix("08_claims_") for path in NOTEBOOKS} == {
        claim.paper.key for claim in CLAIMS
    }


def test_notebook_quotes_paper_like_claim():
    statements = {claim.id: f"{claim.question}\n\nThe paper says: {claim.says}" for claim in CLAIMS}
    found = 0
    for path in NOTEBOOKS:
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            heading, _, text = "".join(cell["source"]).partition("\n\n")
            if "The paper says: " in text:
                assert text.startswith(statements[heading.removeprefix("## ")]), (
                    f"{path.name}, {heading}"
                )
                found += 1
    assert found


FEW = ("notes", "zheng2017")
"""The papers whose notebooks are run each time; the others have the same cells."""


def noted(path):
    """A notebook as a case, most of them for `make slow`."""
    few = path.stem.removeprefix("08_claims_") in FEW
    return pytest.param(path, id=path.stem, marks=[] if few else [pytest.mark.slow])


@pytest.mark.parametrize("path", [noted(path) for path in NOTEBOOKS])
def test_notebook_runs_and_shows_claims_of_paper(path, kernel):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    shown = executed(
        ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"], kernel
    )
    verdicts, *findings, settings, again = [
        data["text/html"] for data in shown if "text/html" in data
    ]
    asked = [
        claim.id for claim in CLAIMS if claim.paper.key == path.stem.removeprefix("08_claims_")
    ]
    for name in asked:
        assert f">{name}</td>" in verdicts
        assert f">{name}</td>" in settings
        assert any(f">{name}</td>" in table for table in findings), name
    decided = standing(path.stem.removeprefix("08_claims_")).rows
    assert sum("image/png" in data for data in shown) == sum(
        (STORED / "cpu" / f"{name}.csv").is_file() for name in decided
    )
    assert "no verdict at this scale" in again


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_notebook_shows_present_verdicts(path):
    text = path.read_text(encoding="utf-8")
    for name, row in standing(path.stem.removeprefix("08_claims_")).rows.items():
        assert f"<caption>{name}: {row.verdict}</caption>" in text, (
            f"{name}: execute {path.name} again"
        )


def test_failing_cell_raises_and_names_are_cleared(kernel):
    with pytest.raises(AssertionError, match="'missing' is not defined"):
        executed(["name = 1", "name + missing"], kernel)
    with pytest.raises(AssertionError, match="'name' is not defined"):
        executed(["name"], kernel)
