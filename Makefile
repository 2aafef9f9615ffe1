# Two commands are enough: `make quickstart` and `make test`. Either makes .venv first, once.
PYTHON ?= python3
BIN    := .venv/bin
STAMP  := .venv/installed
SITE   := .venv/installed-docs
ENGINES := .venv/installed-engines

# Tests start hundreds of processes: without bytecode each of them compiles laggard and torch anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: quickstart test slow mutants verification bench docs lint clean
.DEFAULT_GOAL := quickstart

quickstart: $(STAMP)
	$(BIN)/laggard sweep configs/quickstart.yaml

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal --ignore-glob='*/[01][!2]_*.ipynb'

slow: $(STAMP) $(SITE) $(ENGINES) verification
	$(BIN)/python -m pytest -n 2 --dist worksteal --cov --cov-report=term-missing:skip-covered tests/simulator tests/theory tests/experiments/test_refusals.py laggard/simulator
	$(BIN)/python -m pytest -n 2 --dist worksteal -m slow tests
	$(BIN)/python -m pytest -n 2 --ignore-glob='*/0[28]_*.ipynb' notebooks

mutants: $(STAMP)
	$(BIN)/python -m tests.mutants

verification: $(STAMP)
	$(BIN)/python -m pytest -m "" tests/theory --render docs/statements.md

bench: $(STAMP)
	$(BIN)/python -m tests.benchmarks

docs: $(SITE) verification
	$(BIN)/python -m sphinx -W --keep-going -q -E -c docs . build/docs

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Without --no-compile all of torch is compiled to bytecode, a minute of which a run needs a tenth.
$(STAMP): setup.cfg pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("laggard needs Python 3.11 or newer, $(PYTHON) is older; try make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[test]' --constraint constraints.txt
	@touch $(STAMP)

$(SITE): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[docs]' --constraint constraints.txt
	@touch $(SITE)

$(ENGINES): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[ray,dask,notebook]' --constraint constraints.txt
	@touch $(ENGINES)

clean:
	rm -rf .venv build/docs
	find results -mindepth 1 -maxdepth 1 ! -name questions ! -name real -exec rm -rf {} +
