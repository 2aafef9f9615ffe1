"""A page for each method: what it does, a run's first messages, a picture, and the statements and
questions about it.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from reference import description, schema_of, table

from laggard import Result, load, run
from laggard.experiments.config.document import find_config, read
from laggard.experiments.config.grid import runs
from laggard.experiments.config.parts import ALGORITHM
from laggard.experiments.figures import FIGURES
from laggard.experiments.league.entrants import COMPULSORY
from laggard.experiments.questions.catalogue import QUESTIONS
from laggard.experiments.questions.question import LeagueStudy, Study
from laggard.experiments.references import works_of

ROOT = Path(__file__).parents[1]
CONFIGS = ROOT / "configs" / "methods"
MOST_MESSAGES, MOST_STATEMENTS, UPDATES, GRADIENTS = 16, 12, 100, 10
STATEMENT_HEADING = (
    "| statement | expected | measured | tolerance |",
    "| --- | ---: | ---: | ---: |",
)


def write_pages(folder: Path) -> None:
    """Write the page of each method, and its picture, into `folder`."""
    folder.mkdir(exist_ok=True)
    statements = statement_rows((ROOT / "docs" / "statements.md").read_text(encoding="utf-8"))
    for name in ALGORITHM.parts:
        text = "\n".join(lines_of(name, folder, statements))
        (folder / f"{name}.md").write_text(text + "\n", encoding="utf-8")


def link_names(text: str) -> str:
    """A page whose tables begin with names of methods, each with a link to its own page."""
    names = "|".join(ALGORITHM.parts)
    return re.sub(rf"^\| (`({names})`) \|", r"| [\1](methods/\2.md) |", text, flags=re.MULTILINE)


def families() -> dict[str, list[str]]:
    """The methods of each family, in the order of docs/methods.md, by its heading."""
    found: dict[str, list[str]] = {}
    heading = ""
    for line in (ROOT / "docs" / "methods.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ")
        row = re.match(r"\| `(\w+)` \|", line)
        if row is not None and row[1] in ALGORITHM.parts:
            found.setdefault(heading, []).append(row[1])
    return found


def trees() -> str:
    """A table of contents for each family, for the sidebar of the site."""
    lines: list[str] = []
    for family, names in families().items():
        lines += ["```{toctree}", f":caption: {family}", ":hidden:"]
        lines += [f"methods/{name}" for name in names]
        lines += ["```", ""]
    return "\n".join(lines)


def full_name(name: str) -> str:
    """What a method is called in its description, before the colon, and its name in a config."""
    first_line = (ALGORITHM.parts[name].__doc__ or "").partition("\n")[0]
    return f"{first_line.partition(':')[0]} (`{name}`)"


def lines_of(name: str, folder: Path, statements: Sequence[str]) -> Iterator[str]:
    """The page of the method called `name`, whose picture is drawn into `folder`."""
    schema = schema_of(ALGORITHM.parts[name])
    yield from (f"# {full_name(name)}", "", *description(ALGORITHM.parts[name]), "", "## Keys", "")
    yield from table("algorithm", schema["properties"], schema) or ("None of its own.",)
    config = config_of(name)
    with TemporaryDirectory() as out:
        result = first_run(config, name, out)
        ends = result.updates.groupby("worker")["time"].nth(GRADIENTS - 1)
        FIGURES["timeline"].function(
            result, folder / f"{name}.png", until=ends.median() if len(ends) else None
        )
        sent = list(message_rows(result))
    said = f"The first run of [{config.name}](../../configs/methods/{config.name}), from its start."
    yield from (
        "",
        "## Who computes when",
        "",
        said,
        "",
        f"![A timeline of {name}]({name}.png)",
        "",
    )
    yield from (
        "```yaml",
        config.read_text(encoding="utf-8").rstrip(),
        "```",
        "",
        "## Messages",
        "",
    )
    heading = f"The first {len(sent)} of that run{name_servers(sent)}."
    yield from ((heading, "", *message_table(sent)) if sent else ("It sends none.",))
    own = statements_on(name, statements)
    yield from ("", "## Statements of theory", "")
    shown = own[:: math.ceil(len(own) / MOST_STATEMENTS) or 1]
    yield from (
        f"{len(shown)} of the {len(own)} [statements](../statements.md) that name it.",
        "",
    )
    yield from (*STATEMENT_HEADING, *shown)
    yield from (
        "",
        "## Questions about it",
        "",
        *question_lines(name),
        "",
        "## To cite",
        "",
        "```bibtex",
    )
    yield from (*sources(name), "```")


def config_of(name: str) -> Path:
    """The config in `configs/methods` that is about the method: of its name, or the first that
    begins with it.
    """
    named = CONFIGS / f"{name}.yaml"
    return named if named.is_file() else min(CONFIGS.glob(f"{name}_*.yaml"))


def first_run(config: Path, name: str, out: str) -> Result:
    """The beginning of the config's first run by the method, with its messages."""
    spec = next(spec for spec in runs(load(config)) if spec.config.algorithm.name == name)
    stop = spec.config.stop.model_copy(update={"updates": UPDATES})
    record = spec.config.record.model_copy(update={"messages": True})
    return run(spec.config.model_copy(update={"sweep": {}, "stop": stop, "record": record}), out)


