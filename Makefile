# Everything that is needed is set up by the targets themselves, once; afterwards they work without a network.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.installed-docs
ARGS ?=
CONSTRAINTS ?=
JOBS ?= 3

.PHONY: help setup demo test coverage check docs bench conformance chaos attack constraints audit clean

help: ## Show the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Portico needs Python 3.11 or newer: make PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing Portico and its tools into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "pip>=25.1"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group dev \
	  $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS))
	@touch $(STAMP)

$(DOCS_STAMP): $(STAMP)
	@echo "Installing the tools for the documentation into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group docs \
	  $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS))
	@touch $(DOCS_STAMP)

setup: $(STAMP) ## Create .venv and install everything (CONSTRAINTS=constraints.txt for the very versions we test with)

demo: $(STAMP) ## Show Portico at work on the sample servers (ARGS=--once exits afterwards)
	@$(BIN)/portico demo $(ARGS)

test: $(STAMP) ## Run the tests, the real servers of the journeys included (JOBS=4 on a larger machine)
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m "not chaos" $(ARGS)

coverage: $(STAMP) ## Run the tests and measure branch coverage of src, processes included; fails below the floor in pyproject.toml
	@rm -rf .cache/coverage && mkdir -p .cache/coverage
	@$(BIN)/coverage run -m pytest -n $(JOBS) --dist loadfile -m "not timed and not chaos" $(ARGS)
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage html --quiet
	@$(BIN)/coverage report

check: $(STAMP) ## Lint, types and import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

docs: $(DOCS_STAMP) ## Build the documentation as a site in build/site; every warning is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict $(ARGS)

bench: $(STAMP) ## Measure, beside other things in the same run (ARGS="--quick", ARGS="--fleet definitions.json", ARGS="replay --help")
	@$(BIN)/python bench/run.py $(ARGS)

conformance: $(STAMP) ## Run the official MCP conformance suite against the gateway, both versions, both eras
	@$(BIN)/python tests/conformance/run.py $(ARGS)

chaos: $(STAMP) ## Let much go wrong at once, and see what is lost and what is left (ARGS="--seconds 60", ARGS="--only soak")
	@$(BIN)/python tests/chaos/run.py $(ARGS)

attack: $(STAMP) ## Attack a gateway of its own over loopback (ARGS="--seconds 20 --seed 7 --only arguments,headers")
	@$(BIN)/python tests/attack/run.py $(ARGS)

constraints: $(DOCS_STAMP) ## Write down the versions of this environment, without addresses, as constraints.txt
	@$(BIN)/python maintenance/constraints.py

audit: $(STAMP) ## Ask an advisory database about constraints.txt; ends with 3 when none can be reached (ARGS="--service pypi")
	@$(BIN)/python maintenance/audit.py $(ARGS)

clean: ## Remove what the targets have made
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .hypothesis build dist
