# `make` alone lists the targets. Needs Python 3.11 or newer, make, and a C compiler (gcc is enough).
# Every target makes the environment it needs in a folder of this checkout and leaves the rest of the machine alone.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.ONESHELL:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
JOBS   ?= 2
VENV   := .venv
BIN    := $(VENV)/bin
DISTRIBUTIONS := . plugins/cpu
PROJECT_FILES := pyproject.toml $(wildcard plugins/*/pyproject.toml)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# ---- environments ---------------------------------------------------------------------------------------------------
# One stamp for each group of tools, remade when a pyproject.toml changes.

$(VENV)/.base: $(PROJECT_FILES)
	@echo "$(VENV): installing tinycore and its CPU plugin"
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "tinycore needs Python 3.11 or newer; set PYTHON=")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -qq --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install -qq $(foreach d,$(DISTRIBUTIONS),-e ./$(d))
	touch $@

$(VENV)/.group-%: $(VENV)/.base
	@echo "$(VENV): installing what 'make $*' needs"
	$(BIN)/python -m pip install -qq --group $*
	touch $@

# ---- everyday -------------------------------------------------------------------------------------------------------

.PHONY: demo
demo: $(VENV)/.group-demo ## train a small convnet on real images, on the device that DEV names
	folder=$$($(BIN)/python examples/fetch_data.py data)
	$(BIN)/python examples/mnist.py $$folder

.PHONY: shakespeare
shakespeare: $(VENV)/.base ## train a small transformer to write Shakespeare
	text=$$($(BIN)/python examples/fetch_shakespeare.py data)
	$(BIN)/python examples/shakespeare.py $$text

PYTEST = $(BIN)/python -m pytest -q -n $(JOBS)

.PHONY: test
test: $(VENV)/.group-test ## the whole suite on CPU:LLVM, a fixed tenth of it on CPU:CLANG and PYTHON
	DEV=CPU:CLANG $(PYTEST) --tenth
	DEV=PYTHON $(PYTEST) --tenth
	DEV=CPU:LLVM $(PYTEST)

.PHONY: test-full
test-full: $(VENV)/.group-test ## the whole suite on each of CPU:LLVM, CPU:CLANG and PYTHON
	DEV=CPU:CLANG $(PYTEST)
	DEV=PYTHON $(PYTEST)
	DEV=CPU:LLVM $(PYTEST)

.PHONY: check
check: $(VENV)/.group-check ## lint, format, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: golden
golden: $(VENV)/.group-test ## rewrite tests/golden/; read the diff before you commit it
	$(PYTEST) --update-golden
	git --no-pager diff --stat -- tests/golden

.PHONY: docs
docs: $(VENV)/.group-docs ## build the documentation into site/
	$(BIN)/mkdocs build --strict

# ---- benchmarks: an environment of its own, so that no peer is near the tests ---------------------------------------

BENCH_VENV := .venv-bench

$(BENCH_VENV)/.ready: $(PROJECT_FILES)
	@echo "$(BENCH_VENV): installing tinycore, numpy, torch and tinygrad"
	test -x $(BENCH_VENV)/bin/python || $(PYTHON) -m venv $(BENCH_VENV)
	$(BENCH_VENV)/bin/python -m pip install -qq --upgrade 'pip>=25.1'
	$(BENCH_VENV)/bin/python -m pip install -qq numpy pluggy importlib-metadata llvmlite --group bench
	touch $@

.PHONY: bench
bench: $(BENCH_VENV)/.ready ## compare with numpy, torch and tinygrad (ARGS="--json out.json --only matmul")
	rm -rf build plugins/*/build
	$(BENCH_VENV)/bin/python -m pip install -qq --no-deps --force-reinstall $(addprefix ./,$(DISTRIBUTIONS))
	$(BENCH_VENV)/bin/python benchmarks $(ARGS)

# ---- release --------------------------------------------------------------------------------------------------------

.PHONY: dist
dist: $(VENV)/.group-dist ## sdist and wheel of each distribution, in dist/
	rm -rf dist
	for folder in $(DISTRIBUTIONS); do $(BIN)/python -m build -q --outdir dist $$folder; done
	ls -l dist

.PHONY: clean
clean: ## remove environments, caches and everything that was built
	rm -rf .venv .venv-bench build dist site .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
