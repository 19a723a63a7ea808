# Every verb sets up what it needs first, and only what is missing: the stamp files say what is there.

PYTHON ?= python3
UV_VERSION := 0.13.8
# The machine's own certificates, as pip and Java use them: a company's proxy may sign with its own.
INSTALL := .venv/bin/uv pip install --python .venv/bin/python --system-certs
ARGS ?=

# Airflow imports thousands of modules; without its bytecode cached it does so from source in every process.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test lint format up down clean

help: ## list these verbs
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo 'PYTHON=python3.12 make ... names another interpreter; make test ARGS="-k offsets" hands arguments to pytest.'

setup: .venv/.stamp-run .jvm/.stamp ## install what runs, into .venv and .jvm

demo: .venv/.stamp-run .jvm/.stamp ## run one feed end to end, with its own Kafka, and explain what happens
	@.venv/bin/python dev/demo.py

test: .venv/.stamp-dev .jvm/.stamp ## run the tests
	.venv/bin/python -m pytest $(ARGS)

lint: .venv/.stamp-dev ## check style, formatting, types and the direction of imports
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports

format: .venv/.stamp-dev ## format the code and mend what can be mended
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

up: .venv/.stamp-run .jvm/.stamp ## start Kafka, a trickle of events and Airflow, to try things out
	@.venv/bin/python dev/playground.py up

down: ## stop what `make up` started; its data stays
	@if [ -d .local/up ]; then .venv/bin/python dev/playground.py down; else echo 'Nothing to stop.'; fi

clean: down ## remove the playground's data and the tools' caches; .venv and .jvm stay
	rm -rf .local .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	rm -rf spark-warehouse metastore_db derby.log

.venv/.stamp-run: requirements.txt pyproject.toml
	@command -v $(PYTHON) >/dev/null || { \
		echo 'Python: expected 3.11 or later, found no $(PYTHON) on the PATH.' >&2; \
		echo '  Install it, or name another one: PYTHON=python3.12 make setup' >&2; exit 1; }
	@$(PYTHON) dev/check_machine.py
	@.venv/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	.venv/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	$(INSTALL) -r requirements.txt
	$(INSTALL) --no-deps -e .
	@touch $@

.venv/.stamp-dev: requirements-dev.txt .venv/.stamp-run
	$(INSTALL) -r requirements.txt -r requirements-dev.txt
	@touch $@

# The environment is needed for the Ivy inside pyspark; a newer one is no reason to resolve again.
.jvm/.stamp: dev/jvm/ivy.xml dev/jvm/ivysettings.xml | .venv/.stamp-run
	@$(PYTHON) dev/check_machine.py
	@rm -f $@
	@.venv/bin/python dev/resolve_jvm.py
	@touch $@
