"""The commands about real runs: calibrate, compare-real, and import of other programs' recordings."""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from laggard.experiments.commands import DONE, FAILED, Command, add_no_plugins, count, is_override

if TYPE_CHECKING:
    from laggard.experiments.config.grid import RunSpec
    from laggard.experiments.real.processes import RealRun

MODULE = "laggard.experiments.real.comparison"
RECORDERS = ("chrome", "straggler-analysis")


def calibrate_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("config", metavar="CONFIG", help="a YAML file")
    parser.add_argument(
        "overrides", nargs="*", metavar="key=value", help="a dotted key of the config and its value"
    )
    parser.add_argument(
        "--workers", type=int, metavar="P", help="how many, instead of the config's"
    )
    parser.add_argument(
        "--seconds", type=float, metavar="S", help="end the run after so many, if not before"
    )
    parser.add_argument(
        "--message-bytes",
        type=float,
        nargs=2,
        metavar=("A", "B"),
        help="two runs, with messages of these sizes",
    )
    parser.add_argument(
        "--out", default="real", metavar="FOLDER", help="where its rows and cluster.yaml go"
    )
    add_no_plugins(parser)


def compare_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "configs", nargs="+", metavar="CONFIG", help="YAML files, and key=value as `run` takes them"
    )
    parser.add_argument(
        "--seconds", type=float, metavar="S", help="end each real run after so many, if not before"
    )
    parser.add_argument(
        "--calibration",
        metavar="FOLDER",
        help="of `calibrate`; by default a real run is made before",
    )
    parser.add_argument(
        "--out", default="real", metavar="FOLDER", help="where rows and comparison.csv go"
    )
    add_no_plugins(parser)


def import_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "format", choices=RECORDERS, help="PyTorch's profiler, or ByteDance's StragglerAnalysis"
    )
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="a Chrome trace for each worker, or a Parquet table",
    )
    parser.add_argument(
        "--out", default="imported", metavar="FOLDER", help="where compute.csv and cluster.yaml go"
    )


def measure(args: Namespace) -> int:
    from laggard.experiments.real.calibration import (
        CLUSTER,
        calibrate_cluster,
        fit_sizes,
        measured_times,
    )

    overrides = args.overrides + (
        [] if args.workers is None else [f"cluster.workers={args.workers}"]
    )
    spec = _spec(args.config, overrides)
    folder = Path(args.out) / spec.config.name
    sizes = args.message_bytes or []
    of_sizes = [
        _spec(args.config, [*overrides, f"cluster.network.message_bytes={size!r}"])
        for size in sizes
    ]
    runs = [_run_real(each, args.seconds) for each in of_sizes or [spec]]
    times = [measured_times(run, each) for run, each in zip(runs, of_sizes, strict=False)]
    for one in calibrate_cluster(
        runs[0], spec, folder, fit_sizes(times, sizes, spec) if sizes else None
    ):
        print(one)
    print(folder / CLUSTER)
    return DONE


def hold_against_real(args: Namespace) -> int:
    import pandas as pd

    from laggard.experiments.config.errors import ConfigError
    from laggard.experiments.real.calibration import calibrate_cluster
    from laggard.experiments.real.comparison import compare_real
    from laggard.experiments.real.processes import check_real

    overrides = list(filter(is_override, args.configs))
    specs = [_spec(path, overrides) for path in args.configs if path not in overrides]
    if not specs:
        raise ConfigError("", "expected a CONFIG before key=value", "laggard compare-real")
    for spec in specs:
        check_real(spec)
    tables = []
    for spec in specs:
        calibration = Path(args.calibration or Path(args.out) / spec.config.name)
        if args.calibration is None:
            calibrate_cluster(_run_real(spec, args.seconds), spec, calibration)
        run = _run_real(spec, args.seconds)
        table = compare_real(run, spec, calibration)
        tables.append(table.assign(config=spec.config.name, gradients=len(run.rows)))
        print(f"{spec.config.name}: {count(len(run.rows), 'gradient')}")
        print(
            table.to_string(index=False, float_format=lambda number: f"{number:.4g}", na_rep=""),
            flush=True,
        )
    every = pd.concat(tables)
    Path(args.out).mkdir(parents=True, exist_ok=True)
    path = Path(args.out) / "comparison.csv"
    every[["config", *every.columns.drop("config")]].to_csv(path, index=False, float_format="%.6g")
    print(path)
    return FAILED if (every["agrees"] == "no").any() else DONE


def import_recording(args: Namespace) -> int:
    from laggard.experiments.config.errors import ConfigError
    from laggard.experiments.real.importers import (
        chrome_steps,
        straggler_analysis_steps,
        write_import,
    )

    paths = [Path(file) for file in args.files]
    if args.format == "chrome":
        steps = chrome_steps(paths)
    elif len(paths) > 1:
        raise ConfigError(
            "", f"expected one table, got {len(paths)}", "laggard import straggler-analysis"
        )
    else:
        steps = straggler_analysis_steps(paths[0])
    config = write_import(steps, args.format, Path(args.out))
    print(
        f"{count(steps['worker'].nunique(), 'worker')}, {count(steps['step'].nunique(), 'step')} that all of them have"
    )
    print(config)
    return DONE


def _spec(path: str, overrides: list[str]) -> "RunSpec":
    """The one run of a config.

    Raises:
        ConfigError: it expands to several.
    """
    from laggard.experiments.config.errors import ConfigError
    from laggard.experiments.config.grid import runs
    from laggard.experiments.config.load import load

    planned = runs(load(path, *overrides))
    if len(planned) > 1:
        raise ConfigError(
            "sweep", f"expands to {count(len(planned), 'run')}: fix the swept keys", path
        )
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
        "calibrate",
        "run a config on real processes of this machine, and write a config with the times measured",
        calibrate_arguments,
        measure,
        MODULE,
    ),
    Command(
        "compare-real",
        "hold simulations against real processes of this machine",
        compare_arguments,
        hold_against_real,
        MODULE,
    ),
    Command(
        "import",
        "make a table of compute times and a config from what another program recorded",
        import_arguments,
        import_recording,
        "laggard.experiments.real.importers",
    ),
)
