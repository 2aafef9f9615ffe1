"""What a notebook asks of one run or of many: tables, figures and HTML, made by modules that import
results.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from laggard.experiments.notebook import Plots


class Views:
    """What `Result` and `Results` show: each is made when it is asked for, and torch is imported
    for none of them.
    """

    def table(
        self,
        rows: Sequence[str] | None = None,
        columns: str | None = None,
        value: Sequence[str] | None = None,
        target: float | None = None,
        best: Sequence[str] | None = None,
        by: str | None = None,
        select_seeds: Sequence[int] | None = None,
    ) -> "pd.DataFrame":
        """What `laggard table` prints, as texts; `attrs` has its `question` and `notes`.

        Args:
            rows: keys whose settings are rows; by default all that were swept, but seeds.
            columns: a key whose settings are columns.
            value: what is estimated, such as `accuracy`, `time_to` and `staleness`.
            target: the test accuracy (0 to 1), else the test loss, that `time_to` and its like wait
                for.
            best: of these keys only the best setting of each row.
            by: accuracy, loss, time or updates: what is best.
            select_seeds: that choose the best, while the others report; by default the first half.

        Raises:
            ValueError: no such key, value or seed, or a key was swept that is in neither `rows` nor
                `columns`.
        """
        made = import_module("laggard.experiments.results.tables")
        found: pd.DataFrame = made.tabulate(
            self, rows, columns, value, target, best, by, select_seeds
        ).frame
        return found

    @property
    def summary(self) -> "pd.DataFrame":
        """A row per run and member, by the `run`'s id: `laggard.summary`, and `wall_seconds` of the
        simulation.
        """
        found: pd.DataFrame = _notebook().timed_summary(self)
        return found

    @property
    def plot(self) -> "Plots":
        """The figures by name, as in `results.plot.staleness()`; `results.plot()` is
        `comparison`.
        """
        found: Plots = _notebook().Plots(self)
        return found

    def export(self, to: str, folder: "str | Path") -> "Path":
        """Write each run and member for another program, as a run of its own, into a folder; return
        the folder.

        Args:
            to: tensorboard, wandb (offline, for `wandb sync`) or mlflow.

        Raises:
            ConfigError: no such program, or it is not installed; says what to install.
        """
        found: Path = import_module("laggard.experiments.exporters").write_runs(self, to, folder)
        return found

    def _repr_html_(self) -> str:
        return str(_notebook().html_of(self))


def _notebook() -> Any:
    """By its name: what it shows results with imports results."""
    return import_module("laggard.experiments.notebook")
