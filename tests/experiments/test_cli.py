"""The command line: exit codes, one line for every mistake, and what it lists."""

import os
import re
import shutil
import signal
import subprocess
import sys
import warnings
from argparse import _SubParsersAction
from importlib import metadata
from pathlib import Path
from time import monotonic, sleep

import pytest

from laggard import load_result
from laggard.__main__ import shorten_warnings
from laggard.experiments.cli import main, parser
from laggard.experiments.commands.simulate import MAX_STALLED_SHOWN
from laggard.experiments.config import cluster, parts, task
from laggard.experiments.config.config import Config
from laggard.experiments.config.listing import SECTIONS
from laggard.experiments.config.parts import NamedChoice
from laggard.experiments.figures import FIGURES
from laggard.simulator import Deadlock
from tests.cases import ROOT

GRID = "sweep: {method: {synchronous: {algorithm.name: sync_ps}, late: {seed: 3}}, learning.lr: [0.1, 0.2]}"


@pytest.fixture
def laggard(
    capsys,
    tmp_path,
    monkeypatch,
    drawn,
):
    """Calls the command line; answers exit code, output and errors."""
    monkeypatch.chdir(tmp_path)

    def call(*words):
        try:
            code = main([str(word) for word in words])
        except SystemExit as leaving:
            code = leaving.code
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


SIMULATION = "CONFIG key=value --out --force --quiet --snapshots --no-plugins"
REAL = "--seconds --out --no-plugins"
COMMANDS = {
    "run": f"{SIMULATION} --keep-snapshot --continue",
    "sweep": f"{SIMULATION} --scale --jobs --backend --all --dry-run",
    "league": "CLUSTER --task --budget --methods --add --seeds --out --jobs --no-plugins",
    "validate": "CONFIG --no-plugins",
    "list": "NAME",
    "new": "KIND NAME",
    "schema": "",
    "doctor": "--out",
    "plot": "RESULT --figure --x --from --until --where --to --list",
    "table": "RESULT --rows --columns --value --target --where --best --by --against --format",
    "report": "RESULT --to --config",
    "export": "RESULT --to PATH --from --until",
    "reproduce": "QUESTION --scale --set --jobs --out --list --dry-run --stored --page",
    "import": "format FILE --out",
    "real calibrate": f"CONFIG key=value --workers --message-bytes {REAL}",
    "real compare": f"CONFIG --calibration {REAL}",
}
"""All commands and arguments: an addition needs a reason (docs/guide/results.md)."""


def commands_of(parser, prefix=""):
    found = {}
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            for name, command in action.choices.items():
                found |= commands_of(command, f"{prefix} {name}".strip())
    if not found:
        names = [
            action.option_strings[0] if action.option_strings else action.metavar or action.dest
            for action in parser._actions[1:]  # without --help
        ]
        found[prefix] = " ".join(map(str, names))
    return found


def test_commands_and_options_are_frozen():
    assert commands_of(parser()) == COMMANDS


def test_laggard_alone_shows_help_and_version(laggard):
    code, out, err = laggard()
    assert (code, err) == (0, "")
    assert out.startswith("usage: laggard")
    assert " sweep " in out
    assert laggard("--version") == (0, f"laggard {metadata.version('laggard')}\n", "")


