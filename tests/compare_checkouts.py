"""Compare what two checkouts compute, bit for bit: every config but the studies, cut to a
few short runs.

    python tests/compare_checkouts.py OLD NEW [--keep FOLDER] [--updates 300] [--within 0] [CONFIG
    ...]

Of each config the first 2 runs of its sweep, with all members of their ensembles, are simulated for
300 updates. Each side reads its own configs in its own checkout with its own interpreter. Then the
columns of `updates.parquet` and the final weights must be equal; where gradients are computed in
another way, the weights may differ by so much of their largest entry (`--within 1e-5`). A line per
config says whether they are; the exit code is 1 if any differs.

Gradients are computed on the CPU by one thread on both sides: the order of floating-point sums, and
with it the last bit of normalised data and of gradients, depends on the number of threads. Configs
that learn MNIST need LAGGARD_DATA. All configs take several minutes a side on two cores.
"""

import os
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np

RUNS = 2
CUT = ("device=cpu", "threads=1")
TABLES = ("metrics", "updates", "workers", "nodes", "messages", "restores", "notes")


def main() -> int:
    """Simulate both sides, compare them, and return the exit code."""
    given = arguments()
    folder = given.old / "configs"
    every = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*.yaml"))]
    names = given.configs or [
        name for name in every if not name.startswith(("studies/", "presets/"))
    ]
    if not names:
        sys.exit(f"{folder} holds no configs")
    with TemporaryDirectory() as scratch:
        old, new = given.keep or Path(scratch, "old"), Path(scratch, "new")
        if given.keep:
            check_revision(given.keep, given.old)
        simulate(given.old, given.python_old, old, names, given)
        simulate(given.new, given.python_new, new, names, given)
        found = {
            name: differences(old / name, new / name, given.tables, given.within) for name in names
        }
    for name, texts in found.items():
        sys.stdout.write(f"{name}: differs: {'; '.join(texts)}\n" if texts else f"{name}: equal\n")
    return 1 if any(found.values()) else 0


