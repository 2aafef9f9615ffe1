"""Each measure of the bench measures what it says: held against fakes of known speed, and closed forms."""

import json
import threading
import time
from contextlib import suppress

import pytest
import torch

from experiments import ConfigError, load
from experiments.bench import MEASURES, alternation, ensemble, gradients, network, plain, recording, shares, stopwatch
from experiments.bench import clock as clocks
from experiments.bench import sweep as sweeps
from experiments.bench.alternation import Late, alternate, speed_of, within
from experiments.bench.children import children
from experiments.bench.images import mnist_shaped
from experiments.bench.report import Entry, Ratio, Report
from experiments.bench.settings import Settings
from experiments.bench.table import against, amount, as_markdown, cell
from experiments.bench.take import machine, take
from experiments.bench.timeline import Sampled, sample
from experiments.bench.traffic import TRAFFIC, carried
from experiments.cli import main
from experiments.grid import runs
from experiments.store import ResultError
from models import LeNet5, Quadratic
from simulator import AsyncPS, Cluster, Delayed, Evaluate, Rule, Stop, SyncPS, simulate
from simulator.laws import Exponential


@pytest.fixture
def config(toy):
    return load(toy(), "task={model: logistic, dataset: {name: synthetic, samples: 64}, batch: 4}", "threads=1")


@pytest.fixture(scope="module")
def fresh():
    with children() as processes:
        yield processes


class Answering:
    """Children that answer at once, by the name of the function, or raise what they are given."""

    def __init__(self, **answers):
        self.answers, self.asked = answers, []

    def run(self, function, *given):
        self.asked.append(given)
        answer = self.answers[function.__name__]
        if isinstance(answer, list):
            answer = answer.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def speeds(*values):
    """A loop that is as fast as it is told, call after call."""
    rest = iter(values)
    return lambda *_: next(rest)


# ---------------------------------------------------------------------------------------------- alternation and ratios


def test_contestants_take_turns():
    turns = []
    contest = {name: lambda name=name: turns.append(name) or float(len(turns)) for name in "ab"}
    assert alternate(contest, 2) == {"a": [1.0, 3.0], "b": [2.0, 4.0]}
    assert turns == ["a", "b", "a", "b"]


def test_a_ratio_is_of_what_was_measured_in_the_same_round():
    ratio = Ratio.between([150.0, 100.0, 90.0], [100.0, 50.0, 100.0])
    assert (ratio.median, ratio.least, ratio.most, ratio.rounds) == (1.5, 0.9, 2.0, 3)
    assert Ratio.between([3.0], [1.0]).apart(ratio)
    assert not Ratio.between([1.9], [1.0]).apart(ratio)