@pytest.mark.slow
def test_warning_is_one_line(toy, tmp_path):
    """A run without numba, in a subprocess, warns in one line."""
    script = (
        "import sys\nsys.modules['numba'] = None\n"
        "from laggard.experiments.cli import main\nsys.exit(main(sys.argv[1:]))"
    )
    task = "algorithm: sync_ps\ntask: {model: logistic, dataset: digits}\nstop: {updates: 1}\n"
    words = f"run {toy(text=task)} --out {tmp_path}/out --quiet"
    command = [sys.executable, "-c", script, *words.split()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0
    warnings = [line for line in done.stderr.splitlines() if line.startswith("warning")]
    assert len(warnings) == 1
    assert "numba" in warnings[0]
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of POSIX")
def test_closed_pipe_ends_the_command_quietly():
    command = [sys.executable, "-m", "laggard", "list"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()  # before anything is written
        assert process.stderr.read() == b""
    assert process.returncode == 128 + signal.SIGPIPE


def test_run_prints_a_table_and_draws_a_figure(laggard, toy, drawn):
    code, out, err = laggard(
        "run", toy(), "stop.updates=20", "--out", "here", "evaluate.target_accuracy=0.9"
    )
    assert (code, err) == (0, "")
    header, row, _, figure = out.splitlines()
    assert header.split()[0] == "method"
    assert row.split()[0] == "async_ps"
    assert row.endswith("finished")
    (manifest,) = Path("here/toy").glob("*/manifest.json")
    assert figure == f"{manifest.parent}/figure.png"
    assert Path(figure).is_file()
    ((results, path, given),) = drawn
    assert (len(results), str(path), given) == (1, figure, {"target": 0.9})
    load_result(manifest.parent)


def test_sweep_prints_a_row_per_run_and_member(laggard, toy):
    code, out, err = laggard("sweep", toy(GRID), "--all")
    assert code == 0
    start, *ends = err.splitlines()
    assert start == "2 runs in results/toy"
    for number, method, line in zip((1, 2), ("synchronous", "late"), ends, strict=True):
        assert re.fullmatch(
            rf"{number} of 2: run \w{{12}} \(method = {method}\) finished in \d+\.\d s", line
        )
    rows = out.splitlines()
    assert rows[0].split()[:2] == ["method", "learning.lr"]
    expected = [["synchronous", "0.1"], ["synchronous", "0.2"], ["late", "0.1"], ["late", "0.2"]]
    assert [row.split()[:2] for row in rows[1:5]] == expected
    again = laggard("sweep", toy(GRID), "--all")
    assert again == (0, out, f"{start}\n2 of 2 runs already exist\n")


def test_diverged_sweep_ends_with_code_1(laggard, toy):
    path = toy("sweep: {m: {fine: {}, wild: {learning.lr: 1.0e+30}}}")
    for is_new in (True, False):  # the second call finds both runs stored
        code, out, err = laggard("sweep", path)
        assert code == 1
        assert out.count("(1 diverged)") == 4
        assert err.splitlines()[-1] == "1 of 2 runs diverged"
        assert ("(m = wild) diverged" in err) == is_new


def test_dry_run_counts_and_simulates_nothing(laggard, toy):
    assert laggard("sweep", toy(GRID), "--quiet", "sweep={learning.lr: [0.1, 0.2]}")[0] == 0
    code, out, err = laggard(
        "sweep", toy(GRID), "--dry-run", "sweep={m: {a: {}, b: {seed: 3}}, learning.lr: [0.1, 0.2]}"
    )
    assert (code, err) == (0, "")
    kept, other, _, total, left = out.splitlines()
    assert re.fullmatch(r"\w{12}  m = a    2 members  finished already", kept)
    assert re.fullmatch(r"\w{12}  m = b    2 members  about +[\d.]+ s +[\d.]+ \wiB", other)
    assert total == "2 runs, 4 members, in results/toy: 1 finished already"
    assert left.startswith("the other 1, one after the other: about ")
    assert len(list(Path("results/toy").glob("*/manifest.json"))) == 1


def test_overrides_may_follow_options(laggard, toy):
    assert laggard(
        "run", "--quiet", toy(), "stop.updates=20", "--out", "here", "learning.lr=0.3"
    ) == (0, "", "")
    (config,) = Path("here/toy").glob("*/config.yaml")
    assert "lr: 0.3" in config.read_text()


def test_validate_counts_runs_and_members(laggard, toy, tmp_path):
    path = toy(GRID)
    bad = tmp_path / "bad.yaml"
    bad.write_text("seed: a\n")
    fine = f"{path}: fine: 2 runs, 4 members\n"
    assert laggard("validate", path) == (0, fine, "")
    code, out, err = laggard("validate", bad, path)
    assert (code, out) == (2, fine)
    assert err.startswith(f"{bad}: seed: expected ")
    one = f"{path}: fine: 1 run, 1 member\n"
    assert laggard("validate", path, "sweep={}", "seed=3") == (0, one, "")
    longer = f"sweep={{seed: {list(range(100))}}}"  # than a file's name may be
    assert laggard("validate", path, longer)[0] == 0


def test_plot_draws_runs_and_sweeps(laggard, toy, drawn):
    laggard("sweep", toy(GRID), "--quiet")
    drawn.clear()
    assert laggard("plot", "results/toy", "--to", "all.png") == (0, "all.png\n", "")
    runs = sorted(path.parent for path in Path("results/toy").glob("*/manifest.json"))
    assert laggard("plot", *runs) == (0, f"{runs[0]}/figure.png\n", "")
    (sweep, path, given), (singles, _, named) = drawn
    assert [result.labels["method"] for result in sweep] == ["synchronous", "late"]
    assert path == Path("all.png")
    assert given["label"] is given["target"] is named["target"] is None
    assert sorted(map(named["label"], singles)) == ["async_ps", "sync_ps"]


def test_plot_draws_the_figure_that_is_named(laggard, toy):
    laggard("sweep", toy(GRID), "--quiet")
    figure = "results/toy/staleness.png"
    assert laggard("plot", "results/toy", "--figure", "staleness") == (0, f"{figure}\n", "")
    assert Path(figure).read_bytes().startswith(b"\x89PNG")


def test_plot_lists_the_figures(laggard):
    code, out, err = laggard("plot", "--list")
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()] == list(FIGURES)
    assert all(len(line.split()) > 4 for line in out.splitlines())


TABLES = {title.split()[0]: list(choice.parts) for title, choice in SECTIONS.items()}


def test_list_has_every_entry(laggard):
    code, out, err = laggard("list")
    assert (code, err) == (0, "")
    sections = {}
    for line in filter(None, out.splitlines()):
        assert len(line) <= 120
        if line.startswith("      "):
            continue
        if line.startswith("  "):
            next(reversed(sections.values())).append(line.split(":")[0].strip())
        else:
            sections[line.split()[0]] = []
    assert sections == TABLES
    words = " ".join(out.split())
    assert " step: `factor` times the learning rate after every `every` updates or epochs" in words
    assert "[every = null, factor = 0.1, unit = 'epochs' | 'updates', at = []]" in words
    assert "Source: Zheng et al. (2017), arXiv 1609.08326" in words


def test_validate_names_all_errors_and_run_names_one(laggard, tmp_path):
    file = tmp_path / "mistakes.yaml"
    file.write_text(
        "cluster: {workers: zero, ties: no}\nlearning: {lr: x}\nstop: {epoch: 3}\nalgorithm: async_p\n"
    )
    code, out, err = laggard("validate", str(file))
    assert (code, out) == (2, "")
    keys = [line.removeprefix(f"{file}: ").partition(":")[0] for line in err.splitlines()]
    assert sorted(keys[:2]) == ["cluster.ties", "cluster.workers"]
    assert keys[2:] == ["algorithm.name", "learning.lr", "stop.epoch"]
    assert laggard("run", str(file)) == (2, "", err.splitlines()[0] + "\n")


@pytest.mark.parametrize(
    ("name", "place"),
    [("config", ""), ("cluster", "cluster."), ("stop", "stop."), ("record", "record."), ("evaluate", "evaluate."),
     ("network", "cluster.network."), ("task", "task."), ("learning", "learning.")],
)  # fmt: skip
def test_list_of_a_mapping_explains_each_key(laggard, name, place):
    code, out, err = laggard("list", name)
    assert (code, err) == (0, "")
    assert out.startswith(f"{name} ({place}KEY)\n")
    config = Config()
    for part in filter(None, place.split(".")):
        config = getattr(config, part)
    keys = {key for key in type(config).model_fields if not key.endswith("_sha256")}
    unwrapped = re.sub(r"\n  (?=['|])", " ", out)
    listed = set(re.findall(r"^  (\w+)(?: = .*?)?: \S", unwrapped, flags=re.MULTILINE))
    assert listed == keys - {"peers", "model", "momentum"}  # of one topology, task or optimiser


def test_list_prints_the_text_of_an_example(laggard, tmp_path):
    code, out, _ = laggard("list", "example:quickstart")
    assert code == 0
    assert out == (ROOT / "configs/quickstart.yaml").read_text(encoding="utf-8")
    (tmp_path / "own.yaml").write_text(out, encoding="utf-8")
    assert laggard("validate", str(tmp_path / "own.yaml"))[0] == 0


def test_list_takes_a_section_or_an_entry(laggard):
    code, out, _ = laggard("list", "schedules", "laws")
    assert code == 0
    assert re.findall(r"^\w+", out, re.MULTILINE) == ["schedules", "laws"]
    code, out, _ = laggard("list", "constant", "sync_ps")
    assert code == 0
    first = [line for line in out.splitlines() if line and line[0] != " "]
    schedule = "constant (learning.schedule; several in a list multiply)"
    assert first == [
        "constant (cluster.compute.law; each with per and speed)",
        schedule,
        "sync_ps (algorithm.name)",
    ]
    assert "      accumulate: mini-batches " in out
    code, out, _ = laggard("list", "all_reduce")
    table = [line.split("  ")[1] for line in out.splitlines() if "  " in line.strip()]
    assert table[:2] == ["ring", "naive_ring"]  # each row of a table is a line


@pytest.mark.parametrize("width", [40, 80, 120])
def test_list_is_wrapped_in_a_terminal(laggard, monkeypatch, width):
    words = ["list", "optimizers", "quadratic", "dc_asgd_a"]
    flat = laggard(*words)[1]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr(
        "laggard.experiments.commands.configs.get_terminal_size",
        lambda: os.terminal_size((width, 24)),
    )
    wrapped = laggard(*words)[1]
    longest = max(len(word) for word in flat.split()) + 12
    assert max(map(len, wrapped.splitlines())) <= max(width, longest)
    assert "".join(wrapped.split()) == "".join(flat.split())
    assert (wrapped == flat) == (width == 120)  # as in a file


def test_sections_and_entries_have_distinct_names():
    """Otherwise `laggard list NAME` would be ambiguous."""
    assert not set(TABLES) & {name for table in TABLES.values() for name in table}


def test_every_entry_of_a_choice_is_listed():
    listed = {name for choice in SECTIONS.values() for name in choice.parts}
    for module in (cluster, parts, task):
        for choice in vars(module).values():
            if isinstance(choice, NamedChoice):
                assert choice.parts.keys() <= listed


def test_warning_is_printed_once_whatever_libraries_filter(capsys):
    with warnings.catch_warnings():
        shorten_warnings()
        for _ in range(2):
            warnings.warn("a unit is guessed", stacklevel=1)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
    assert capsys.readouterr().err == "warning: a unit is guessed\n"


def test_missing_data_give_one_line_error(laggard, toy, monkeypatch):
    from laggard.models import DataMissingError

    def offline(name):
        raise DataMissingError(f"{name} is missing: put it there")

    monkeypatch.setattr("laggard.models.data.read_images", offline)
    code, out, err = laggard(
        "run", toy(), "task={model: logistic, dataset: fashion_mnist}", "device=cpu"
    )
    assert (code, out, err) == (2, "", "FashionMNIST is missing: put it there\n")


def test_failed_run_gives_one_line_and_code_1(laggard, toy, monkeypatch):
    def deadlock(*args, **kwargs):
        raise Deadlock("deadlock at 3 s after 2 updates: node 0 waits since 1 s for a message")

    path = toy(GRID)
    monkeypatch.setattr("laggard.experiments.running.run.simulate", deadlock)
    code, _, err = laggard("run", path, "sweep={}")
    assert (code, err) == (
        1,
        f"{path}: deadlock at 3 s after 2 updates: node 0 waits since 1 s for a message\n",
    )
    code, _, err = laggard("sweep", path)
    _, first, second, total = err.splitlines()
    assert code == 1
    assert "(method = synchronous) failed: Deadlock: deadlock at 3 s" in first
    assert "(method = late) failed: Deadlock: deadlock at 3 s" in second
    assert total == "2 of 2 runs failed"


def test_ctrl_c_reports_saved_runs(laggard, toy, monkeypatch):
    from laggard.experiments.running import run as runs

    simulate, calls = runs.simulate, []

    def second_time(*args, **kwargs):
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return simulate(*args, **kwargs)

    monkeypatch.setattr("laggard.experiments.running.run.simulate", second_time)
    code, out, err = laggard("sweep", toy(GRID))
    _, first, last = err.splitlines()
    assert first.startswith("1 of 2: run ")
    assert (code, out, last) == (
        130,
        "",
        "interrupted: 1 of 2 runs saved in results/toy; run the same command to complete it",
    )


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize(
    ("number", "code", "word", "wait"),
    [  # the seconds until the signal, or None: once the run is under way
        pytest.param(signal.SIGINT, 130, "interrupted", 0, marks=pytest.mark.slow),
        (signal.SIGINT, 130, "interrupted", 0.3),
        # test_sweeping.py interrupts a sweep under way
        pytest.param(signal.SIGINT, 130, "interrupted", None, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, 143, "terminated", 0, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, 143, "terminated", 0.3, marks=pytest.mark.slow),
        (signal.SIGTERM, 143, "terminated", None),
    ],
)
def test_signal_ends_the_process_without_a_traceback(
    toy,
    tmp_path,
    number,
    code,
    word,
    wait,
    ctrl_c,
    request,
):
    words = f"run {toy()} --out {tmp_path}/out stop.updates=100000000"
    command = [sys.executable, "-X", "faulthandler", "-c", SIGNALLED, *words.split()]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    request.addfinalizer(process.kill)  # the process has no end of its own
    process.stdout.readline()  # the command has begun
    deadline = monotonic() + 60
    while (
        wait is None
        and not list(tmp_path.glob("out/toy/.*/config.yaml"))
        and monotonic() < deadline
    ):
        sleep(0.05)
    sleep(0.1 if wait is None else wait)
    process.send_signal(number)
    process.send_signal(number)  # as `timeout` does
    _, err = process.communicate(timeout=20)
    saved = f"{word}: 0 of 1 run saved in {tmp_path}/out/toy; run the same command to complete it\n"
    assert process.returncode == code
    # before it is known what is to be run
    assert err == saved or (err == f"{word}\n" and wait is not None)
    assert not list(tmp_path.glob("out/toy/.*"))


SIGNALLED = """
import signal
import sys
from laggard.__main__ import entry
set_handler = signal.signal
def announced(number, handler):
    set_handler(number, handler)
    if number == signal.SIGTERM:
        print("begun", flush=True)
signal.signal = announced
sys.exit(entry())
"""


def test_figure_of_run_keeps_that_of_sweep(laggard, toy):
    laggard("sweep", toy(GRID))
    figure = Path("results/toy/figure.png")
    figure.write_text("the sweep's")
    _, out, _ = laggard("run", toy(GRID), "sweep={}")
    assert Path(out.splitlines()[-1]).parent.parent == Path("results/toy")
    assert figure.read_text() == "the sweep's"


@pytest.mark.parametrize("error", [OSError(28, "none left", "figure.png"), ValueError("none left")])
def test_failed_figure_is_a_warning_below_table(laggard, toy, monkeypatch, error):
    def undrawable(*args, **given):
        raise error

    monkeypatch.setattr("laggard.experiments.figures.comparison", undrawable)
    code, out, err = laggard("run", toy())
    assert code == 0
    assert "figure.png: warning: the figure is not drawn: " in err
    assert err.endswith("none left\n")
    assert out.startswith("method")


def test_run_that_stalls_says_why(laggard, toy):
    overrides = ["algorithm=sync_ps", "cluster.slowdowns=[{worker: 1, at: 0.05}]"]
    code, out, err = laggard("run", toy(), *overrides)
    assert (code, err.count("\n")) == (0, 1)
    assert " stalled at 0." in err
    assert "stalled" in out
    _, _, err = laggard("sweep", toy(), *overrides, "sweep={seeds: 5}", "--jobs", "1", "--quiet")
    assert err.count(" stalled at 0.") == MAX_STALLED_SHOWN
    assert "2 more runs" in err


def test_changed_file_is_named_once(laggard, toy):
    laggard("sweep", toy(GRID))
    path = next(Path("results/toy").glob("*/metrics.parquet"))
    path.write_bytes(path.read_bytes()[:99])
    for words in (["table", "results/toy"], ["table", "results/toy", "--where", "seed=0"]):
        code, _, err = laggard(*words)
        assert (code, err.count(str(path)), err.count("\n")) == (2, 1, 1)
        assert err.startswith(f"{path}: ")


@pytest.mark.parametrize(
    "words", ["report results/toy --to toy.yaml", "export results/toy --to perfetto toy.yaml"]
)
def test_output_replaces_no_file_of_another_kind(laggard, toy, words):
    path = toy()
    laggard("run", path)
    before = path.read_bytes()
    code, _, err = laggard(*words.split())
    assert code == 2
    assert "expected a name that ends in" in err.splitlines()[-1]
    assert path.read_bytes() == before


@pytest.mark.parametrize("command", ["plot", "report", "table"])
def test_unfinished_sweep_is_shown_with_a_note(laggard, toy, command):
    laggard("sweep", toy(GRID), "--jobs", "1")
    shutil.rmtree(next(Path("results/toy").glob("*/manifest.json")).parent)
    code, out, err = laggard(command, "results/toy")
    assert code == 0
    assert "1 of 2 runs are finished" in out + err


def test_run_named_twice_counts_once(laggard, toy):
    laggard("sweep", toy(), "sweep={seed: [0, 1, 2]}", "--out", "one")
    alone = laggard("table", "one/toy", "--value", "loss")
    laggard("sweep", toy(), "sweep={seed: [1, 2]}", "--out", "other")
    code, out, err = laggard("table", "one/toy", "other/toy", "--value", "loss")
    assert (code, out) == alone[:2]
    assert err == "2 of 5 runs were given twice: they count once\n"


def test_progress_bar_counts_towards_the_limit(laggard, toy, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("laggard.experiments.running.progress.BAR_PERIOD", 0.001)
    code, _, err = laggard("run", toy(), "stop={updates: 40}")
    assert code == 0
    assert "toy: 100%, 40 of 40 updates" in err


def test_unexpected_error_keeps_its_traceback(laggard, toy, monkeypatch):
    def fault(*args, **kwargs):
        raise ZeroDivisionError

    monkeypatch.setattr("laggard.experiments.running.run.simulate", fault)
    with pytest.raises(ZeroDivisionError):
        laggard("run", toy())
