"""How a paper stands: what is stored of its claims, and what is said of a claim that has no row."""

import json

import pytest

from laggard.experiments.claims import claims, ledger, standing
from laggard.experiments.claims.ledger import STORED, RowEntry
from laggard.experiments.claims.presentation import headline
from laggard.experiments.config.errors import ConfigError


@pytest.fixture
def zheng(tmp_path):
    """Zheng et al. with one row of the repository, of which the first number is changed, and
    nothing else.
    """
    folder = tmp_path / "rows"
    (folder / "cpu").mkdir(parents=True)
    document = json.loads((STORED / "cpu" / "B3.json").read_text())
    document["criteria"][0] |= {
        "values": [1.0, None],
        "value": 1.0,
        "low": None,
        "high": None,
        "outcome": "open",
    }
    (folder / "cpu" / "B3.json").write_text(json.dumps(document))
    (folder / "cpu" / "B3.csv").write_text((STORED / "cpu" / "B3.csv").read_text())
    return standing("zheng2017", folder=folder)


def test_what_is_not_run_says_so_with_the_command_that_would_run_it(zheng):
    table = zheng.verdicts().data.set_index("claim")
    assert [name for name in zheng.claims if name not in zheng.rows] == [
        "B1",
        "B2",
        "B4",
        "B5",
        "B6",
    ]
    assert list(table.index) == ["B1", "B2", "B3", "B4", "B5", "B6"]
    assert table["verdict"]["B1"] == "no row yet: laggard reproduce B1 --scale cpu"
    assert table["verdict"]["B3"] == zheng.rows["B3"].verdict
    missing = zheng.findings("B1").data
    assert missing["measured"].tolist() == [each.says for each in zheng.claims["B1"].criteria]
    assert set(missing["outcome"]) == {"not run"}
    assert zheng.figure("B1") is None


def test_numbers_are_those_of_the_row_and_legible(zheng):
    table = zheng.findings("B3").data
    row = zheng.rows["B3"]
    assert len(table) == len(row.criteria) + len(row.beside)
    assert table["outcome"].tolist() == [
        entry.outcome or "beside" for entry in (*row.criteria, *row.beside)
    ]
    first, last = table.iloc[0], table.iloc[2]
    assert (first["mean"], first["95 % interval"], first["seeds"]) == ("1", "", "1 of 2")
    low, _, high = last["95 % interval"].partition(" to ")
    assert [float(each) for each in (last["mean"], low, high)] == pytest.approx(
        [row.criteria[2].value, row.criteria[2].low, row.criteria[2].high], rel=1e-3
    )
    assert zheng.findings().data["claim"].unique().tolist() == ["B1", "B2", "B3", "B4", "B5", "B6"]


def test_an_exact_number_has_no_interval_and_one_that_is_infinite_no_mean(zheng):
    exact = RowEntry(says="it", value=1.25, low=1.25, high=1.25, values=[1.25], seeds=False)
    never = RowEntry(says="it", value=None, low=None, high=None, values=[None, None], seeds=True)
    row = zheng.rows["B3"].model_copy(update={"criteria": [exact, never], "beside": []})
    zheng.rows["B3"] = row
    shown = zheng.findings("B3").data[["mean", "95 % interval", "seeds"]].to_numpy().tolist()
    assert shown == [["1.25", "", ""], ["not finite", "", "0 of 2"]]


def test_a_number_that_is_infinite_in_some_seeds_has_the_ends_of_the_others_and_no_interval(zheng):
    """The mean and the interval of those that are finite would leave out the worst seeds."""
    entry = RowEntry(
        says="it",
        value=2.0,
        low=-10.7,
        high=14.7,
        values=[1.0, None, 3.0],
        seeds=True,
        outcome="open",
    )
    assert entry.measured == "1 to 3 in 2 of 3 seeds, not finite in 1"
    row = zheng.rows["B3"] = zheng.rows["B3"].model_copy(update={"criteria": [entry], "beside": []})
    assert zheng.findings("B3").data[["95 % interval", "seeds"]].to_numpy().tolist() == [
        ["", "2 of 3"]
    ]
    assert entry.measured in headline(zheng.claims["B3"], row)


def test_tables_are_html_with_the_same_bytes_each_time(zheng):
    for made in (zheng.verdicts, zheng.findings, zheng.settings):
        assert made()._repr_html_() == made()._repr_html_()
    html = zheng.findings("B3")._repr_html_()
    assert f"B3: {zheng.rows['B3'].verdict}" in html
    assert "white-space: normal" in html
    assert "not run" in zheng.settings()._repr_html_()


def test_the_figure_is_drawn_from_what_is_stored(zheng):
    (axes,) = zheng.figure("B3").axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == [
        "ASGD",
        "DC-ASGD-c",
        "DC-ASGD-a",
        "SSGD",
    ]


def test_every_paper_stands_by_the_rows_of_the_repository_wherever_one_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stood = {name: standing(name) for name in ("dutta2018", "C", "I4")}
    assert [each.paper.year for each in stood.values()] == [2018, 2019, 2026]
    assert stood["dutta2018"].rows.keys() == ledger(STORED).keys() & {
        claim.id for claim in claims(["dutta2018"])
    }


def test_a_claim_is_run_again_into_a_folder_of_its_own(zheng, tmp_path):
    again = zheng.rerun("B3", out=tmp_path / "out")
    assert list(again.claims) == list(again.rows) == ["B3"]
    assert again.scale == "smoke"
    assert ledger(tmp_path / "out" / "claims", "smoke") == again.rows
    assert again.figure("B3") is not None
    assert zheng.rows["B3"].scale == "cpu"


def test_what_is_no_paper_or_claim_of_it_is_named(zheng):
    with pytest.raises(
        ConfigError, match="I: stands for several papers: expected one of dean2012, "
    ):
        standing("I")
    with pytest.raises(ConfigError, match="no such claim or paper; did you mean zheng2017"):
        standing("zheng2018")
    with pytest.raises(
        ValueError, match="C1: expected a claim of this paper, one of B1, B2, B3, B4"
    ):
        zheng.findings("C1")
