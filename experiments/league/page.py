"""The files of a league: a figure, an HTML page, JSON, and the config of the runs that report."""

import json
from base64 import b64encode
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from laggard.experiments.config.document import text_of
from laggard.experiments.figures import FIGURES
from laggard.experiments.league.entrants import ALL_REDUCE
from laggard.experiments.league.play import AS_GIVEN, League
from laggard.experiments.league.words import honesty, record, rules, sentence, table
from laggard.experiments.results.files import whole_file

TEMPLATE_FOLDER = Path(__file__).parent
METHODS_SHOWN = 5
"""The number of best methods in the figure, besides the overlapped all-reduce."""
FIGURE, PAGE, DATA, CONFIG = "league.png", "league.html", "league.json", "league.yaml"


def write_league(league: League, out: Path) -> list[Path]:
    """Write all files of a league to a folder; return their paths.

    Raises:
        OSError: one of them cannot be written.
    """
    report = {**league.report.explicit(), "sweep": league.report.sweep}
    texts = {DATA: json.dumps(record(league), indent=2), CONFIG: text_of(report)}
    names = [ALL_REDUCE, *(row.name for row in league.rows[:METHODS_SHOWN])]
    shown = league.results.where(condition=AS_GIVEN, method=names)
    FIGURES["learning"].draw(shown, out / FIGURE)
    texts[PAGE] = page(league, (out / FIGURE).read_bytes())
    for name, text in texts.items():
        with whole_file(out / name) as part:
            part.write_text(text, encoding="utf-8")
    return [out / name for name in (PAGE, FIGURE, DATA, CONFIG)]


def page(league: League, figure: bytes) -> str:
    """The page; it has no script and refers to nothing outside itself."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATE_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
    )
    heading, *rows = table(league)
    return environment.get_template("page.html").render(
        sentence=sentence(league),
        cluster=league.setting.cluster_file,
        task=league.setting.task_file,
        heading=heading,
        rows=rows,
        bounds=honesty(league),
        rules=rules(league),
        refused=league.refused,
        figure=b64encode(figure).decode(),
        config=text_of({"cluster": league.setting.base["cluster"]}),
    )
