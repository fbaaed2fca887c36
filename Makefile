# Every target sets up what it needs: `make test` and `make reproduce` each work alone from a fresh clone.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
STAMP := $(VENV)/.installed
RUN_STAMP := $(VENV)/.installed-to-run
DOCS_STAMP := $(VENV)/.installed-docs

# The first of these that really runs (a version manager's shim may exist without its Python).
PYTHON ?= $(shell for name in python3.11 python3; do "$$name" -c '' 2>/dev/null && { echo "$$name"; break; }; done)
WORKERS ?= 2
# The versions to install; another file tries others.
CONSTRAINTS ?= constraints.txt
FIGURES ?=
# FULL=1: all seeds and episodes of the experiments that take long.
FULL ?=

# Processes run side by side: one numba thread each.
export NUMBA_NUM_THREADS ?= 1
# Many processes are started: byte code that is kept makes each start a second or two sooner.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup test test-slow check format bench reproduce experiments docs maskable-ppo clean

help: ## list the targets
	@grep -hE '^[a-z -]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-22s  %s\n", $$1, $$2 }'

setup: $(STAMP) ## create .venv and install peakrl with its development tools

$(VENV)/created:
	@test -n "$(PYTHON)" || { echo "peakrl needs Python 3.11 or newer, and neither python3.11 nor python3 runs." \
		"On Debian or Ubuntu: apt install python3 python3-venv" >&2; exit 1; }
	@"$(PYTHON)" -c '' 2>/dev/null || { echo "'$(PYTHON)' does not run. Name another Python: make PYTHON=..." >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "peakrl needs Python 3.11 or newer; '$(PYTHON)' is $$("$(PYTHON)" -V). Name another: make PYTHON=..." >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "'$(PYTHON)' cannot create virtual environments: ensurepip is missing." \
		"On Debian or Ubuntu: apt install python3-venv (or $$("$(PYTHON)" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])'))" >&2; exit 1; }
	"$(PYTHON)" -m venv $(VENV)
	@touch $@

$(STAMP): pyproject.toml $(CONSTRAINTS) | $(VENV)/created
	@echo "installing peakrl with its development tools into $(VENV); this takes some minutes the first time"
	$(BIN)/python -m pip install -q --no-compile -c $(CONSTRAINTS) -e '.[dev]'
	@touch $@ $(RUN_STAMP)

# What reproducing needs, without the tools for tests and checks.
$(RUN_STAMP): pyproject.toml $(CONSTRAINTS) | $(VENV)/created
	@echo "installing peakrl into $(VENV); this takes a minute or two the first time"
	$(BIN)/python -m pip install -q --no-compile -c $(CONSTRAINTS) -e '.[experiments]'
	@touch $@

$(DOCS_STAMP): $(STAMP)
	@echo "installing what the documentation is built with"
	$(BIN)/python -m pip install -q --no-compile -c $(CONSTRAINTS) -e '.[docs]'
	@touch $@

# A file's tests stay in one process: what they share, compiled kernels above all, is then made once.
test: $(STAMP) ## run the test suite (WORKERS=2)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not slow"

test-slow: $(STAMP) ## run the tests that take minutes
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m slow

check: $(STAMP) ## lint, formatting, types and architecture
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(STAMP) ## format the code and mend what the linter can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(STAMP) ## time the kernels, planners and learners
	$(BIN)/python -m benchmarks

reproduce: $(RUN_STAMP) ## rerun the paper's figures 2 to 6 at full size into results/ and write results/report.html
	$(BIN)/python -m experiments $(FIGURES)

experiments: $(RUN_STAMP) ## run the experiments beyond the paper (FIGURES="..." some only, FULL=1 all seeds)
	$(BIN)/python -m experiments $(if $(filter-out 0,$(FULL)),--full) $(or $(FIGURES),beyond)

docs: $(DOCS_STAMP) ## build the documentation into docs/_build/html
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	$(BIN)/python -m sphinx -W --keep-going -q -b linkcheck -D nb_execution_mode=off docs docs/_build/links
	@echo "docs/_build/html/index.html"

maskable-ppo: $(STAMP) ## train and certify a network behind a shield (installs torch, which is large)
	$(BIN)/python -m pip install -q --no-compile -c $(CONSTRAINTS) -c constraints-sb3.txt -e '.[sb3]'
	$(BIN)/python docs/examples/maskable_ppo.py

clean: ## remove caches and builds; .venv and results stay
	rm -rf build dist docs/_build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests benchmarks experiments docs -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
