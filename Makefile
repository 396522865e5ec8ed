# `make demo` and `make test` are all a fresh clone needs: Python 3.11 or newer, git and make.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
# Stable-Baselines3 (a peer that the tests compare with) needs torch. Installed first and on its own, at the release
# that comes as a CPU build; left to pip's choice it would be the newest one, with several GB of GPU libraries.
TORCH ?= torch==2.13.0
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Tests wait for their workers a third of the time: three test workers keep two cores busy.
PYTEST_ARGS ?= -n 3
PYTEST_FULL_ARGS ?= -n 4
# The suite starts hundreds of interpreters, each of which would compile our modules anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-full lint format docs mutants soak selfplay bench baseline install clean

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/.demo  ## eight real Pongs under a random policy: examples/pong.yaml
	$(BIN)/vecwrap run examples/pong.yaml
	@echo 'In the browser while it runs: $(BIN)/pip install -e ".[live]" && $(BIN)/vecwrap run examples/pong.yaml --watch'

test: $(VENV)/.test  ## the suite: every behaviour, in about ten minutes on two cores
	$(BIN)/python -m pytest $(PYTEST_ARGS)

test-full: $(VENV)/.test  ## what it leaves out: more backends, longer streams, the examples, what learns; about as long
	$(BIN)/python -m pytest $(PYTEST_FULL_ARGS) -m 'full and not soak'

lint: $(VENV)/.test  ## style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --config-file pyproject.toml tests/typed_use.py
	PATH=$(CURDIR)/$(BIN):$$PATH $(BIN)/pyright tests/typed_use.py
	$(BIN)/python tests/helpers/public_types.py
	$(BIN)/lint-imports

format: $(VENV)/.test  ## put the code into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.test  ## write again what is generated, and the site into build/site; warnings are errors
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/timelines.py
	$(BIN)/python docs/figures.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

mutants: $(VENV)/.test  ## bring back one known bug at a time; the tests must notice each
	$(BIN)/python tests/mutants/run.py --jobs 2

soak: $(VENV)/.test  ## the long runs
	$(BIN)/python -m pytest $(PYTEST_ARGS) -m soak -o faulthandler_timeout=3600

selfplay: $(VENV)/.test  ## examples/selfplay.py in full, at most an hour: tic-tac-toe, and connect four with three seeds
	$(BIN)/python examples/selfplay.py --minutes 15
	for seed in 1 2 3; do \
	  $(BIN)/python examples/selfplay.py --game connect_four --minutes 15 --seed $$seed \
	    --out runs/selfplay-connect_four-$$seed || exit 1; \
	done

bench: $(VENV)/.bench  ## our backends beside their peers; PIPELINE=my.yaml compares yours; BENCH_ARGS=--help
	$(BIN)/python -m benchmarks $(if $(PIPELINE),'$(PIPELINE)') $(BENCH_ARGS)

baseline: $(VENV)/.test .venv-0.1.0/.baseline  ## this tree beside 0.1.0 and Gymnasium's Sync; BASELINE_ARGS="--only cartpole-8"
	$(BIN)/python -m benchmarks.baseline --against .venv-0.1.0/bin/python $(BASELINE_ARGS)

install: $(VENV)/.test  ## only install what the tests need

clean:  ## remove what make made
	rm -rf $(VENV) .venv-lowest .venv-newest .venv-server .venv-0.1.0 runs examples/runs build dist

$(BIN)/python:
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'vecwrap needs Python 3.11 or newer: make PYTHON=/path/to/python3.11'; exit 1; }
	"$(PYTHON)" -m venv $(VENV)

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	$(PIP) install --quiet --editable '.[atari,cli]'
	@touch $@

$(VENV)/.test: pyproject.toml | $(BIN)/python
	$(PIP) install --quiet '$(TORCH)'
	$(PIP) install --quiet --editable '.[test]'
	@touch $@ $(VENV)/.demo

$(VENV)/.bench: pyproject.toml | $(BIN)/python
	$(PIP) install --quiet '$(TORCH)'
	$(PIP) install --quiet --editable '.[bench]'
	@touch $@ $(VENV)/.demo

# The same releases of all other packages as in the first environment, so that only vecwrap differs.
.venv-0.1.0/.baseline: | $(VENV)/.test
	"$(PYTHON)" -m venv .venv-0.1.0
	mkdir -p build/0.1.0
	git archive ff23ed3 | tar -x -C build/0.1.0
	$(BIN)/python -m pip freeze --exclude-editable >build/constraints.txt
	.venv-0.1.0/bin/python -m pip --disable-pip-version-check install --quiet --constraint build/constraints.txt './build/0.1.0[atari]'
	@touch $@
