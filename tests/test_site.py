"""The documentation site is built without a warning, and what its pages show is text, tables and
equations.
"""

import subprocess
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest

from laggard.experiments.config.parts import ALGORITHM
from tests.documents import ROOT

BROKEN = ("<!-- ", "{eval-rst}", "{toctree}", "| --- |", "\\frac", "problematic", "| —")
"""What is in no text of a page that was rendered."""


class Page(HTMLParser):
    """The words outside of code, the targets of links and pictures, and the names that links may
    end in.
    """

    def __init__(self, text):
        super().__init__()
        self.words: list[str] = []
        self.targets: list[str] = []
        self.names: set[str] = set()
        self._code = 0
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        own = dict(attrs)
        self._code += tag in ("code", "pre", "script", "style")
        self.names.add(own.get("id") or "")
        self.targets += [
            target for key in ("href", "src") if (target := own.get(key)) and tag != "link"
        ]

    def handle_endtag(self, tag):
        self._code -= tag in ("code", "pre", "script", "style")

    def handle_data(self, data):
        if not self._code:
            self.words.append(data)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built as `make docs` does; nothing of it is left in the repository."""
    folder = tmp_path_factory.mktemp("site")
    options = ["-W", "--keep-going", "-q", "-E", "-c", "docs", "-d", str(folder / "trees")]
    command = [sys.executable, "-m", "sphinx", *options, ".", str(folder / "pages")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "pages"


@pytest.fixture(scope="module")
def pages(site):
    """The pages by their paths, without listings of code, which Sphinx links to names as they are
    imported.
    """
    paths = [
        path for path in site.rglob("*.html") if "_modules" not in path.relative_to(site).parts
    ]
    return {path: Page(path.read_text(encoding="utf-8")) for path in paths}


@pytest.mark.slow
def test_every_page_and_notebook_is_there(site):
    sources = [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "notebooks").glob("*.ipynb"),
    ]
    assert [
        source
        for source in sources
        if not (site / source.relative_to(ROOT)).with_suffix(".html").is_file()
    ] == []


@pytest.mark.slow
def test_links_and_pictures_lead_to_files(site, pages):
    broken = []
    for path, page in pages.items():
        for target in page.targets:
            link = urlsplit(target)
            if link.scheme or link.netloc:
                continue
            file = (path.parent / unquote(link.path)).resolve() if link.path else path
            names = (
                pages[file].names if file in pages and link.fragment else {unquote(link.fragment)}
            )
            if not file.exists() or unquote(link.fragment) not in names:
                broken.append(f"{path.relative_to(site)}: {target}")
    assert broken == []


@pytest.mark.slow
def test_pages_need_no_network(pages):
    """Links lead elsewhere; scripts, styles and pictures do not."""
    text = "".join(path.read_text(encoding="utf-8") for path in pages)
    assert 'src="http' not in text
    assert 'stylesheet" type="text/css" href="http' not in text


@pytest.mark.slow
def test_no_page_shows_unrendered_markup(pages):
    shown = {path.name: "".join(page.words) for path, page in pages.items()}
    assert {name: mark for name, text in shown.items() for mark in BROKEN if mark in text} == {}
    equations = next(path for path in pages if path.name == "10_gossip_and_heterogeneous_data.html")
    assert "<mfrac>" in equations.read_text(encoding="utf-8")


@pytest.mark.slow
def test_each_method_has_a_complete_page(site, pages):
    for name in ALGORITHM.parts:
        page = pages[site / "docs" / "methods" / f"{name}.html"]
        assert any(target.endswith(f"{name}.png") for target in page.targets)
        assert {
            "who-computes-when",
            "messages",
            "statements-of-theory",
            "questions-about-it",
            "to-cite",
        } <= page.names
    assert not (ROOT / "docs" / "methods").exists()
