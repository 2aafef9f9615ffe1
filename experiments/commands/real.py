"""The commands about real training: `real calibrate`, `real compare`, and `import`."""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from laggard.experiments.commands import (
    DONE,
    FAILED,
    Command,
    CommandGroup,
    add_config,
    add_configs,
    add_no_plugins,
    count,
    split_overrides,
)

if TYPE_CHECKING:
    import pandas as pd

    from laggard.experiments.config.grid import RunSpec
    from laggard.experiments.real.calibration import MeasuredTime
    from laggard.experiments.real.processes import RealRun

MODULE = "laggard.experiments.real.comparison"
RECORDERS = ("chrome", "horovod", "straggler-analysis")


def add_real_options(parser: ArgumentParser, content: str) -> None:
    parser.add_argument(
        "--seconds", type=float, metavar="S", help="longest wall time of a real run"
    )
    parser.add_argument(
        "--out", default="real", metavar="FOLDER", help=f"folder of {content} (default: real)"
    )
    add_no_plugins(parser)


def calibrate_arguments(parser: ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument("--workers", type=int, metavar="P", help="overrides cluster.workers")
    parser.add_argument(
        "--message-bytes",
        type=float,
        nargs=2,
        metavar=("A", "B"),
        help="make two runs with messages of these sizes, and fit latency and bandwidth",
    )
    add_real_options(parser, "measured rows and cluster.yaml")


def calibrate(args: Namespace) -> int:
    from laggard.experiments.real.calibration import CLUSTER, calibrate_cluster

    overrides = list(args.overrides)
    if args.workers is not None:
        overrides.append(f"cluster.workers={args.workers}")
    spec = _single_run(args.config, overrides)
    folder = Path(args.out) / spec.config.name
    if args.message_bytes:
        run, times = _run_two_sizes(args, spec, overrides)
    else:
        run, times = _run_real(spec, args.seconds), None
    for time in calibrate_cluster(run, spec, folder, times):
        print(time)
    print(folder / CLUSTER)
    return DONE


def _run_two_sizes(
    args: Namespace, spec: "RunSpec", overrides: list[str]
) -> "tuple[RealRun, list[MeasuredTime]]":
    """Make two real runs; return that with the first message size, and the times fitted to both."""
    from laggard.experiments.real.calibration import fit_sizes, measured_times

    specs = []
    for size in args.message_bytes:
        sized = [*overrides, f"cluster.network.message_bytes={size!r}"]
        specs.append(_single_run(args.config, sized))
    runs = [_run_real(sized_spec, args.seconds) for sized_spec in specs]
    times = [measured_times(run, sized) for run, sized in zip(runs, specs, strict=True)]
    return runs[0], fit_sizes(times, args.message_bytes, spec)


def compare_arguments(parser: ArgumentParser) -> None:
    add_configs(parser)
    parser.add_argument(
        "--calibration",
        metavar="FOLDER",
        help="output of `real calibrate` (default: calibrate on another real run first)",
    )
    add_real_options(parser, "measured rows and comparison.csv")


def compare_configs(args: Namespace) -> int:
    import pandas as pd

    from laggard.experiments.config.errors import ConfigError
    from laggard.experiments.real.processes import check_real

    paths, overrides = split_overrides(args.configs)
    specs = [_single_run(path, overrides) for path in paths]
    if not specs:
        raise ConfigError("", "expected a CONFIG before key=value", "laggard real compare")
    for spec in specs:  # all, before the first takes its time
        check_real(spec)
    table = pd.concat([_compare_one(spec, args) for spec in specs])
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    path = out / "comparison.csv"
    columns = ["config", *table.columns.drop("config")]
    table[columns].to_csv(path, index=False, float_format="%.6g")
    print(path)
    if (table["agrees"] == "no").any():
        return FAILED
    return DONE


def _compare_one(spec: "RunSpec", args: Namespace) -> "pd.DataFrame":
    """Compare one config with a real run, and print the table."""
    from laggard.experiments.real.calibration import calibrate_cluster
    from laggard.experiments.real.comparison import compare_real

    name = spec.config.name
    if args.calibration is None:
        calibration = Path(args.out) / name
        calibrate_cluster(_run_real(spec, args.seconds), spec, calibration)
    else:
        calibration = Path(args.calibration)
    run = _run_real(spec, args.seconds)
    table = compare_real(run, spec, calibration)
    print(f"{name}: {count(len(run.rows), 'gradient')}")
    text = table.to_string(index=False, float_format=lambda number: f"{number:.4g}", na_rep="")
    print(text, flush=True)
    return table.assign(config=name, gradients=len(run.rows))


def import_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "format",
        choices=RECORDERS,
        help="format: of PyTorch's profiler, Horovod's timeline, or ByteDance's StragglerAnalysis",
    )
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="one Chrome trace for each worker, one timeline, or one Parquet table",
    )
    parser.add_argument(
        "--out",
        default="imported",
        metavar="FOLDER",
        help="folder of compute.csv and cluster.yaml (default: imported)",
    )


