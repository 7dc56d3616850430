# `make demo` and `make test` are all a newcomer needs; both set up everything first. Nothing has to be activated.

BIN := .venv/bin
INSTALLED := .venv/.installed
# Empty lets scripts/make-venv choose an interpreter.
PYTHON ?=
export PYTHON
# Where it is set, each of the many processes that tests start would compile all of Dirigo anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help setup demo test acceptance bench lint format docs clean FORCE

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

setup: $(INSTALLED) ## Create .venv with everything in it, and see to a Java runtime
	@scripts/ensure-java

demo: setup ## Two tenants share a pool on Spark, first under FIFO, then under REJECTSEND: a table and a picture
	$(BIN)/dirigo demo

test: setup lint ## Check style, types and layers, run all tests, verify the protocol and its mutants
	scripts/test-and-verify

acceptance: test ## All of `test`, every query under 20 kinds of chaos, a deep verification, and the benchmarks
	@mkdir -p build
	$(BIN)/pytest -n 2 -m acceptance
	$(BIN)/dirigo nexmark all --events 200000 --check spark --json build/nexmark.json
	$(BIN)/dirigo verify --deep --json build/verify-deep.json
	$(BIN)/dirigo bench

bench: setup ## Measure messages, barriers, queries, keys and the generator
	$(BIN)/dirigo bench

lint: setup ## Check style, types and layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: setup ## Mend what ruff can mend
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: setup ## Write the generated pages of docs/ anew
	$(BIN)/dirigo docs

clean: ## Remove everything that make creates, .venv included
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find src lab tests -name __pycache__ -prune -exec rm -rf {} +

# A .venv that was copied along with the folder, or whose interpreter is gone, would run other code than this, or none.
WHERE_INSTALLED := import importlib.util as util; print(util.find_spec("dirigo").origin)
ifneq ($(shell $(BIN)/python -c '$(WHERE_INSTALLED)' 2>/dev/null),$(CURDIR)/src/dirigo/__init__.py)
$(INSTALLED): FORCE
endif

$(INSTALLED): pyproject.toml lab/pyproject.toml constraints.txt scripts/make-venv
	@scripts/make-venv
	@touch $@