def message_rows(result: Result) -> Iterator[Mapping[str, Any]]:
    """The first messages of a run."""
    yield from (
        result.messages.sort_values("sent", kind="stable").head(MOST_MESSAGES).to_dict("records")
    )


def name_servers(rows: Sequence[Mapping[str, Any]]) -> str:
    """What a reader of the messages must know about ranks below 0."""
    lowest = min((min(row["sender"], row["receiver"]) for row in rows), default=0)
    if lowest >= 0:
        return ""
    return "; -1 is the server" if lowest == -1 else "; ranks below 0 are servers"


def message_table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A line for each message: when it was sent and came, between which nodes, and its size."""
    yield from (
        "| sent (s) | from | to | what | bytes | arrived (s) |",
        "| ---: | ---: | ---: | --- | ---: | ---: |",
    )
    for row in rows:
        said = "{sent:.4f} | {sender} | {receiver} | {content} | {bytes:.0f} | {arrived:.4f}".format_map(
            row
        )
        yield f"| {said} |"


def statement_rows(page: str) -> list[str]:
    """The rows of the tables of a page, without headings."""
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    return [
        line
        for line, after in zip(lines, [*lines[1:], ""], strict=True)
        if "---" not in line + after
    ]


def statements_on(name: str, rows: Sequence[str]) -> list[str]:
    """Those of the rows whose statement names the method."""
    word = re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])")
    return [row for row in rows if word.search(row.split(" | ")[0])]


def question_lines(name: str) -> Iterator[str]:
    """A line for each question in whose studies the method takes part."""
    found = False
    for question in QUESTIONS.values():
        if any(takes_part(name, study) for study in question.studies.values()):
            found = True
            yield f"- [{question.asks}](../questions/{question.name}.md)"
    if not found:
        yield "No question has runs of it."


def takes_part(name: str, study: Study | LeagueStudy) -> bool:
    """Whether a study has runs of the method."""
    if isinstance(study, LeagueStudy):
        return name in (*COMPULSORY, *study.methods)
    return uses(read(find_config(f"example:studies/{study.config}")), name)


def uses(settings: Any, name: str) -> bool:
    """Whether a config, or a part of one, says that the algorithm is `name`."""
    if not isinstance(settings, Mapping):
        return False
    said = settings.get("algorithm"), settings.get("algorithm.name")
    names = [each.get("name") if isinstance(each, Mapping) else each for each in said]
    return any(name in each if isinstance(each, list) else name == each for each in names) or any(
        uses(each, name) for each in settings.values()
    )


def sources(name: str) -> Iterator[str]:
    """The works that the method's description names, in BibTeX."""
    works = works_of(ALGORITHM.parts[name].__doc__ or "")
    for work in works:
        yield work.bibtex
    if not works:
        yield "% its description names no published work"
