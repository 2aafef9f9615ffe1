"""The published works that docstrings name as their sources, from `references.bib`."""

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

REFERENCES = Path(__file__).with_suffix(".bib")
BIBTEX_ENTRY = re.compile(r"^@\w+\{(\S+),\n(.*?)^\}\n", flags=re.MULTILINE | re.DOTALL)
BIBTEX_FIELD = re.compile(r"^  (\w+) = \{(.*)\},$", flags=re.MULTILINE)
SOURCE_PARAGRAPH = re.compile(r"^ *Source: (.*?)(?=\n\s*\n|\Z)", flags=re.MULTILINE | re.DOTALL)
AUTHOR_AND_YEAR = re.compile(r"([A-Z][\w'-]+)(?:(?:,| &)? [A-Z][\w'-]+)*(?: et al\.)? \((\d{4})\)")
"""`Lian et al. (2018)`, `Sergeev & Del Balso (2018)`: the first author and the year."""
PREPRINT = "arXiv preprint"
VENUES = ("booktitle", "journal", "publisher", "institution", "howpublished")


class Reference(NamedTuple):
    """An entry of `references.bib`: its key, its fields, and its text in BibTeX."""

    key: str
    fields: dict[str, str]
    bibtex: str

    @property
    def arxiv(self) -> str | None:
        """The number of the preprint."""
        return self.fields.get("eprint")

    def __str__(self) -> str:
        authors = [author.split(",")[0] for author in self.fields["author"].split(" and ")]
        venue = [self.fields[field] for field in VENUES if field in self.fields]
        if PREPRINT in venue:
            venue.remove(PREPRINT)  # the number of the preprint says it
        pieces = [f"{', '.join(authors)} ({self.fields['year']})", self.fields["title"], *venue]
        if self.arxiv:
            pieces.append(f"arXiv {self.arxiv}")
        return f"{self.key}: {'. '.join(pieces)}"


@cache
def works() -> dict[str, Reference]:
    """Every work, by its key."""
    text = REFERENCES.read_text(encoding="utf-8")
    entries = BIBTEX_ENTRY.finditer(text)
    return {
        entry[1]: Reference(entry[1], dict(BIBTEX_FIELD.findall(entry[2])), entry[0])
        for entry in entries
    }


def works_of(docstring: str) -> list[Reference]:
    """The works that a docstring names after `Source:`, in the order of their keys."""
    sources = [" ".join(source.split()) for source in SOURCE_PARAGRAPH.findall(docstring)]
    text = " ".join(sources)
    return [work for work in works().values() if _is_named(work, text)]


def _is_named(work: Reference, text: str) -> bool:
    if work.arxiv and work.arxiv in text:
        return True
    # where two works share author and year, their keys have a suffix: only the number tells them
    return work.key in {author.lower() + year for author, year in AUTHOR_AND_YEAR.findall(text)}
