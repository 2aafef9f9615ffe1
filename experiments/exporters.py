"""Exports runs to TensorBoard, Weights & Biases and MLflow: metrics, settings, the config."""

from collections.abc import Callable, Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from laggard.experiments.config.document import text_of
from laggard.experiments.config.errors import ConfigError, unknown_name
from laggard.experiments.results.result import Result
from laggard.experiments.results.results import Results, as_results, dotted_items


class Exported(NamedTuple):
    """A member of a run, as all three libraries take it.

    Attributes:
        experiment: the name of the config.
        name: the run's id, with the number of the member where there are several.
        settings: every dotted key of the config that has a value; a swept key has the value of this
            member.
        text: the config as YAML.
        rows: the axes and the finite measures of each evaluation.
    """

    experiment: str
    name: str
    settings: Mapping[str, Any]
    text: str
    rows: list[dict[str, float]]

    def measures(self) -> Iterator[tuple[str, float, int, float]]:
        """Name, value, updates (rounded) and virtual time (s) of each measure."""
        for row in self.rows:
            for name, value in row.items():
                if name not in ("time", "updates"):
                    yield name, value, round(row["updates"]), row["time"]


def write_runs(results: Result | Results, to: str, folder: str | Path) -> Path:
    """Write each member of each run as a run of `to`, into a folder; nothing is sent anywhere.

    Args:
        to: tensorboard, wandb (offline, for `wandb sync`) or mlflow.

    Raises:
        ConfigError: the library is not installed, or TensorBoard has a run of this name in the
            folder.
    """
    if to not in EXPORTERS:
        raise unknown_name("to", to, EXPORTERS).relocate(where="export")
    folder = Path(folder)
    for result in as_results(results):
        for member in _members(result):
            try:
                EXPORTERS[to](member, folder)
            except ImportError as error:
                remedy = f"pip install 'laggard[{to}]'"
                raise ConfigError(
                    "", f"{to} cannot be imported here ({error}): {remedy}", "export"
                ) from None
    return folder


def _members(result: Result) -> Iterator[Exported]:
    config = result.config
    document = config.as_dict()
    settings = {key: value for key, value in dotted_items(document) if value is not None}
    others = {"member", *result.swept, *result.labels}
    measured = [name for name in result.metrics if name not in others]
    rows = result.members.to_dict("records")
    for row in rows:
        member = row.pop("member")
        name = str(result.manifest["run"])
        if len(rows) > 1:
            name += f".{member}"
        evaluations = result.metrics.loc[result.metrics["member"] == member, measured]
        finite = [
            {key: value for key, value in evaluation.items() if isfinite(value)}
            for evaluation in evaluations.to_dict("records")
        ]
        yield Exported(config.name, name, {**settings, **row}, text_of(document), finite)


def _tensorboard(member: Exported, folder: Path) -> None:
    """Steps are updates, and the wall time is the virtual one: TensorBoard's axis `relative`."""
    from torch.utils.tensorboard import SummaryWriter

    path = folder / member.name
    if path.exists():
        raise ConfigError(
            "", "expected no run of this name, got one: remove it or name another folder", str(path)
        )
    plain = dict(member.settings)
    for key, value in member.settings.items():
        if not isinstance(value, int | float | str):  # TensorBoard refuses it
            plain[key] = str(value)
    with SummaryWriter(str(path)) as writer:
        for name, value, step, time in member.measures():
            writer.add_scalar(name, value, step, walltime=time)
        # indented by four: TensorBoard shows Markdown, in which this is code
        writer.add_text("config", "".join(f"    {line}\n" for line in member.text.splitlines()))
        # without a name it would write to a new folder, named by the wall time
        writer.add_hparams(
            plain, {f"final/{name}": value for name, value in member.rows[-1].items()}, run_name="."
        )


def _wandb(member: Exported, folder: Path) -> None:
    from wandb import Settings, init

    quiet = Settings(
        silent=True, console="off", disable_git=True, save_code=False, x_disable_stats=True
    )
    folder.mkdir(parents=True, exist_ok=True)
    given = {
        "config": {**member.settings, "yaml": member.text},
        "dir": str(folder),
        "settings": quiet,
    }
    # "create_new": a run that the caller has open, as in a notebook, stays open
    with init(
        mode="offline", project=member.experiment, name=member.name, reinit="create_new", **given
    ) as run:
        run.define_metric("*", step_metric="updates")
        for row in member.rows:
            run.log(row)


def _mlflow(member: Exported, folder: Path) -> None:
    """Steps are updates, and timestamps the virtual time; `mlflow ui --backend-store-uri
    sqlite:///DIR/mlflow.db`.
    """
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param

    folder.mkdir(parents=True, exist_ok=True)
    client = MlflowClient(tracking_uri=f"sqlite:///{folder.absolute() / 'mlflow.db'}")
    found = client.get_experiment_by_name(member.experiment)
    where = (folder.absolute() / "artifacts").as_uri()
    if found:
        experiment = found.experiment_id
    else:
        experiment = client.create_experiment(member.experiment, artifact_location=where)
    run = client.create_run(experiment, run_name=member.name).info.run_id
    params = [Param(key, str(value)) for key, value in member.settings.items()]
    metrics = [
        Metric(name, value, round(1000 * time), step)  # MLflow's timestamps are in ms
        for name, value, step, time in member.measures()
    ]
    for start in range(0, max(len(params), len(metrics)), 100):  # a request's limit of params
        client.log_batch(run, metrics[start : start + 100], params[start : start + 100])
    client.log_text(run, member.text, "config.yaml")
    client.set_terminated(run)


EXPORTERS: dict[str, Callable[[Exported, Path], None]] = {
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "mlflow": _mlflow,
}
