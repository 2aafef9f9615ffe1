"""The command, the first page and the cards: what they say is what the stored numbers give."""

import json
from dataclasses import replace
from html import escape

import numpy as np
import pytest

from laggard.experiments.cli import main
from laggard.experiments.questions.catalogue import QUESTIONS, questions
from laggard.experiments.questions.elsewhere import compare_answers, counterpart
from laggard.experiments.questions.pages import (
    BEGIN,
    END,
    numbers_block,
    page_texts,
    with_numbers,
)
from laggard.experiments.questions.pictures import (
    describe_rates,
    question_picture,
    rates_picture,
    speedup_picture,
)
from laggard.experiments.questions.question import Answer
from laggard.experiments.questions.store import STORED, read_numbers
from laggard.experiments.questions.words import Word, estimate
from laggard.experiments.references import works
from tests.documents import ROOT
from tests.experiments.questions.made_up import rows, spread, table

OWN_NET = """\
from torch import nn


class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(784, 12), nn.Tanh(), nn.Linear(12, 10))
"""


@pytest.fixture(scope="module")
def stored_pages():
    """The texts of the pages, and the answers in them by question, which take seconds to decide."""
    answers = {}

    def record(question, decided, *others):
        answers[question.name] = decided
        return numbers_block(question, decided, *others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("laggard.experiments.questions.pages.numbers_block", record)
        texts = page_texts(ROOT / "REPRODUCTION.md", ROOT / "results" / "questions")
    return texts, answers


def test_pages_have_the_stored_numbers(stored_pages):
    """`laggard reproduce --stored --page REPRODUCTION.md` writes them."""
    texts, _ = stored_pages
    outdated = [path for path, text in texts.items() if path.read_text(encoding="utf-8") != text]
    assert [path.name for path in outdated] == []


def test_stored_notebook_shows_the_present_answers(stored_pages):
    """Its output is stored; it is run again when a table of numbers changes."""
    notebook = json.loads((ROOT / "notebooks/08_questions.ipynb").read_text(encoding="utf-8"))
    outputs = "".join(
        line
        for cell in notebook["cells"]
        for output in cell.get("outputs", [])
        for line in output.get("data", {}).get("text/html", [])
    )
    _, answers = stored_pages
    for of_question in answers.values():
        if of_question:
            assert escape(of_question[0].says, quote=False) in outputs


def test_numbers_change_only_the_block():
    """A number in a card that is changed by hand is written over; the words around it stay."""
    card = f"# Title\n\n{BEGIN}\nold\n{END}\n\nafter\n"
    assert with_numbers(card, "new") == f"# Title\n\n{BEGIN}\nnew\n{END}\n\nafter\n"
    with pytest.raises(ValueError, match="expected <!-- numbers -->"):
        with_numbers("# Title\n", "new")


@pytest.mark.parametrize("name", QUESTIONS)
def test_stored_numbers_answer(stored_pages, name):
    """Each answer says something, a claim is of a paper of the question, and seeds that had been
    seen give no verdict.
    """
    question = QUESTIONS[name]
    answers = stored_pages[1][name]
    assert set(question.papers) <= {*works(), "notes"}
    if read_numbers(name).empty:
        assert "Not run yet" in numbers_block(question, [])
        return
    assert answers
    assert len({(answer.asks, answer.case) for answer in answers}) == len(answers)
    for answer in answers:
        assert answer.says
        assert answer.source in question.papers or not answer.paper
        if answer.seen and not answer.why:
            assert answer.judgement.word in (Word.NOT_DECIDED, Word.NONE)
        if answer.mark == "recalled":
            assert answer.bar_of != "paper"


@pytest.mark.parametrize(
    ("other", "bar", "expected"),
    [
        (0.3, 0.5, "the same"),  # both agree, apart as their intervals are
        (0.7, 0.5, "other"),
        (0.5, 0.5, "cannot tell there"),  # its interval crosses the bar
        (0.3, np.inf, "other"),  # no bar: the intervals decide
        (0.02, np.inf, "not told apart"),
        (0.02, 0.0, "not told apart"),  # both intervals cross the bar
        (0.3, 0.0, "other"),
    ],
)
def test_answer_elsewhere_is_compared_by_verdict_or_interval(other, bar, expected):
    def answer(center):
        number = estimate(spread(center, 0.05, 10))
        return Answer("Lost?", "few", number, paper="few are lost", at_most=bar)

    assert compare_answers(answer(0.0), answer(other)) == expected


def test_part_is_compared_with_same_part_of_other_data():
    """Fashion-MNIST has the second of two optimisers alone: its number stands below that one's."""
    numbers = {"momentum": estimate(spread(1.0, 0.05, 10)), "adam": estimate(spread(2.0, 0.05, 10))}
    ours = [Answer("How fast?", case, number, case=case) for case, number in numbers.items()]
    elsewhere = replace(ours[1], number=estimate(spread(3.0, 0.05, 10)))
    assert counterpart(ours[0], [elsewhere]) is None
    by_few = {"with a ResNet-8 on Fashion-MNIST": [elsewhere]}
    lines = numbers_block(QUESTIONS["delay-rate"], ours, [elsewhere], by_few).splitlines()
    places = [place for place, line in enumerate(lines) if "Fashion-MNIST" in line]
    (second,) = (place for place, line in enumerate(lines) if line.startswith("- **adam"))
    assert places == [second + 1, second + 2]


def test_few_seeds_elsewhere_give_a_number_without_a_verdict():
    """It stands in the card below the first answer, which keeps its own verdict."""
    question = QUESTIONS["late-gossip"]

    def answer(center, seeds):
        number = estimate(spread(center, 0.05, seeds))
        return Answer("Lost?", "few", number, "points", paper="few are lost", at_most=0.5)

    ours, few = answer(0.0, 10), answer(0.9, 5)
    lines = numbers_block(question, [ours], by_few={"on real text": [few]}).splitlines()
    (line,) = (line for line in lines if "real text" in line)
    assert line.startswith("  - on real text: 0.9")
    assert line.endswith(" points, 5 seeds")
    assert sum(Word.AGREES in line for line in lines) == 1


def test_tables_are_small():
    assert sum(path.stat().st_size for path in STORED.glob("*.csv")) <= 3e6


def test_command_lists_and_answers_without_a_run(capsys):
    assert main(["reproduce", "--list"]) == 0
    assert set(QUESTIONS) <= set(capsys.readouterr().out.split())
    assert main(["reproduce", "delay-rate", "--stored"]) == 0
    assert "of log rate against log (2 D + 1)" in capsys.readouterr().out
    assert main(["reproduce", "delay-rte", "--stored"]) == 2
    assert "delay-rate" in capsys.readouterr().err


def test_custom_network_keeps_our_numbers(tmp_path, monkeypatch, capsys):
    """One command redoes a question on it; the numbers lie in a folder of their own."""
    (tmp_path / "own_nets.py").write_text(OWN_NET, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    command = ["reproduce", "average-seldom", "--scale", "smoke", "--jobs", "1", "--out", "out"]
    command += ["--set", "task.batch=64"]
    assert main([*command, "--set", "task.model=own_nets:Net"]) == 0
    assert ", task.model=own_nets:Net" in capsys.readouterr().out
    (kept_in,) = (tmp_path / "out/questions/smoke/yours").iterdir()
    kept = read_numbers("average-seldom", kept_in)
    assert set(kept["model"]) == {"own_nets:Net"}
    assert not (tmp_path / "out/questions/smoke/average-seldom.csv").exists()
    assert main([*command, "--set", "learning.lr=0.1"]) == 2
    capsys.readouterr()
    # a name that differs only in a character that no folder has does not read these numbers
    assert main([*command, "--set", "task.model=own_nets-Net", "--stored"]) == 0
    assert "no numbers are stored" in capsys.readouterr().out
    # another network has numbers of its own
    assert main([*command, "--set", "task.model=logistic"]) == 0
    assert len(list((tmp_path / "out/questions/smoke/yours").iterdir())) == 2


def test_all_questions_are_run_only_when_asked(mistake):
    assert "expected the names of questions" in mistake("reproduce")


def test_grid_is_of_seeds_that_ran_all_of_it():
    """Two seeds ran all rates, a third both optimisers at one other rate."""
    parts = []
    for optimiser in ("momentum", "adam"):
        for delay in (0, 8):
            own = dict(study="rates", optimiser=optimiser, delay=delay)
            parts += [rows("accuracy", [0.9, 0.8], lr=rate, **own) for rate in (0.001, 0.003, 0.1)]
            parts.append(rows("accuracy", [0.1, 0.1, 0.1], lr=0.01, **own).iloc[2:])
    numbers = table(*parts)
    assert set(numbers["seed"]) == {0, 1, 2}
    assert describe_rates(numbers).startswith("Means of the 2 seeds that ran the whole grid.")


def test_pictures_have_panels_and_lines_of_targets():
    rates = rates_picture(read_numbers("delay-rate"))
    titles = [axes.get_title(loc="left") or axes.get_title() for axes in rates.axes[:2]]
    assert titles == ["SGD with momentum", "Adam"]
    parts = []
    for optimiser in ("momentum", "adam"):
        for delay, epochs in ((0, 1.0), (8, 3.0)):
            for target, factor in ((0.98, 1.0), (0.9, 0.2)):
                for role, seeds in (("tune", 3), ("report", 8)):
                    values = spread(epochs * factor, 0.01, seeds)
                    settings = dict(optimiser=optimiser, delay=delay, lr=0.1)
                    measure = f"epochs_to_{target:g}"
                    parts.append(rows(measure, values, role, "targets", **settings))
    drawn = speedup_picture(table(*parts))
    assert len(drawn.axes) == 4
    labels = drawn.axes[0].get_legend_handles_labels()[1]
    assert labels == ["to 98%", "to 90%"]


def test_settings_without_a_place_follow_the_others():
    (question,) = questions(["rate-by-staleness"])
    methods = ("another", "synchronous", "fixed")
    parts = [rows("accuracy", [0.9], study="synchronous", method=method) for method in methods]
    (axes,) = question_picture(question, table(*parts)).axes
    names = [tick.get_text() for tick in axes.get_xticklabels()]
    assert names == ["fixed", "synchronous", "another"]


def test_picture_of_error_is_1_minus_accuracy():
    (question,) = questions(["compensation"])
    own = dict(study="choosing", strength=0.0)
    parts = [rows("accuracy", [0.9, 0.7], lr=0.1, **own), rows("accuracy", [0.4], lr=0.2, **own)]
    (axes,) = question_picture(question, table(*parts)).axes
    drawn = axes.containers[0].lines[0]
    assert drawn.get_ydata() == pytest.approx([20, 60])
    assert axes.get_yscale() == "log"