def import_recording(args: Namespace) -> int:
    from laggard.experiments.config.errors import ConfigError
    from laggard.experiments.real import horovod, importers

    paths = [Path(file) for file in args.files]
    if args.format != "chrome" and len(paths) > 1:
        raise ConfigError(
            "", f"expected one file, got {len(paths)}", f"laggard import {args.format}"
        )
    network: dict[str, float | bool] = {}
    if args.format == "chrome":
        steps = importers.chrome_steps(paths)
    elif args.format == "horovod":
        timeline = horovod.read_timeline(paths[0])
        steps, network = timeline.steps, horovod.fit_network(timeline)
    else:
        steps = importers.straggler_analysis_steps(paths[0])
    config = importers.write_import(steps, args.format, Path(args.out), network)
    workers = count(steps["worker"].nunique(), "worker")
    common = count(steps["step"].nunique(), "step")
    print(f"{workers}, {common} recorded by all of them")
    print(config)
    if network:
        print("It replays these steps on a ring that is fitted to the recorded sums.")
    else:
        print("It replays these steps on a network that takes no time.")
    print("cluster.network asks what another network costs, and cluster.compute.order=bootstrap")
    print("draws steps beyond the recorded ones.")
    print(f"Next: laggard run {config}")
    return DONE


def _single_run(path: str, overrides: list[str]) -> "RunSpec":
    """The single run of a config.

    Raises:
        ConfigError: it expands to several.
    """
    from laggard.experiments.config.errors import ConfigError
    from laggard.experiments.config.grid import runs
    from laggard.experiments.config.load import load

    planned = runs(load(path, *overrides))
    if len(planned) > 1:
        problem = f"expands to {count(len(planned), 'run')}: fix the swept keys"
        raise ConfigError("sweep", problem, path)
    return planned[0]


def _run_real(spec: "RunSpec", seconds: float | None) -> "RealRun":
    """Make a real run, and warn if the machine was too busy for its times to be judged."""
    from laggard.experiments.real.processes import run_real

    run = run_real(spec, seconds)
    if not run.quiet:
        problem = f"load {run.load:.1f} on {count(run.cores, 'core')} when the run began"
        print(f"{spec.config.name}: warning: {problem}: its times are not judged", file=sys.stderr)
    return run


COMMANDS = (
    Command(
        "import",
        "convert a recording of another program to compute times and a config",
        import_arguments,
        import_recording,
        "laggard.experiments.real.importers",
    ),
    CommandGroup(
        "real",
        "calibrate and compare simulations with real processes of this machine",
        (
            Command(
                "calibrate",
                "run a config on real processes, and write a config with the measured times",
                calibrate_arguments,
                calibrate,
                MODULE,
            ),
            Command(
                "compare",
                "compare simulations with real processes",
                compare_arguments,
                compare_configs,
                MODULE,
            ),
        ),
    ),
)
