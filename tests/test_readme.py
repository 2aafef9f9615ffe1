"""What the README says can be done is done here, and its numbers are those of the stored rows."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.documents import ROOT, Reader, blocks, commands

README = ROOT / "README.md"
VERDICTS = {"reproduced": "reproduced", "reproduced in part": "in part", "contradicted": "contradicted"}


def test_the_readme_is_short_and_shows_commands_and_python() -> None:
    assert len(README.read_text().splitlines()) <= 150
    assert sum(block.language == "python" for block in blocks(README)) >= 2
    assert {"make quickstart", "make test"} <= {line.partition("#")[0].strip() for line in commands(README)}


@pytest.mark.long
def test_all_that_the_readme_shows_runs_from_top_to_bottom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Reader(tmp_path, monkeypatch, capsys).follow(README)


def test_the_verdicts_that_the_readme_counts_are_those_of_the_stored_rows() -> None:
    rows = [json.loads(path.read_text()) for path in (ROOT / "results/claims/cpu").glob("*.json")]
    text, counts = " ".join(README.read_text().split()), Counter(row["verdict"] for row in rows)
    assert f"{len(rows)} claims" in text
    for verdict, count in counts.items():
        assert f"{count} {VERDICTS.get(verdict, verdict)}" in text


def test_the_statements_that_the_readme_counts_are_those_of_the_page() -> None:
    page = " ".join((ROOT / "docs/verification.md").read_text().split())
    held = re.search(r"(\d+) statements hold", page)
    assert held
    assert f"{held[1]} statements of theory" in README.read_text()
