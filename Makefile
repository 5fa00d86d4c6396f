# `make` alone lists what there is. Every target does the set-up that it needs.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
UV := $(shell command -v uv 2>/dev/null)
VENV := .venv
BIN := $(VENV)/bin
PIP := python -m pip install -q --disable-pip-version-check
PYTEST = $(BIN)/pytest
# A file's tests share servers; the files that take longest come first.
SIDE_BY_SIDE := -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder
EXAMPLES := tests/e2e/test_examples.py

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z][a-z-]*:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-22s %s\n", $$1, $$2}'

.PHONY: demo
demo: setup ## bring the demo world up, seed it, plant every fault, show them, take it down
	$(BIN)/reconcile demo

.PHONY: example-debezium
example-debezium: setup ## pipelines of Debezium and its JDBC sink, with their faults: audit, repair, take down
	$(BIN)/python -m examples.debezium

.PHONY: example-outbox-router
example-outbox-router: setup ## Debezium's outbox event router and a service, with their faults: audit, repair, take down
	$(BIN)/python -m examples.outbox_router

.PHONY: test
test: check test-servers ## all of `check`, and all other tests, against a real Postgres, Kafka, Spark and Airflow

.PHONY: test-servers
test-servers: setup jars/.lakes ## the tests that are not in `check`
	$(PYTEST) $(SIDE_BY_SIDE) tests/integration tests/e2e --ignore=$(EXAMPLES)

.PHONY: test-example
test-example: setup ## the examples as tests; they fetch 75 MB more, and take minutes
	@RECONCILE_JARS= $(BIN)/python -c 'from examples.connect.jars import fetched; fetched()'
	$(PYTEST) -q -n 2 $(EXAMPLES)

.PHONY: domain-coverage
domain-coverage: setup ## all of `check`, with the lines of the domain that unit tests reach: at least 98 %
	rm -f .coverage .coverage.*
	$(MAKE) check PYTEST="$(BIN)/coverage run -m pytest"
	$(BIN)/coverage combine -q
	$(BIN)/coverage report --fail-under 98 --include 'reconcile/domain/*' --format total

.PHONY: coverage
coverage: setup ## all of `test`, with the lines that it reaches: at least 90 % of all, 98 % of the domain
	rm -f .coverage .coverage.*
	$(MAKE) test PYTEST="$(BIN)/coverage run -m pytest"
	$(BIN)/coverage combine -q
	$(BIN)/coverage report --fail-under 90
	$(BIN)/coverage report --fail-under 98 --include 'reconcile/domain/*' --format total

ROWS ?= 5000000
BENCH := .venv-bench

.PHONY: bench
bench: setup ## nights over ROWS rows beside other tools, in one run; writes bench/results and the tables made of it
	@test $(BENCH)/.ready -nt bench/requirements.txt || { $(PYTHON) -m venv $(BENCH) && $(BENCH)/bin/python -m pip install -q --disable-pip-version-check -r bench/requirements.txt && touch $(BENCH)/.ready; } || echo "the bench goes on without what bench/requirements.txt names: it was not installed" >&2
	$(BIN)/python -m bench.nights --rows $(ROWS)

.PHONY: check
check: $(VENV)/.ready ## format, lint, import boundaries, types, unit tests; seconds
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(PYTEST) -q $(SIDE_BY_SIDE) tests/unit

.PHONY: format
format: $(VENV)/.ready ## format the code and mend what the linter can
	$(BIN)/ruff check --fix-only -q .
	$(BIN)/ruff format .

.PHONY: schema
schema: $(VENV)/.ready ## write the JSON Schemas in docs anew: of contracts, and of what commands print with --json
	$(BIN)/reconcile contract schema > docs/contract.schema.json
	$(BIN)/python -c 'from pathlib import Path; from reconcile.cli import outputs; outputs.write_schemas(Path("docs/schemas"))'