def test_a_speed_is_work_over_process_time(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(alternation, "process_time", lambda: now[0])

    def step():
        now[0] += 0.002

    assert speed_of(step, 1.0) == pytest.approx(500)


def test_what_takes_too_long_is_interrupted_and_the_timer_rings_no_more():
    def forever():
        with within(0.05):
            while True:
                pass

    with pytest.raises(Late, match=r"^not done in 0\.05 s of process time$"):
        forever()
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass


def test_a_child_that_dies_is_late(fresh):
    import os

    with children() as others, pytest.raises(Late, match="killed"):
        others.run(os._exit, 1)


# ------------------------------------------------------------------------------------------------------------ gradients


def test_the_best_plain_loop_of_each_round_counts_and_slow_ones_are_left_out(monkeypatch):
    tried = {"slow": speeds(9.0, 9.0), "one": speeds(90.0, 90.0, 100.0, 40.0), "two": speeds(80.0, 80.0, 80.0, 50.0)}
    monkeypatch.setattr(gradients, "engine_speed", speeds(150.0, 100.0))
    monkeypatch.setattr(Settings, "rounds", 2)
    (entry,) = gradients.versus(Settings(None), {"async_ps": {}}, tried, 32)
    assert entry.case == {"method": "async_ps", "batch": 32}
    assert (entry.ratio.least, entry.ratio.most) == (1.5, 2.0)
    assert set(entry.rates) == {f"{name} (gradients/s)" for name in ("laggard", "plain, one", "plain, two")}


def test_a_loop_that_cannot_run_here_is_left_out():
    def broken(_):
        raise RuntimeError("no compiler")

    chosen, speed = plain.best({"compiled": broken, "eager": speeds(1.0, 7.0)}, steps=1)
    assert (set(chosen), speed) == ({"eager"}, 7.0)
    with pytest.raises(RuntimeError, match="no compiler"):
        plain.best({"compiled": broken}, steps=1)


class Timed(Quadratic):
    """A task whose gradients take two milliseconds each, by a clock of its own."""

    device, lanes, now = torch.device("cpu"), 1, 0.0

    def gradients(self, weights, batches):
        self.now += 0.002 * weights.shape[0] * weights.shape[1]
        return super().gradients(weights, batches)


@pytest.mark.parametrize(("algorithm", "workers"), [(AsyncPS(Rule()), 4), (SyncPS(Rule()), 4), (Delayed(Rule()), 1)])
@pytest.mark.parametrize("members", [1, 3])
def test_the_engine_is_as_fast_as_its_gradients(algorithm, workers, members, monkeypatch):
    task = Timed(dim=2, noise=0.1)
    task.lanes = 1  # nothing but what is asked for
    monkeypatch.setattr(gradients, "perf_counter", lambda: task.now)
    given = {"cluster": Cluster(workers), "algorithm": algorithm, "task": task, "ensemble": members}
    assert gradients.engine_speed(given, 400) == pytest.approx(500, rel=0.02)


def test_the_usual_cases_are_those_of_the_issue():
    contest = gradients.methods(Rule())
    assert set(contest) == {"async_ps", "sync_ps", "sgp", "delayed"}
    assert {given["cluster"].workers for name, given in contest.items() if name != "delayed"} == {16}
    assert contest["delayed"]["algorithm"].delay == 15
    assert gradients.BATCHES == (32, 64, 128)
    assert ensemble.MEMBERS == (1, 4, 16, 64)
    assert clocks.SIZES == (16, 256, 4096, 65_536)
    assert network.FLOWS == (16, 256, 1024)
    assert set(network.TRAFFIC) == {"star", "random pairs"}


def test_text_book_lenet5_is_the_same_function():
    ours, theirs = LeNet5().build((1, 28, 28), 10), plain.text_book_lenet5()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        other.data = mine.data
    x = torch.randn(5, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-5, atol=1e-6)


def test_a_plain_loop_learns_and_runs_where_the_data_lies(config, monkeypatch):
    settled, stepped = [], []
    monkeypatch.setattr(plain, "settle", settled.append)
    data = config.task.dataset.build().to("cpu", torch.float64)
    module = torch.nn.Linear(data.shape[0], data.classes, dtype=torch.float64)
    before = module.weight.detach().clone()
    prepare = lambda *given: stepped.append(1) or plain.eager(*given)  # noqa: E731
    loop = plain.loop(module, data, batch=4, lr=0.1, seed=0, prepare=prepare)
    assert loop(3) > 0
    assert loop(3) > 0
    assert settled == [torch.device("cpu")] * 4
    assert len(stepped) == 1
    assert not torch.equal(before, module.weight)


def test_a_config_of_ones_own_is_measured(config, monkeypatch):
    monkeypatch.setattr(Settings, "turn", 0.02)
    told = []
    report = take(quick=True, config=config, tell=told.append)
    (entry,) = report.entries
    assert told == report.entries
    assert entry.case == {"method": "async_ps", "batch": 4}
    assert 0 < entry.ratio.least <= entry.ratio.median <= entry.ratio.most
    assert report.machine.cores >= 1


@pytest.mark.parametrize("sweep", ["{seed: [0, 1]}", "{learning.lr: [0.1, 0.2]}", "{task.batch: [2, 4]}"])
def test_several_models_are_refused(toy, sweep):
    task = "task={model: logistic, dataset: {name: synthetic, samples: 64}, batch: 4}"
    config = load(toy(), task, f"sweep={sweep}")
    with pytest.raises(ConfigError, match=r"^sweep: bench measures one model: fix the swept keys, or sweep=\{\}$"):
        list(gradients.of_config(Settings(None), config))


# ----------------------------------------------------------------------------------------- clock, network and recording


@pytest.mark.parametrize(("name", "algorithm"), [("async_ps", AsyncPS(Rule())), ("sync_ps", SyncPS(Rule()))])
def test_sampled_cycles_are_those_of_a_run(fresh, name, algorithm):
    def direct():
        start = time.process_time()
        cluster, stop = Cluster(16, Exponential(1.0)), Stop(gradients=6000)
        outcome = simulate(cluster, algorithm, stop=stop, evaluate=Evaluate(every_updates=10**9))
        return outcome.mileage.gradients / (time.process_time() - start)

    for _ in range(4):  # the neighbours of a machine have their moods
        sampled = fresh.run(sample, name, 16, 0.05, 3, 5.0)
        assert len(sampled.cycles) == len(sampled.bare) == 3
        assert sampled.begun is not None
        if 0.5 < max(sampled.cycles) / direct() < 2:
            return
    pytest.fail("the sampled speed is another than that of a run")


def test_more_workers_need_more_memory(fresh):
    few, many = (fresh.run(sample, "async_ps", workers, 0.02, 1, 5.0).memory for workers in (16, 1040))
    assert many - few > 1024 * 1000  # a worker is a thousand bytes at least


def test_a_cluster_that_is_not_made_in_time_is_said_to_be_late(fresh):
    with pytest.raises(Late, match=r"not done in 0\.001 s"):
        fresh.run(sample, "async_ps", 1024, 0.02, 1, 0.001)


def test_the_clock_reports_speed_memory_and_growth():
    seen = [
        Sampled([200.0, 400.0, 300.0], [1000.0, 1000.0, 1000.0], 16 * 2048, 0.1),
        Sampled([150.0], [1500.0], 0, None),
    ]
    answers = Answering(sample=seen + [Late("too slow")] * 10)
    entries = list(clocks.measure(Settings(answers, quick=True)))
    first, second, third = entries[:3]
    assert (first.ratio.median, first.ratio.least, first.ratio.most) == (0.3, 0.2, 0.4)
    assert first.rates["memory (KiB/worker)"] == 2
    assert second.rates["speed over that of 16 workers"] == 0.5
    assert "not every worker" in second.note
    assert (third.ratio, third.note) == (None, "too slow")
    assert [asked[:2] for asked in answers.asked[:4]] == [
        ("async_ps", 16),
        ("async_ps", 256),
        ("async_ps", 4096),
        ("sync_ps", 16),
    ]


@pytest.mark.parametrize(("kind", "flows"), [("star", 8), ("random pairs", 8)])
def test_as_many_messages_are_always_under_way(kind, flows):
    traffic = TRAFFIC[kind](flows)
    traffic.begin()
    for _ in range(1200):
        traffic.next_arrival()
        links = {link for link in traffic._wires._links.values() if link.flows}
        assert len({flow for link in links for flow in link.flows}) == flows
    if kind == "star":  # the server's card is never idle: 1 MB a millisecond
        assert traffic.clock.now == pytest.approx(traffic.arrived * 1e-3, rel=0.15)


def test_messages_and_timeouts_take_turns(fresh):
    messages, timeouts = fresh.run(carried, "star", 4, 0.02, 3, 5.0)
    assert len(messages) == len(timeouts) == 3
    assert min(messages + timeouts) > 0
    entries = list(
        network.measure(Settings(Answering(carried=[([10.0], [100.0]), ([5.0], [100.0])] + [Late("no")] * 4)))
    )
    assert entries[1].rates["speed over that of 16 flows"] == 0.5
    assert entries[1].ratio.median == 0.05
    assert [entry.note for entry in entries[2:]] == ["no"] * 4


def test_recorded_updates_are_held_against_a_gibibyte(fresh):
    answers = Answering(record=recording.Recorded(memory=2**30, disk=3 * 10**7, seconds=2.0))
    (entry,) = recording.measure(Settings(answers))
    assert entry.case["updates"] == 10**7
    assert entry.ratio.median == 1
    assert entry.rates["updates/s"] == 5e6
    found = fresh.run(recording.record, 5000)
    assert found.disk > 5000
    assert found.seconds > 0


# ------------------------------------------------------------------------------------------------------------ the sweep


def test_a_grid_has_24_runs():
    assert [len(runs(config)) for config in sweeps.grids(quick=True).values()] == [24, 24]


def test_a_sweep_on_all_cores_is_held_against_one_process(monkeypatch):
    monkeypatch.setattr(sweeps, "cores", lambda: 4)
    monkeypatch.setattr(sweeps, "sweep", lambda config, out, jobs: time.sleep(0.2 / jobs))
    entries = list(sweeps.measure(Settings(None, quick=True)))
    grid, threads = "LeNet-5 on digits", "one process, one thread"
    cases = [("clock alone", "one process"), (grid, "one process"), (grid, threads)]
    assert [tuple(entry.case.values()) for entry in entries] == cases
    assert max(entry.ratio.median for entry in entries) == pytest.approx(4, rel=0.3)


# ---------------------------------------------------------------------------------------------- where the time goes


def test_a_stopwatch_runs_for_one_room_at_a_time(monkeypatch):
    now = [10.0]
    monkeypatch.setattr(stopwatch, "monotonic", lambda: now[0])

    def takes(seconds):
        now[0] += seconds

    watch = stopwatch.Stopwatch(8.0, "start-up")
    inner = watch.during("gradients", takes)

    def update():
        takes(1.0)
        inner(4.0)
        with suppress(ValueError):
            watch.during("gradients", int)("no number")
        takes(1.0)
        watch.rename("clock")

    watch.during("rules", update)()
    takes(0.5)
    elsewhere = threading.Thread(target=inner, args=(0.25,))
    elsewhere.start()
    elsewhere.join()
    found = watch.stop()
    assert found == {"start-up": 2.0, "rules": 2.0, "gradients": 4.0, "clock": 0.75}
    assert sum(found.values()) == now[0] - 8.0


@pytest.mark.parametrize("place", [place for places in stopwatch.ROOMS.values() for place in places])
def test_every_room_is_there(place):
    owner, name = stopwatch.found(place)
    assert callable(getattr(owner, name))


def test_shares_of_a_run_add_up(toy, monkeypatch):
    monkeypatch.setattr(shares, "cases", lambda quick: {"toy": ([str(toy()), "stop.updates=400"], 1)})
    start = time.monotonic()
    entries = list(shares.measure(Settings(None, quick=True)))
    spent = time.monotonic() - start
    assert [entry.case["room"] for entry in entries] == [*shares.COUNTED]
    assert sum(entry.ratio.median for entry in entries) == pytest.approx(1, abs=2e-3)
    assert all(
        entry.ratio.median > 0 for entry in entries if entry.case["room"] != "evaluation"
    )  # a quadratic's is apart
    seconds = {entry.case["room"]: entry.rates["seconds"] for entry in entries}
    first = entries[0].rates["seconds to the first update"]
    assert seconds["start-up"] <= first < spent
    assert 0.8 * spent < sum(seconds.values()) < spent  # the rest is ours


def test_a_run_that_fails_is_said_to_have_failed(toy, monkeypatch):
    monkeypatch.setattr(shares, "cases", lambda quick: {"toy": ([str(toy()), "stop.update=4"], 1)})
    (entry,) = shares.measure(Settings(None))
    assert entry.note.startswith("laggard run ended with exit code 2: ")
    assert "did you mean updates?" in entry.note


# ---------------------------------------------------------------------------------------------- report and command line


@pytest.fixture
def report():
    entries = [
        Entry(measure="clock", case={"method": m, "workers": p}, ratio=Ratio.of([r, 2 * r]), rates={"cycles/s": 1e5})
        for m, p, r in [("sgp", 16, 0.01), ("sgp", 4096, 0.02), ("sync_ps", 16, 0.03)]
    ]
    late = Entry(measure="network", case={"traffic": "star", "flows": 16}, note="not done")
    return Report(
        date="2026-11-21T12:00:00+00:00",
        quick=True,
        data="MNIST",
        seconds=60.0,
        machine=machine(torch.device("cpu"), [0.5, 1.5]),
        versions={"python": "3.11", "torch": "2.13"},
        entries=[*entries, late],
    )


def test_a_report_can_be_read_back(report, tmp_path):
    file = tmp_path / "bench.json"
    file.write_text(report.as_json())
    assert Report.read(file) == report
    assert set(json.loads(file.read_text())) == set(Report.model_json_schema()["properties"])


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"schema_version": 1, "more": 2}'])
def test_what_is_no_report_is_refused_in_one_line(text, tmp_path, capsys):
    file = tmp_path / "bench.json"
    file.write_text(text)
    with pytest.raises(ResultError, match="expected what `laggard bench --json` writes"):
        Report.read(file)
    assert main(["bench", "clock", "--against", str(file)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_report_of_another_version_is_refused(report, tmp_path):
    file = tmp_path / "bench.json"
    file.write_text(report.model_copy(update={"schema_version": 2}).as_json())
    with pytest.raises(ResultError, match="expected a report of version 1, got 2"):
        Report.read(file)


def test_tables_have_a_row_and_a_column_a_case(report):
    text = as_markdown(report)
    assert "| method \\ workers | 16 | 4,096 |" in text
    assert "| sgp | 100,000/s, 0.015 (0.01 to 0.02) | 100,000/s, 0.03 (0.02 to 0.04) |" in text
    assert "| sync_ps | 100,000/s, 0.045 (0.03 to 0.06) |  |" in text
    assert "| star | not done |" in text
    share = Entry(measure="shares", case={"run": "quick", "room": "clock"}, ratio=Ratio.of([0.1234]))
    assert cell(share) == "12.3 %"


@pytest.mark.parametrize(
    ("number", "text"),
    [(123456.0, "123,000"), (1234.5, "1,230"), (99.96, "100.0"), (1.2345, "1.23"), (0.0123, "0.012")],
)
def test_numbers_are_told_to_three_digits(number, text):
    assert amount(number) == text


def test_two_reports_are_compared_case_by_case(report):
    slower = [entry.model_copy(update={"ratio": Ratio.of([0.001])}) for entry in report.entries[:1]]
    text = against(report.model_copy(update={"entries": slower}), report)
    assert "clock: method sgp, workers 16: 0.015 (0.01 to 0.02) -> 0.001: -93%, ranges apart" in text
    assert text.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["clok"], "did you mean clock?"),
        (["configs/mnist_async.yaml"], "a config goes behind --config"),
        (["clock", "task.batch=3"], "expected --config CONFIG"),
        (["--against", "nowhere.json"], "nowhere.json: No such file"),
        (["--config", "nowhere.yaml"], "nowhere.yaml"),
        (["--json", "nowhere/file.json", "clock"], "nowhere/file.json: No such file"),
    ],
)
def test_bad_arguments_are_told_in_one_line(words, said, capsys):
    assert main(["bench", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_config_is_for_gradients_alone(toy, capsys):
    assert main(["bench", "clock", "--config", str(toy())]) == 2
    assert "is for the measure gradients alone" in capsys.readouterr().err
    assert main(["bench", "--config", str(toy())]) == 2
    assert "expected a network on a data set, got 'quadratic'" in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_refused_in_one_line(capsys):
    assert main(["bench", "gradients", "--device", "cuda"]) == 2
    assert capsys.readouterr().err.startswith("--device: ")


def test_the_command_writes_prints_and_compares(toy, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Settings, "turn", 0.02)
    file = str(tmp_path / "bench.json")
    task = "task={model: logistic, dataset: {name: synthetic, samples: 64}, batch: 4}"
    words = ["bench", "--quick", "--config", str(toy()), task, "threads=1"]
    assert main([*words, "--json", file]) == 0
    assert capsys.readouterr().out.startswith("gradients: method async_ps, batch 4: ")
    assert main([*words, "--markdown", "--against", file]) == 0
    out, err = capsys.readouterr()
    assert "| method \\ batch | 4 |" in out
    assert " -> " in out
    assert err.startswith("gradients: ")


def test_images_are_as_mnists():
    data = mnist_shaped(samples=50, tested=20)
    assert data.train_x.shape == (50, 1, 28, 28)
    assert data.test_x.shape == (20, 1, 28, 28)
    assert data.train_x.stride() == (784, 1, 28, 1)
    assert set(data.train_y.tolist()) <= set(range(10))


def test_every_measure_has_its_file_and_title():
    from importlib import import_module

    from experiments.bench.table import TITLES

    assert set(TITLES) == set(MEASURES)
    assert all(callable(import_module(f"experiments.bench.{name}").measure) for name in MEASURES)
