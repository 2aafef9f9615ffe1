"""A run or a sweep as one HTML page that needs nothing else: tables, figures, config and provenance."""

import os
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from experiments.documents import text_of
from experiments.report import sections
from experiments.report.pictures import pictures
from experiments.results import question as asked
from experiments.store import Result

__all__ = ["page", "write"]

HERE = Path(__file__).parent


def write(results: Sequence[Result], path: str | Path, question: str | None = None) -> None:
    """Write the page of `results`, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    path = Path(path)
    text = page(results, question)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        part.unlink(missing_ok=True)


def page(results: Sequence[Result], question: str | None = None) -> str:
    """The page: what came out, who waited, how stale gradients were, how it was run, and what vouches for it.

    It has no script and refers to nothing outside itself.

    Args:
        results: one run, or the runs of a sweep.
        question: to stand below the title; by default what the results' configs asked.
    """
    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    first, named = results[0], sections.labels(results)
    return environment.get_template("page.html").render(
        style=(HERE / "page.css").read_text(encoding="utf-8"),
        name=first.config.name,
        question=asked(results) if question is None else question,
        several=len(results) > 1,
        facts=sections.facts(results),
        summary=sections.outcomes(results),
        pictures=pictures(results, named),
        waiting=sections.waiting(results, named),
        staleness=sections.staleness(results, named),
        configs=[(name, text_of(of.config.resolved())) for name, of in zip(named, results, strict=True)],
        manifests=[(name, sections.provenance(of)) for name, of in zip(named, results, strict=True)],
    )
