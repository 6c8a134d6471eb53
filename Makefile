# Every way to build and test Skep. `make` alone explains itself.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
STAMP := .venv/.set-up
CODE := skep tests tools $(wildcard bench) $(wildcard examples)
TYPED := skep tests tools $(if $(wildcard bench/*.py),bench)
# Tests run in this many processes; WORKERS=0 runs them in one.
WORKERS ?= 4
# Anything more for pytest: make test ARGS="-k lanes -x"
ARGS ?=
PYTEST := SKEP_TESTS_NEED_SERVERS=1 $(BIN)/pytest -q -n $(WORKERS) --dist loadgroup \
	-o faulthandler_timeout=180

.PHONY: help setup run check test test-all browser screenshots coverage faults bench docs requirements \
	servers clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Make .venv with everything pinned; does nothing when nothing changed
	@:

$(STAMP): pyproject.toml requirements/uv.txt requirements/dev.txt tools/setup.sh
	@tools/setup.sh
	@touch $@

run: setup ## See it work: center, agent and a demo site on this machine
	@if [ -t 1 ]; then $(BIN)/skep demo --keep; else $(BIN)/skep demo; fi

check: setup ## Format, lint, types, the import law, requirements in step
	@echo "check: format"; $(BIN)/ruff format --quiet --check $(CODE) || { $(BIN)/ruff format --check $(CODE); exit 1; }
	@echo "check: lint"; $(BIN)/ruff check --quiet $(CODE)
	@echo "check: types"; $(BIN)/mypy --explicit-package-bases --no-error-summary $(TYPED)
	@echo "check: import law"; $(BIN)/lint-imports --no-logo > .import-law.log 2>&1 || { cat .import-law.log; exit 1; }
	@echo "check: requirements"; $(BIN)/python tools/requirements.py check
	@rm -f .import-law.log; echo "check: all well"

servers: ## Install the servers that tests start (Debian, as root)
	@tools/servers.sh

test: setup servers ## Every test but the slow ones, on real servers
	@$(PYTEST) -m "not slow" $(ARGS)

test-all: setup servers ## Every test
	@$(PYTEST) $(ARGS)

browser: setup servers ## The portal in Chromium: every page in every theme, width and language
	@$(PYTEST) tests/browser $(ARGS)

screenshots: setup servers ## Pictures of the portal, for README and docs
	@$(BIN)/python -m tools.screenshots docs/pictures

# Only some tests: make coverage ARGS="tests/unit"
coverage: setup servers ## Line coverage of skep/ with its child processes, in total and per room
	@.setup/bin/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements/coverage.txt
	@SKEP_TESTS_NEED_SERVERS=1 $(BIN)/python tools/measure_coverage.py -n $(WORKERS) --dist loadgroup \
		-m "not slow" $(ARGS)

# Only some rows: make faults ROWS=1-21. Figures show in their true size on an idle machine.
ROWS ?=
faults: setup servers ## Every test of a fault, slow ones too, and the table with their figures
	@$(PYTEST) -m fault --faults --fault-rows=$(ROWS) $(ARGS)

bench: setup servers ## Measure, and compare with peers in the same run
	@$(BIN)/python -m bench $(ARGS)

docs: setup ## Write the reference pages and the drawing that are made from the code
	@$(BIN)/python tools/reference.py write
	@$(BIN)/python -m tools.drawing write

requirements: ## Pin all versions again; UPGRADE=--upgrade takes newer ones
	@tools/setup.sh uv-only
	@python3 tools/requirements.py write .setup/bin/uv $(UPGRADE)

clean: ## Remove everything that make made
	@rm -rf .venv .setup .coverage dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	@find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +
