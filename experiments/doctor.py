"""What this machine has of what a run needs, and what to do about the rest; without a network."""

import importlib
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from configparser import ConfigParser
from importlib import metadata
from pathlib import Path
from typing import Literal, NamedTuple

import laggard
from laggard.experiments.commands import MODULES

REMEDIES = {
    "torchvision": "only downloads and its own networks need it; install torch and torchvision from the same index"
}
"""Libraries without which most runs work -> the remedy where their import fails."""
IMPORTED = {
    "pyarrow": "pyarrow.parquet",
    "safetensors": "safetensors.torch",
    "scikit-learn": "sklearn.datasets",
    "scipy": "scipy.special",
}
"""Libraries -> the module that must be importable, where it is not called as they are."""
IMAGE_DATASETS = {"MNIST": "mnist", "FashionMNIST": "fashion_mnist"}
ROOT = Path(__file__).resolve().parents[1]
INSTALL = (
    "install laggard again with --constraint constraints.txt, or make quickstart in the checkout"
)
LEAST_SPACE = 200 * 2**20  # bytes


class Diagnosis(NamedTuple):
    """One line: what was looked at, how it is, and the remedy where it is not well.

    Attributes:
        state: ok; missing, where runs work all the same, but not all of them; broken, where none
            does.
    """

    subject: str
    state: Literal["ok", "missing", "broken"]
    said: str
    remedy: str = ""


def diagnose(out: str | Path = "results") -> Iterator[Diagnosis]:
    """Everything that was looked at; a run can work where nothing is broken.

    Args:
        out: where results would be kept.
    """
    fine = sys.version_info >= (3, 11)
    yield Diagnosis(
        "python",
        "ok" if fine else "broken",
        platform.python_version(),
        "" if fine else "use Python 3.11 or newer",
    )
    yield from _libraries()
    yield _installation(ROOT)
    yield from _machine()
    yield from _data()
    yield _results(Path(out))


def _libraries() -> Iterator[Diagnosis]:
    for requirement in _requirements():
        library = re.split("[<>=!~]", requirement)[0]
        try:
            version = metadata.version(library)
            importlib.import_module(IMPORTED.get(library, library))
            from packaging.specifiers import SpecifierSet

            expected = SpecifierSet(requirement.removeprefix(library))
        except metadata.PackageNotFoundError:
            yield Diagnosis(library, "broken", "not installed", INSTALL)
        except Exception as error:  # whatever a broken library raises, the others are worth a look
            cause = next(iter(str(error).splitlines()), "")
            said = f"{version}, but its import fails: {type(error).__name__}: {cause}"
            state: Literal["missing", "broken"] = "missing" if library in REMEDIES else "broken"
            yield Diagnosis(library, state, said, REMEDIES.get(library, INSTALL))
        else:
            if expected.contains(version, prereleases=True):
                yield Diagnosis(library, "ok", version)
            else:
                yield Diagnosis(library, "missing", f"{version}, expected {expected}", INSTALL)


def _requirements() -> list[str]:
    """What this checkout or installation requires, as `torch>=2.6,<2.14`."""
    config = ConfigParser()
    if config.read(ROOT / "setup.cfg"):
        return config["options"]["install_requires"].split()
    return [line for line in metadata.requires("laggard") or [] if "extra ==" not in line]


def _installation(root: Path) -> Diagnosis:
    """Whether the packages under `root` are whole."""
    packages = [f"{package}/__init__.py" for package in ("simulator", "models", "experiments")]
    commands = [f"experiments/commands/{name}.py" for name in MODULES]
    data = ["experiments/**/laggard.mplstyle", "experiments/templates"]
    checkout = (
        ["configs/quickstart.yaml", "constraints.txt"] if (root / "setup.cfg").is_file() else []
    )
    kind = "checkout" if checkout else "installation"
    lacking = [
        name for name in (*packages, *commands, *data, *checkout) if not any(root.glob(name))
    ]
    if lacking:
        remedy = (
            "git status shows what is gone; git restore brings it back"
            if checkout
            else "install laggard again"
        )
        return Diagnosis("laggard", "broken", f"{kind} without {', '.join(lacking)}", remedy)
    return Diagnosis("laggard", "ok", f"{laggard.__version__}, {kind} complete")


