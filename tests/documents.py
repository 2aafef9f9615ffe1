"""What a document shows is run: its files are written, its Python and commands executed, in a
reader's order.
"""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from laggard import load
from laggard.experiments.cli import main
from laggard.experiments.config.grid import runs
from laggard.experiments.config.installed import GROUP_PREFIX
from laggard.experiments.config.listing import SECTIONS
from tests.cases import ROOT

FENCED = re.compile(
    r"(?P<before>[^\n]*)\n\n```(?P<language>\w+)\n(?P<body>.*?)```", flags=re.DOTALL
)
SAVED = re.compile(r"[Ss]ave (?:this|it) as `([\w.]+)`:$")
SHOWN, SHORTER = "stop.epochs=6", "stop.epochs=1"
"""An override that documents show, and what stands for it here: it takes seconds less."""
EXTRAS = {"ray": "ray", "dask": "distributed"}


@dataclass(frozen=True)
class Block:
    """A block of code: its language, its text, and the file that the line before says to save it
    as, if it does.
    """

    language: str
    body: str
    file: str | None


def blocks(document):
    """The blocks of code of a document, in their order."""
    text = document.read_text(encoding="utf-8")
    found = [
        Block(
            match["language"],
            match["body"],
            saved[1] if (saved := SAVED.search(match["before"])) else None,
        )
        for match in FENCED.finditer(text)
    ]
    assert len(found) == text.count("```") // 2, (
        "a block without an empty line and a language before it"
    )
    return found


def commands(document):
    """The commands of a document, with their comments."""
    return [
        line
        for block in blocks(document)
        if block.language == "sh"
        for line in block.body.splitlines()
    ]


def job_environment(cpus=1, task=1, *programs):
    """The variables of a job of SLURM, which finds programs in these folders and where `laggard` is
    installed.
    """
    path = os.pathsep.join(map(str, (*programs, Path(sys.executable).parent, os.environ["PATH"])))
    return {
        **os.environ,
        "PATH": path,
        "SLURM_CPUS_PER_TASK": str(cpus),
        "SLURM_ARRAY_TASK_ID": str(task),
    }


class Reader:
    """Somebody who follows a document in a folder of his own, in this process: starting Python
    takes seconds.
    """

    def __init__(self, folder, monkeypatch, capsys):
        self.folder, self._capsys = folder, capsys
        self._config: Mapping[str, Any] = {}
        self._names: dict[str, Any] = {"__name__": "document"}
        (folder / "configs").symlink_to(ROOT / "configs")
        monkeypatch.chdir(folder)
        monkeypatch.syspath_prepend(folder)

    def follow(self, document):
        """Do all that the document shows."""
        for block in blocks(document):
            short = replace(block, body=block.body.replace(SHOWN, SHORTER))
            getattr(self, f"_{block.language}")(short)

    def _text(self, block):
        """Nothing to do: it is there to be read."""

    def _yaml(self, block):
        """A config; without a name of its own it is a piece that replaces keys of the last named
        one without a base.
        """
        path = self.folder / (block.file or "piece.yaml")
        path.write_text(block.body, encoding="utf-8")
        document = YAML(typ="safe").load(path)
        if block.file and "base" not in document:
            self._config = document
        elif not block.file:
            YAML(typ="safe").dump({**self._config, **document}, path)
        assert runs(load(path))

    def _python(self, block):
        if block.file:
            (self.folder / block.file).write_text(block.body, encoding="utf-8")
        else:
            exec(compile(block.body, block.body.splitlines()[0], "exec"), self._names)

    def _toml(self, block):
        """Entry points of a package: laggard looks for their groups."""
        groups = tomllib.loads(block.body)["project"]["entry-points"]
        kinds = {kind.__name__.lower() for choice in SECTIONS.values() for kind in choice.kinds}
        assert groups
        assert set(groups) <= {f"{GROUP_PREFIX}{kind}" for kind in kinds}

    def _bash(self, block):
        """A script of a job, which bash runs as SLURM would."""
        assert block.file, block.body
        (self.folder / block.file).write_text(block.body, encoding="utf-8")
        done = subprocess.run(
            ["bash", block.file], env=job_environment(), capture_output=True, text=True
        )
        assert done.returncode == 0, f"{block.file}\n{done.stderr}"
        assert done.stdout.strip(), block.file

    def _sh(self, block):
        for line in block.body.splitlines():
            self.run(line)

    def run(self, line):
        """A command: `laggard` in this process, only validated where it needs MNIST; of `make`,
        whether it is there.
        """
        command, _, comment = line.partition(" #")
        program, *arguments = shlex.split(command.partition(" > ")[0])
        if program == "make":
            assert re.search(
                rf"^{arguments[0]}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE
            ), line
        elif program == "laggard" and "MNIST" in comment:
            assert runs(load(arguments[1])), line
        elif program == "laggard":
            self._laggard(line, [word for each in arguments for word in self._expanded(each)])
        else:
            assert (program, *arguments[:2]) == ("python", "-m", "pytest"), line
            assert (self.folder / arguments[2]).is_file(), line  # test_new.py runs them

    def _laggard(self, line, arguments):
        backend = arguments[arguments.index("--backend") + 1] if "--backend" in arguments else None
        missing = backend is not None and find_spec(EXTRAS[backend]) is None
        code, printed = main(arguments), self._capsys.readouterr()
        assert code == (2 if missing else 0), f"{line}\n{printed.err}"
        assert "pip install" in printed.err if missing else printed.out.strip(), line

    def _expanded(self, word):
        """A shell's view of `configs/*.yaml`."""
        if "*" not in word:
            return [word]
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.glob(word))


def broken_links(document):
    """The files that a document links to and that are not there."""
    text = document.read_text(encoding="utf-8")
    links = re.findall(
        r"\]\((?!http)([^)#]+)[^)]*\)|^\[[^\]]+\]: (?!http)(\S+)", text, flags=re.MULTILINE
    )
    return [
        link for pair in links for link in pair if link and not (document.parent / link).exists()
    ]