def arguments() -> Namespace:
    """The command line."""
    parser = ArgumentParser(description="Compare the behaviour of two checkouts.")
    parser.add_argument("old", type=Path, help="reference checkout")
    parser.add_argument("new", type=Path, help="checkout to compare with it")
    parser.add_argument(
        "configs",
        nargs="*",
        help="files of OLD, relative to its `configs`; default: all but studies",
    )
    for side in ("old", "new"):
        parser.add_argument(
            f"--python-{side}",
            type=Path,
            help="its interpreter; default: .venv's, or else this one",
        )
    parser.add_argument(
        "--keep", type=Path, help="folder in which the results of OLD are kept and looked for"
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    parser.add_argument("--updates", type=int, default=300, help="of each run")
    parser.add_argument(
        "--within",
        type=float,
        default=0.0,
        help="tolerance of weights, relative to their largest entry",
    )
    parser.add_argument(
        "--tables", nargs="+", choices=TABLES, default=["updates"], help="tables to compare"
    )
    return parser.parse_intermixed_args()


def check_revision(folder: Path, checkout: Path) -> None:
    """Note in `folder` whose results it keeps; end the program if they are another commit's."""
    revision = subprocess.check_output(["git", "-C", str(checkout), "rev-parse", "HEAD"], text=True)
    folder.mkdir(parents=True, exist_ok=True)
    noted = folder / "revision"
    if noted.is_file() and noted.read_text() != revision:
        sys.exit(
            f"{folder} keeps results of commit {noted.read_text().strip()}, but OLD is at {revision.strip()}"
        )
    noted.write_text(revision)


def simulate(
    checkout: Path, python: Path | None, folder: Path, names: Sequence[str], given: Namespace
) -> None:
    """Fill `folder / name` for each config that is not there yet, in processes of the checkout's
    interpreter.
    """
    missing = [
        name
        for name in names
        if not (folder / name).is_dir() or (folder / name / "error").is_file()
    ]
    for name in missing:
        rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir(parents=True)
        # until it has succeeded
        (folder / name / "error").write_text(f"{checkout.name}: its process was ended")
    own = checkout / ".venv" / "bin" / "python"
    python = python or (own if own.is_file() else Path(sys.executable))
    # -P: the folder of this script has folders named like packages of the checkout, so it is kept
    # off the path
    command = [
        str(python.absolute()),
        "-P",
        str(Path(__file__).resolve()),
        "--child",
        str(folder.resolve()),
        str(given.updates),
    ]
    settings = {
        "PYTHONPATH": str(checkout.resolve()),
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }
    shares = [
        [*command, *missing[first :: given.jobs]] for first in range(min(given.jobs, len(missing)))
    ]
    for process in [
        subprocess.Popen(share, cwd=checkout, env={**os.environ, **settings}) for share in shares
    ]:
        process.wait()


def child(folder: Path, updates: int, names: Sequence[str]) -> None:
    """Simulate configs of the checkout in the current directory."""
    package = import_module("laggard")
    if not Path(str(package.__file__)).resolve().is_relative_to(Path.cwd()):
        sys.exit(f"laggard is imported from {package.__file__}, not from the checkout {Path.cwd()}")
    try:
        expand = import_module("laggard.experiments.config.sweep").runs
    except ImportError:  # the older layout
        expand = import_module("laggard.experiments.config.grid").runs
    cut = (f"stop={{updates: {updates}}}", *CUT)
    for name in names:
        start = perf_counter()
        try:
            for number, run in enumerate(expand(package.load(Path("configs") / name, *cut))[:RUNS]):
                package.run(run.config, folder / name).path.rename(folder / name / f"run {number}")
            (folder / name / "error").unlink()
        except Exception as error:  # the other configs are compared all the same
            (folder / name / "error").write_text(
                f"{Path.cwd().name}: {type(error).__name__}: {error}"
            )
        sys.stderr.write(f"{Path.cwd().name}: {name}: {perf_counter() - start:.1f} s\n")


def differences(old: Path, new: Path, tables: Sequence[str], within: float) -> list[str]:
    """What differs between the runs of a config in two folders, in words."""
    errors = [path.read_text() for path in (old / "error", new / "error") if path.is_file()]
    if errors:
        return errors
    runs, new_runs = ([path.name for path in sorted(folder.glob("run *"))] for folder in (old, new))
    if runs != new_runs:
        return [f"{len(runs)} runs in old, {len(new_runs)} in new"]
    found = []
    for run in runs:
        before = columns(old / run, tables)
        after = columns(new / run, tables)
        for name in [*before, *(after.keys() - before.keys())]:
            if text := difference(
                before.get(name), after.get(name), 0.0 if "." in name else within
            ):
                found.append(f"{run}: {name}: {text}")
    return found


def columns(run: Path, tables: Sequence[str]) -> dict[str, np.ndarray]:
    """The final weights of a run, and the columns of those of its tables that it recorded, as
    `table.column`.
    """
    import pandas as pd
    from safetensors.numpy import load_file

    recorded = {table: path for table in tables if (path := run / f"{table}.parquet").is_file()}
    frames = {table: pd.read_parquet(path) for table, path in recorded.items()}
    found = {
        f"{table}.{name}": frame[name].to_numpy()
        for table, frame in frames.items()
        for name in frame.columns
    }
    return found | load_file(run / "weights.safetensors")


def difference(old: np.ndarray | None, new: np.ndarray | None, within: float) -> str:
    """How two columns differ, in words; empty if they are equal, where NaN equals NaN, or within so
    much of `old`.
    """
    if old is None or new is None:
        return "only in new" if old is None else "only in old"
    if old.shape != new.shape:
        return f"shape {old.shape} in old, {new.shape} in new"
    unequal = (old != new) & ~((old != old) & (new != new))
    if not unequal.any():
        return ""
    text = f"{unequal.sum()} of {unequal.size} values differ"
    if old.dtype == object or new.dtype == object:
        return text
    most = np.abs(old[unequal].astype(float) - new[unequal].astype(float)).max()
    return "" if most <= within * np.abs(old).max() else f"{text}, by at most {most:.3g}"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
    else:
        sys.exit(main())