def _machine() -> Iterator[Diagnosis]:
    # `laggard.models.backends.threads.cores` says the same, but needs torch, which may be what is
    # broken
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    yield Diagnosis(
        "cores",
        "ok",
        f"{cores} to be used, of {os.cpu_count()}; threads: null in a config takes {cores}",
    )
    if memory := _memory():
        yield Diagnosis("memory", "ok", f"{memory / 2**30:.1f} GiB")
    try:
        import torch
    except Exception:  # said among the libraries
        return
    yield Diagnosis(
        "cpu", "ok", f"{platform.machine()}, torch uses {torch.backends.cpu.get_cpu_capability()}"
    )
    if not torch.cuda.is_available():
        yield Diagnosis("gpu", "ok", "none that torch sees: device auto is the cpu")
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        found = torch.cuda.get_device_properties(index)
        used = "device auto is this" if index == 0 else "not used: a run takes the first"
        yield Diagnosis("gpu", "ok", f"{found.name}, {found.total_memory / 2**30:.0f} GiB; {used}")


def _memory() -> int | None:
    """Bytes that this process may use: the machine's, or its container's if that is less."""
    limits = []
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        path = Path(file)
        if path.is_file() and (text := path.read_text().strip()).isdecimal():
            limits.append(int(text))
    return min(limits) if limits else None


def _data() -> Iterator[Diagnosis]:
    yield Diagnosis("digits", "ok", "comes with scikit-learn")
    try:
        from laggard.models.data import IDX_FILES, data_root
    except Exception:  # torch is missing, as was said
        return
    for name, key in IMAGE_DATASETS.items():
        folder = data_root() / name / "raw"
        lacking = [file for file in IDX_FILES if not (folder / file).is_file()]
        broken = [
            file for file in IDX_FILES if file not in lacking and not _is_whole(folder / file)
        ]
        put = f"the first run of dataset {key} downloads it there; without a network put {', '.join(IDX_FILES)} there"
        if broken:
            yield Diagnosis(
                key,
                "missing",
                f"in {folder}: {', '.join(broken)} is no whole IDX file",
                f"remove it: {put}",
            )
        elif lacking:
            said = "not" if len(lacking) == len(IDX_FILES) else f"without {', '.join(lacking)}"
            yield Diagnosis(key, "missing", f"{said} in {folder}", f"{put}, or set LAGGARD_DATA")
        else:
            yield Diagnosis(key, "ok", f"complete in {folder}")
    yield from _releases()


def _releases() -> Iterator[Diagnosis]:
    """Whether the binary releases of CIFAR are there, with files of the right size."""
    from laggard.models.cifar import CIFAR10, CIFAR100
    from laggard.models.data import data_root

    for key, release in {"cifar10": CIFAR10, "cifar100": CIFAR100}.items():
        folder = data_root() / release.folder
        sizes = {file: count * release.record for file, count in release.files.items()}
        lacking = [file for file in sizes if not (folder / file).is_file()]
        broken = [
            file
            for file in sizes
            if file not in lacking and (folder / file).stat().st_size != sizes[file]
        ]
        unpack = f"unpack {release.archive} in {folder.parent}"
        put = f"the first run of dataset {key} downloads it there; without a network {unpack}"
        if broken:
            yield Diagnosis(
                key,
                "missing",
                f"in {folder}: {', '.join(broken)} is not whole",
                f"remove it: {put}",
            )
        elif lacking:
            yield Diagnosis(
                key,
                "missing",
                f"without {', '.join(lacking)} in {folder}",
                f"{put}, or set LAGGARD_DATA",
            )
        else:
            yield Diagnosis(key, "ok", f"complete in {folder}")


def _is_whole(path: Path) -> bool:
    """Whether an IDX file is as long as its header says."""
    from laggard.models.data import read_idx

    try:
        read_idx(path)
    except ValueError:
        return False
    return True


def _results(out: Path) -> Diagnosis:
    """Whether results can be written below `out`, which is not made for that."""
    there = next(folder for folder in (out.absolute(), *out.absolute().parents) if folder.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
        free = shutil.disk_usage(there).free
    except OSError as error:
        return Diagnosis(
            "results",
            "broken",
            f"{out} cannot be written: {error.strerror}",
            "choose another by --out FOLDER",
        )
    if free < LEAST_SPACE:
        return Diagnosis(
            "results",
            "broken",
            f"{out}: {free / 2**20:.0f} MiB are free",
            "free some space, or use --out FOLDER",
        )
    return Diagnosis("results", "ok", f"{out} can be written, {free / 2**30:.0f} GiB are free")
