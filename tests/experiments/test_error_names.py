"""Errors name arguments in Python and options on the command line."""

import ast
from pathlib import Path

import pytest

from laggard.experiments import cli

ROOT = Path(cli.__file__).resolve().parent
COMMAND_LINE = ("commands", "cli.py")


def texts_of_options(path):
    """Texts with `--option` in the functions of a module that raise errors, docstrings left out."""
    for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(function, ast.FunctionDef):
            continue
        if not any(isinstance(node, ast.Raise) for node in ast.walk(function)):
            continue
        for statement in function.body[ast.get_docstring(function) is not None :]:
            for node in ast.walk(statement):
                if isinstance(node, ast.Constant) and "--" in str(node.value):
                    yield f"{path.name}: {node.value}"


def test_no_error_of_python_names_an_option():
    modules = [
        path for path in ROOT.rglob("*.py") if path.relative_to(ROOT).parts[0] not in COMMAND_LINE
    ]
    assert len(modules) > 50
    assert [text for path in modules for text in texts_of_options(path)] == []


def test_planted_option_is_found(tmp_path):
    planted = tmp_path / "planted.py"
    planted.write_text('def f():\n    "Take --force."\n    raise ValueError("take --force")\n')
    assert list(texts_of_options(planted)) == ["planted.py: take --force"]


def test_one_error_names_argument_or_option(ran, toy, tmp_path, mistake):
    with pytest.raises(ValueError, match=r"^`continues`: .*\(`keep_snapshot`\)"):
        ran(continues=True)
    line = mistake("run", toy(), "--continue", "--out", tmp_path)
    assert "--continue: " in line
    assert "(--keep-snapshot)" in line
    assert "`" not in line
