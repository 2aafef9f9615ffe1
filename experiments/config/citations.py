"""Citations of what a config names, as BibTeX: what its docstring's `Source:` says, and nothing else."""

import re
from collections.abc import Iterator
from inspect import cleandoc

from laggard.experiments.config.catalogue import find_entries
from laggard.experiments.config.errors import ConfigError

WORK = re.compile(
    r"(?P<authors>[A-Z][\w'-]+(?:(?:,| &) [A-Z][\w'-]+)*(?: et al\.)?) \((?P<year>\d{4})\)(?P<rest>[^;]*)"
)
PREPRINT = re.compile(r"arXiv[: ](\d{4}\.\d{4,5})")


def citations(name: str) -> Iterator[str]:
    """The works that an entry's docstring names as its sources, a BibTeX entry each.

    `author` has those that the docstring has, `and others` for et al.; what it says besides goes to `note`.

    Raises:
        ConfigError: nothing is called so, or no work is named.

    Example:
        >>> print(next(citations("adpsgd")))
        @misc{lian2018,
          author = {Lian and others},
          year = {2018},
          eprint = {1710.06952},
          archiveprefix = {arXiv},
          note = {algorithm 1, in its deadlock-free form on bipartite graphs},
        }
    """
    docstrings = [cleandoc(part.__doc__ or "") for _, part in find_entries(name, "laggard cite")]
    sources = [re.search(r"^Source: (.*?)(?=\n\n|\Z)", text, flags=re.MULTILINE | re.DOTALL) for text in docstrings]
    works = [work for source in sources if source for work in WORK.finditer(" ".join(source[1].split()))]
    if not works:
        raise ConfigError("", f"{name}: its description names no published work", "laggard cite")
    yield from dict.fromkeys(map(_bibtex, works))


def _bibtex(work: re.Match[str]) -> str:
    authors = re.split(r", | & ", work["authors"].replace(" et al.", " & others"))
    preprint, rest = PREPRINT.search(work["rest"]), PREPRINT.sub("", work["rest"])
    fields = {"author": " and ".join(authors), "year": work["year"]}
    fields |= {"eprint": preprint[1], "archiveprefix": "arXiv"} if preprint else {}
    note = re.sub(r"\s+", " ", rest).strip(" ,.")
    fields |= {"note": note} if note else {}
    body = "".join(f"  {key} = {{{value}}},\n" for key, value in fields.items())
    return f"@misc{{{authors[0].lower()}{work['year']},\n{body}}}"
