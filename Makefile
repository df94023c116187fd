# Frenzy: `make demo` runs the main job, `make test` passes the tests. Both set up first.
PYTHON ?= python3
# Another torch build: make setup TORCH_INDEX=https://download.pytorch.org/whl/cu126
TORCH_INDEX ?=
BIN := .venv/bin
STAMP := .venv/.installed
PIP := $(BIN)/pip --disable-pip-version-check install --quiet
export DS_BUILD_OPS := 0

.PHONY: help setup demo test long check bench chaos clean

help: ## Show this list.
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST)

setup: $(STAMP) ## Create .venv and install everything; does nothing when that is done.

# torch comes first and alone: any other package would pull the newest CUDA build.
$(STAMP): pyproject.toml constraints.txt Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: Frenzy needs Python 3.11 or newer; try: make setup PYTHON=python3.11" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "[1/3] torch (once)"
	@$(PIP) -c constraints.txt $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch
	@echo "[2/3] Frenzy and what it needs"
	@$(PIP) -c constraints.txt -e '.[all,dev]'
	@echo "[3/3] checking"
	@$(BIN)/frenzy version
	@touch $@

demo: setup ## Run four real training jobs on an emulated mixed cluster and watch them.
	@$(BIN)/frenzy demo

test: setup ## Run the test suite (no GPU, no network, real servers).
	@$(BIN)/python -m pytest -q -n auto --maxprocesses 4 --dist loadfile

long: setup ## Run the tests that take minutes: whole systems under faults and load.
	@$(BIN)/python -m pytest -q -m long -n 2 --dist loadfile

check: setup ## Lint, types, import contracts.
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/pyright
	@$(BIN)/lint-imports

bench: setup ## Run the benchmarks and check their expected ranges.
	@$(BIN)/python -m benchmarks

chaos: setup ## Kill, freeze, cut off and fill up a whole system under load (root); MINUTES=60.
	@$(BIN)/python -m tests.fault.chaos --minutes $(or $(MINUTES),60) --results benchmarks/chaos/results

clean: ## Remove the virtual environment and everything that tools left.
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
