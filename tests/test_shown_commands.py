"""Commands that pages and notebooks show; those in blocks of the README and the guide, their own
tests run.
"""

import json
import re
import shlex
from contextlib import chdir
from importlib.util import find_spec

import pytest

from laggard.experiments.cli import main, parser
from tests.documents import ROOT

PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "notebooks").glob("*.ipynb")]
BLOCK = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```$", flags=re.MULTILINE | re.DOTALL)
PLACEHOLDER = re.compile(r"[A-Z]{2,}")
PROGRAMS = ("laggard", "make", "python")


def prose(page):
    """A page, or the sentences of a notebook."""
    text = page.read_text(encoding="utf-8")
    if page.suffix != ".ipynb":
        return text
    cells = json.loads(text)["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def shown(text):
    """The lines of blocks for a shell, without comments, and the code in the sentences."""
    for language, block in BLOCK.findall(text):
        if language in ("sh", "bash", "text"):
            yield from (line.partition(" #")[0].strip() for line in block.splitlines())
    yield from (" ".join(code.split()) for code in re.findall(r"`([^`]+)`", BLOCK.sub("", text)))


def commands():
    """The commands in the documents that have an argument.

    CHANGELOG is left out: it names old commands.
    """
    found = {line for page in PAGES if page.name != "CHANGELOG.md" for line in shown(prose(page))}
    return sorted(line for line in found if line.partition(" ")[0] in PROGRAMS and " " in line)


def command_of(words):
    """The words that name the command, such as `real calibrate`."""
    return words[: 2 if words[0] == "real" else 1]


@pytest.mark.parametrize("line", commands())
def test_shown_command_exists(line):
    """Its options are checked too if it has arguments; `laggard sweep` without any is about the
    command.
    """
    program, *words = shlex.split(re.sub(r"\$\w+", "2", line.partition(" > ")[0]))
    if program == "make":
        assert re.search(rf"^{words[0]}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    elif program == "python":
        assert words[0] == "-m"
        assert find_spec(words[1])
    elif not any(word.startswith("-") for word in words) and len(words) == len(command_of(words)):
        with pytest.raises(SystemExit) as end:  # its help
            parser().parse_args([*words, "--help"])
        assert end.value.code == 0
    else:
        _, rest = parser().parse_known_args(words)
        assert [word for word in rest if word.startswith("-")] == []


PRINTED = [
    line for line in commands() if line.split()[1] == "list" and not PLACEHOLDER.search(line)
]
REPRODUCED = [
    line for line in commands() if line.startswith("laggard reproduce ") and " ID" not in line
]
STORED = [line for line in REPRODUCED if "--stored" in line]


@pytest.mark.parametrize("line", PRINTED + [f"{line} --list" for line in REPRODUCED])
def test_command_finds_what_it_names(line, capsys):
    """Questions whose runs take hours are only listed; their tests run small studies."""
    assert main(shlex.split(line)[1:]) == 0
    assert capsys.readouterr().out.strip()


@pytest.mark.slow
@pytest.mark.parametrize("line", STORED)
def test_stored_numbers_answer_what_the_pages_ask(line, capsys):
    with chdir(ROOT):
        assert main(shlex.split(line.partition(" --page")[0])[1:]) == 0
    assert capsys.readouterr().out.strip()
