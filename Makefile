# Everything a newcomer needs; `make help` says what. Needs Python 3.11 or newer and make, nothing else.

SHELL := /bin/sh
.SHELLFLAGS := -eu -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --require-virtualenv
STAMP := $(VENV)/.installed
PYTHON ?=
EXIT ?=
PYTEST_ARGS ?=
REFUNDS ?=
FAULTS ?=
SEED ?=
MINUTES ?=

# A person's own settings for Python must not reach into the environment made here.
unexport PYTHONPATH PYTHONHOME PIP_TARGET PIP_PREFIX PIP_ROOT PIP_QUIET PIP_VERBOSE PIP_REQUIRE_VIRTUALENV VIRTUAL_ENV
# Not only unset: a configuration file may say otherwise, and the environment wins over it.
export PIP_USER := 0

.PHONY: help demo up test bench chaos lint install clean

help: ## show this list
	@echo "Durable refunds. Targets:"
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 20
	@echo "Variables: EXIT=1 (demo), PYTEST_ARGS='-k name' (test), REFUNDS, FAULTS, SEED, MINUTES (chaos), PYTHON=/path/to/python3.11 (any)"

demo: $(STAMP) ## start everything, send sample refunds, show what becomes of them; EXIT=1 ends by itself
	@EXIT="$(EXIT)" $(BIN)/refunds demo

up: $(STAMP) ## start the local stack alone and keep it running
	@$(BIN)/refunds up

# Each process has services of its own. A file stays in one process, in the order it was written.
test: $(STAMP) ## run the whole test suite; starts every service it needs
	@$(BIN)/python -m pytest --numprocesses logical --maxprocesses 4 --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

bench: $(STAMP) ## measure speed; figures also go to .local/bench.json
	@$(BIN)/python -m tests.bench

chaos: $(STAMP) ## hurt the running stack at random, then hold its record against the truth; REFUNDS=10000 SEED=1
	@$(BIN)/python -m tests.chaos $(if $(REFUNDS),--refunds $(REFUNDS)) $(if $(FAULTS),--faults $(FAULTS)) $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES))

lint: $(STAMP) ## style, types, and which package may import which
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/pyright
	@$(BIN)/lint-imports

install: $(STAMP) ## make the virtual environment only

# Redone when what it is made from changes. One without a stamp was interrupted half-way and is made anew.
$(STAMP): requirements.lock pyproject.toml
	@if ! { [ -e $@ ] && $(BIN)/python -m pip --version >/dev/null 2>&1; }; then \
		python="$(PYTHON)"; \
		for candidate in $${python:-python3.11 python3.12 python3.13 python3.14 python3 python}; do \
			if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found=$$candidate; break; fi; \
		done; \
		if [ -z "$${found:-}" ]; then \
			echo "No Python 3.11 or newer: looked for $${python:-python3.11 and newer on PATH}." >&2; \
			echo "Install one, or say where it is: make PYTHON=/path/to/python3.11 ..." >&2; \
			exit 1; \
		fi; \
		if ! "$$found" -c 'import ensurepip, venv' 2>/dev/null; then \
			echo "$$found has no venv module, so it cannot make a virtual environment (Debian, Ubuntu: apt install python3-venv)." >&2; \
			exit 1; \
		fi; \
		echo "Making $(VENV) with $$("$$found" --version) ($$found)"; \
		"$$found" -m venv --clear $(VENV); \
	fi
	@echo "Installing the locked dependencies (a minute or two the first time)"
	@$(BIN)/python -I deploy/local/install.py requirements.lock
	@PIP_REQUIRE_HASHES=0 $(PIP) install --quiet --no-deps --no-build-isolation -e .
	@touch $@

clean: ## stop what is left of a stack, remove its data and the virtual environment
	@if [ -x $(BIN)/python ] && $(BIN)/python -c 'import deploy.local.leftovers' 2>/dev/null; then $(BIN)/python -m deploy.local clean; fi
	@rm -rf $(VENV) .local build dist *.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
