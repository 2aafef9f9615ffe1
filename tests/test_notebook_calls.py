"""The calls in notebooks, most of which only `make slow` executes."""

import ast
import inspect
import json
import warnings

import nbformat
import pytest

from tests.documents import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def code_of(text):
    """The code of a notebook as a module, without lines for IPython."""
    cells = (cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code")
    lines = "".join("".join(cell["source"]) + "\n" for cell in cells).splitlines()
    return ast.parse("\n".join(line for line in lines if not line.startswith(("%", "!"))))


def imported(module):
    """What a notebook imports from laggard by name; an import that fails is an error."""
    found = {}
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("laggard"):
            exec(compile(ast.Module([node], []), "notebook", "exec"), found)
    return found


def unknown_keywords(text):
    """Calls of what is imported from laggard, with keywords that it does not take."""
    module = code_of(text)
    names, unknown = imported(module), []
    for node in ast.walk(module):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and callable(names.get(node.func.id))
        ):
            takes = inspect.signature(names[node.func.id]).parameters.values()
            if any(one.kind is one.VAR_KEYWORD for one in takes):
                continue
            known = {one.name for one in takes}
            unknown += [
                f"{node.func.id}({word.arg}=)"
                for word in node.keywords
                if word.arg not in {None, *known}
            ]
    return unknown


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda one: one.name)
def test_notebook_calls_existing_functions(notebook):
    assert unknown_keywords(notebook.read_text(encoding="utf-8")) == []


def test_unknown_keyword_is_found():
    source = [
        "%matplotlib inline\n",
        "from laggard.experiments.figures import cliff\n",
        "cliff(results, label='a')",
    ]
    text = json.dumps({"cells": [{"cell_type": "code", "source": source}]})
    assert unknown_keywords(text) == ["cliff(label=)"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook_is_valid_without_a_warning(notebook):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nbformat.validate(nbformat.read(notebook, as_version=4))
