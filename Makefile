# distagg: 'make help' lists what there is to do.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
STORE := .venv-s3
DIST := .venv-dist

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-versions fuzz lint format dist bench docs reproduce clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /	/' | column -t -s '	'

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,docs]'
	touch $(READY)

$(STORE)/.ready: tests/s3-server.txt tests/schemas.txt
	$(PYTHON) -m venv $(STORE)
	$(STORE)/bin/python -m pip install --quiet --disable-pip-version-check --requirement tests/s3-server.txt
	$(STORE)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --requirement tests/schemas.txt
	touch $(STORE)/.ready

setup: $(READY)  ## make the environment in .venv

demo: $(READY)  ## everything on synthetic data, ending in a table and out/demo/report.html
	$(BIN)/distagg demo

test: export PYTHONDONTWRITEBYTECODE =  # else every process that a test starts compiles all modules
test: $(READY) $(STORE)/.ready  ## all tests; those on real data run when it is there (DISTAGG_DATA, default ../shared/data)
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

test-versions:  ## the tests on the oldest and the newest versions of what distagg needs; TESTS=tests/models for some
	$(PYTHON) tests/versions.py $(TESTS)

fuzz: $(READY)  ## a million mutated files and texts to every reader, within limits of memory and time; out/found has what did harm
	PYTHONPATH=tests $(BIN)/python -m fuzz.campaign --inputs 1000000 --found out/found

lint: $(READY)  ## style, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)  ## let ruff fix and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(DIST)/.ready: tests/release.txt
	$(PYTHON) -m venv $(DIST)
	$(DIST)/bin/python -m pip install --quiet --disable-pip-version-check --requirement tests/release.txt
	touch $(DIST)/.ready

dist: $(DIST)/.ready  ## wheel and source distribution in dist/, checked by twine; the Dockerfile linted
	rm -rf dist build
	$(DIST)/bin/python -m build --outdir dist
	$(DIST)/bin/twine check --strict dist/*
	$(DIST)/bin/hadolint cluster/Dockerfile
	ls -l dist

bench: $(READY)  ## benchmarks against the peers, installed into .venv-peers
	$(BIN)/python jobs/bench/run.py
	$(BIN)/python jobs/bench/whole/run.py --report out/peers.html

docs: $(READY)  ## the documentation site, which needs no network and no server: out/docs/index.html
	$(BIN)/python jobs/site/build.py out/docs

reproduce: $(READY)  ## every table and figure of the papers (DISTAGG_DATA, default ../shared/data), ending in out/reproduce/index.html
	$(BIN)/python -m jobs.reproduce

clean:  ## remove what the other targets made
	rm -rf $(VENV) $(STORE) $(DIST) .venv-peers .venv-oldest .venv-newest out build dist *.egg-info