.PHONY: setup
setup: $(VENV)/.ready jars/.ready ## the virtual environment, the jars, and an archive of Spark's classes

# What only the tables of lakes need, such as those that the tests have.
jars/.lakes: jars/.ready
	@RECONCILE_JARS= $(BIN)/reconcile setup --with iceberg,delta
	@touch $@

.PHONY: wheel-test
wheel-test: setup ## build the wheel, and try it in empty environments, away from the clone
	PYTHON=$(PYTHON) .ci/wheel

LOCKED := --python-version 3.11 --generate-hashes --no-header --annotation-style line
# What builds us and those that come as sources alone: it runs before anything that it builds is there.
BUILD := hatchling==1.33.0 editables setuptools

# The extras that the image has.
IMAGE := audit quality web metrics redis mariadb

.PHONY: lock
lock: ## resolve requirements.txt anew from pyproject.toml, with the hash of every file (needs uv)
	uv pip compile -q pyproject.toml --all-extras $(LOCKED) -o requirements.txt
	uv pip compile -q pyproject.toml $(addprefix --extra ,$(IMAGE)) -c requirements.txt $(LOCKED) -o requirements-image.txt
	printf '%s\n' $(BUILD) | uv pip compile -q - -c requirements.txt $(LOCKED) -o requirements-build.txt

.PHONY: sbom
sbom: setup ## write dist/sbom.json: what is installed and the jars, as a bill of materials
	@mkdir -p dist
	$(BIN)/python .ci/sbom > dist/sbom.json

.PHONY: pins
pins: $(VENV)/.ready ## write ivy.sha256 anew after a change of ivy.xml, from what is fetched now: look at the difference
	$(BIN)/python -c 'from pathlib import Path; from reconcile.spark import setup; setup.pin(Path("ivy.xml"), (*setup.CONFIGURATIONS, *setup.OPTIONAL)); setup.pin(Path("examples/connect/ivy.xml"), ("connect", "source", "sink"))'

.PHONY: clean
clean: ## remove what the targets above made
	rm -rf $(VENV) $(BENCH) jars dist .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .hypothesis

.PHONY: needs-python
needs-python:
	@command -v $(PYTHON) >/dev/null || { echo "reconcile needs Python 3.11 to 3.13, and '$(PYTHON)' is not on the PATH. Install it, or name another: make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || { echo "reconcile needs Python 3.11 to 3.13, and '$(PYTHON)' is $$($(PYTHON) -V). Name another: make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "reconcile needs Python's venv module (Debian: apt-get install python3-venv)" >&2; exit 1; }

# Nothing is installed, nor built with anything, that has not the hash that the lock has.
$(VENV)/.ready: requirements.txt requirements-build.txt pyproject.toml | needs-python
ifneq ($(UV),)
	@test -x $(BIN)/python || uv venv -q --python "$$(command -v $(PYTHON))" $(VENV)
	VIRTUAL_ENV=$(CURDIR)/$(VENV) uv pip install -q --require-hashes --no-deps -r requirements-build.txt
	VIRTUAL_ENV=$(CURDIR)/$(VENV) uv pip sync -q --require-hashes --no-build-isolation requirements-build.txt requirements.txt
	VIRTUAL_ENV=$(CURDIR)/$(VENV) uv pip install -q --no-deps --no-build-isolation -e .
else
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/$(PIP) --require-hashes --no-deps --only-binary :all: -r requirements-build.txt
	$(BIN)/$(PIP) --require-hashes --no-deps --no-build-isolation --use-pep517 -r requirements.txt
	$(BIN)/$(PIP) --no-deps --no-build-isolation -e .
endif
	@touch $@

# PySpark ships Ivy, which fetches the rest: no build tool of the JVM is needed. What is there already stays.
jars/.ready: ivy.xml ivy.sha256 $(VENV)/.ready
	@RECONCILE_JARS= $(BIN)/reconcile setup
	@touch $@
