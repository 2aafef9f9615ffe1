"""`references.bib` has the works that docstrings name as their sources."""

import ast
import re
from pathlib import Path

from pybtex.database import parse_file

from laggard.experiments.cli import main
from laggard.experiments.references import (
    AUTHOR_AND_YEAR,
    SOURCE_PARAGRAPH,
    VENUES,
    works,
    works_of,
)
from tests.documents import ROOT

PACKAGES = [
    "simulator",
    "models",
    *(f"experiments/{folder}" for folder in ("config", "real", "results", "running", "theory")),
]
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef)


def docstrings_with_sources():
    """Every docstring with a source, by its place."""
    found = {}
    for file in (file for package in PACKAGES for file in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            text = (ast.get_docstring(node) or "") if isinstance(node, DOCUMENTED) else ""
            if SOURCE_PARAGRAPH.search(text):
                place = Path(file).relative_to(ROOT)
                found[f"{place}: {getattr(node, 'name', '')}"] = text
    return found


def test_every_named_source_is_in_references():
    missing = []
    for place, text in docstrings_with_sources().items():
        source = " ".join(" ".join(SOURCE_PARAGRAPH.findall(text)).split())
        numbers = {work.arxiv for work in works_of(text)}
        years = {re.sub(r"[a-z]*$", "", work.key) for work in works_of(text)}
        missing += [
            (place, number)
            for number in re.findall(r"arXiv.(\d{4}\.\d{4,5})", source)
            if number not in numbers
        ]
        missing += [
            (place, author, year)
            for author, year in AUTHOR_AND_YEAR.findall(source)
            if author.lower() + year not in years
        ]
    assert missing == []


def test_parser_of_bibtex_reads_every_reference():
    """It raises for what is no BibTeX and for a key that stands twice."""
    entries = parse_file(str(ROOT / "experiments/references.bib")).entries
    assert list(entries) == sorted(works())
    for key, entry in entries.items():
        assert entry.fields["title"], key
        assert [field for field in VENUES if entry.fields.get(field)], key
        authors = entry.persons["author"]
        assert authors, key
        assert not any(str(author).lower() in ("others", "et al.") for author in authors), key
        assert all(author.last_names for author in authors), key


def test_every_reference_is_complete():
    text = (ROOT / "experiments/references.bib").read_text(encoding="utf-8")
    assert len(works()) == text.count("@")
    assert text == "\n".join(work.bibtex for work in works().values())
    for key, work in works().items():
        assert re.fullmatch(r"[a-z]+\d{4}[a-z]*", key)
        assert work.fields["year"] in key
    numbers = [work.arxiv for work in works().values() if work.arxiv]
    assert len(set(numbers)) == len(numbers)


def test_list_names_the_works_of_an_entry(capsys):
    assert main(["list", "adpsgd"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "lian2018: Lian, Zhang, Zhang, Liu (2018). Asynchronous Decentralized" in shown
    assert "arXiv 1710.06952" in shown
