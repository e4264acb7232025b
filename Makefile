# `make` alone lists the targets. Needs Python 3.11 or newer, make, and a C compiler (gcc is enough).
# Every target makes the environment it needs in a folder of this checkout and leaves the rest of the machine alone.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
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
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# ---- environments ---------------------------------------------------------------------------------------------------
# One stamp for each group of tools, remade when a pyproject.toml changes.

$(VENV)/.base: $(PROJECT_FILES)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "tinycore needs Python 3.11 or newer; set PYTHON=")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install -q $(foreach d,$(DISTRIBUTIONS),-e ./$(d))
	touch $@

$(VENV)/.group-%: $(VENV)/.base
	$(BIN)/python -m pip install -q --group $*
	touch $@

# ---- everyday -------------------------------------------------------------------------------------------------------

.PHONY: demo
demo: $(VENV)/.group-demo ## train a small convnet on real images, on the device that DEV names
	$(BIN)/python examples/fetch_data.py data
	$(BIN)/python examples/mnist.py

.PHONY: test
test: $(VENV)/.group-test ## the suite on CPU:LLVM, a fixed tenth of it on CPU:CLANG and PYTHON
	DEV=CPU:LLVM $(BIN)/python -m pytest -q -n $(JOBS)
	DEV=CPU:CLANG $(BIN)/python -m pytest -q -n $(JOBS) --tenth
	DEV=PYTHON $(BIN)/python -m pytest -q -n $(JOBS) --tenth

.PHONY: check
check: $(VENV)/.group-check ## lint, format, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
