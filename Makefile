# Every target sets up .venv by itself; only Python 3.11+ and make are needed.
.DEFAULT_GOAL := help
SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3.14 python3 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$p; break; }; done)

PYTEST := $(BIN)/python -m pytest

.PHONY: help demo test test-long test-slice test-pythons check docs labs chaos bench lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(READY): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { \
		echo "error: no Python 3.11 or newer was found"; \
		echo "hint: install one, or name it: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "==> setting up $(VENV) with $$($(PYTHON) --version) (once)"
	@$(PYTHON) -m venv --clear $(VENV) || { \
		echo "error: $(PYTHON) could not make a virtual environment"; \
		echo "hint: on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock || { \
		echo "error: the packages of requirements.lock could not be installed"; \
		echo "hint: check the network and pip's settings (index, proxy, certificates), then run make again"; exit 1; }
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . || { \
		echo "error: headrace itself could not be installed"; echo "hint: see the lines above"; exit 1; }
	@touch $@

demo: $(READY) ## the main story on a cluster of its own
	@$(BIN)/headrace demo

test: $(READY) ## unit, property and integration tests, on a real cluster
	@echo "==> tests, on two workers (the first run fetches jars of Kafka and Spark, 400 MB)"
	@$(PYTEST) -m "not long and not chaos" -n 2 --dist loadgroup

test-long: $(READY) ## what takes long: drivers killed in every way, whole clusters, Spark as shipped
	@echo "==> long tests, on two workers (half an hour)"
	@$(PYTEST) -m long -n 2 --dist loadgroup

SEED ?= $(shell git rev-parse HEAD 2>/dev/null || date +%F)
test-slice: $(READY) ## a few of the long tests, chosen by the commit or SEED=...
	@echo "==> a slice of the long tests, chosen by $(SEED)"
	@$(PYTEST) --slice $(SEED) -v || { \
		echo "hint: run one of them again with: $(PYTEST) 'tests/FILE.py::NAME'"; exit 1; }

PYTHONS ?=
test-pythons: $(READY) ## the unit tests on every Python from 3.11 to 3.14 that is here
	@$(BIN)/python tools/test_pythons.py $(PYTHONS)

check: $(READY) ## ruff, mypy --strict, import directions, docs that match
	@echo "==> ruff"; $(BIN)/ruff check . && $(BIN)/ruff format --check .
	@echo "==> mypy"; $(BIN)/mypy
	@echo "==> import directions"; $(BIN)/lint-imports --no-logo
	@echo "==> docs"; $(BIN)/python tools/cli_docs.py --check

docs: $(READY) ## write docs/cli.md from the commands themselves
	@$(BIN)/python tools/cli_docs.py

labs: $(READY) ## every promise, acted out on a live cluster
	@$(BIN)/headrace lab run --all

chaos: $(READY) ## fault-injection runs at random, for minutes each
	@$(PYTEST) -m chaos --timeout 1200

bench: $(READY) ## every benchmark
	@for name in $$($(BIN)/headrace bench list -o ndjson | $(BIN)/python -c \
		'import json, sys; [print(json.loads(line)["name"]) for line in sys.stdin]'); do \
		$(BIN)/headrace bench run $$name || exit 1; done

lock: $(READY) ## update requirements.lock from pyproject.toml
	@$(BIN)/uv pip compile --quiet pyproject.toml --all-extras --group dev --universal \
		--python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url \
		--output-file requirements.lock --upgrade

clean: ## remove .venv and caches
	@rm -rf $(VENV) .venvs .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
