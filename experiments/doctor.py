"""Checks that this machine can run laggard, with a remedy for each that fails; without a network.

Nothing that may be broken is imported before its check.
"""

import platform
import tempfile
from collections.abc import Iterator
from importlib import import_module, metadata
from pathlib import Path
from typing import Literal, NamedTuple

REQUIRED_PACKAGES = (
    "bokeh", "cloudpickle", "filelock", "jinja2", "joblib", "matplotlib", "networkx", "numba", "numpy",
    "pandas", "platformdirs", "pyarrow", "pydantic", "rich", "ruamel.yaml", "safetensors", "scipy",
    "simpy", "torch",
)  # fmt: skip
OPTIONAL_PACKAGES = {
    "torchvision": "vision",
    "scikit-learn": "sklearn",
    "tensorboard": "tensorboard",
    "wandb": "wandb",
    "mlflow": "mlflow",
    "ray": "ray",
    "distributed": "dask",
}
"""Packages that some runs and commands need -> the extra that installs them."""
IMPORT_NAMES = {
    "pyarrow": "pyarrow.parquet",
    "safetensors": "safetensors.torch",
    "scikit-learn": "sklearn",
    "scipy": "scipy.special",
}
"""Packages -> the module to import, where it is not the package itself."""
INSTALL = "install laggard again with --constraint constraints.txt"
REPAIR = {"torchvision": "install torch and torchvision from the same index"}
"""Packages -> the remedy if they are installed but cannot be imported."""


class Diagnosis(NamedTuple):
    """The result of one check.

    Attributes:
        state: `ok`; `missing`, if only some runs need it; `broken`, if no run can work.
        remedy: empty if the state is ok.
    """

    subject: str
    state: Literal["ok", "missing", "broken"]
    text: str
    remedy: str = ""


def diagnose(out: str | Path = "results") -> Iterator[Diagnosis]:
    """Check Python, packages, GPU, data sets, and the folder of results.

    Args:
        out: the folder for results; it is not created.
    """
    yield Diagnosis("python", "ok", platform.python_version())
    for package in REQUIRED_PACKAGES:
        yield _check_package(package, "broken", INSTALL)
    for package, extra in OPTIONAL_PACKAGES.items():
        yield _check_package(package, "missing", f"pip install 'laggard[{extra}]'")
    try:
        yield _describe_gpu()
        yield from _check_data()
    except ImportError:  # reported above
        pass
    yield _check_folder(Path(out))


def _check_package(package: str, failed: Literal["missing", "broken"], remedy: str) -> Diagnosis:
    try:
        version = metadata.version(package)
        import_module(IMPORT_NAMES.get(package, package))
    except metadata.PackageNotFoundError:
        return Diagnosis(package, failed, "not installed", remedy)
    except Exception as error:  # a broken package may raise anything
        cause = f"{type(error).__name__}: {error}".partition("\n")[0]
        text = f"{version}, but its import fails: {cause}"
        return Diagnosis(package, failed, text, REPAIR.get(package, remedy))
    return Diagnosis(package, "ok", version)


def _describe_gpu() -> Diagnosis:
    import torch

    if not torch.cuda.is_available():
        return Diagnosis("gpu", "ok", "none: runs use the CPU")
    return Diagnosis("gpu", "ok", f"{torch.cuda.get_device_name()}: runs use it (device: auto)")


def _check_data() -> Iterator[Diagnosis]:
    """Look for the files of data sets that are downloaded; their content is not checked."""
    from laggard.models.published import PUBLISHED, REMEDY, find_files

    for name in PUBLISHED:
        files = find_files(name)
        if files.missing:
            text = f"no {', '.join(files.missing)} in {files.folder}"
            yield Diagnosis(name, "missing", text, REMEDY)
        else:
            yield Diagnosis(name, "ok", f"in {files.folder}")


def _check_folder(out: Path) -> Diagnosis:
    parents = [out.absolute(), *out.absolute().parents]
    existing = next(folder for folder in parents if folder.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        text = f"{out} cannot be written: {error.strerror}"
        return Diagnosis("results", "broken", text, "choose another folder with --out FOLDER")
    return Diagnosis("results", "ok", f"{out} can be written")
