# `make help` lists the targets. Variables: PYTHON, the interpreter for a new environment
# (such as python3.12); VENV, its folder; ARGS, arguments appended to the command of a
# target (such as ARGS='--config.seed=1').
VENV ?= .venv
PYTHON ?=
ARGS ?=
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
PIP := $(PY) -m pip --disable-pip-version-check
TESTS := $(PY) -m pytest --numprocesses=logical --maxprocesses=4 --dist=loadfile

SUPPORTED := import sys, venv, ensurepip; \
	sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))

.PHONY: help env train test test-network test-slow test-jobs faults mutants lint format results docs gallery bench
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

env: $(STAMP) ## create .venv from the requirements files (PYTHON=... sets the interpreter)

# The environment is created once and then updated: the stamp is older than the
# requirements if they have changed or the last installation failed.
$(STAMP): requirements.txt requirements-dev.txt
	@$(PIP) --version >/dev/null 2>&1 || { \
	  for python in $(or $(PYTHON),python3.13 python3.12 python3.11 python3 python); do \
	    "$$python" -c '$(SUPPORTED)' >/dev/null 2>&1 && break; python=; \
	  done; \
	  if [ -z "$$python" ]; then \
	    echo "error: $(or $(PYTHON),no python on PATH) $(if $(PYTHON),is not,is) a Python" \
	      "3.11, 3.12 or 3.13 with the venv module; name one: make env PYTHON=python3.12" >&2; \
	    exit 1; \
	  fi; \
	  echo "creating $(VENV) with $$("$$python" --version)"; \
	  "$$python" -m venv --clear $(VENV); \
	}
	@echo "installing the requirements into $(VENV) (the first time takes minutes)"
	@$(PIP) install -qq -r requirements-dev.txt
	@touch $@

train: env ## train the English-German Transformer into runs/transformer_nmt
	$(PY) train.py --config=configs/transformer_nmt.py --workdir=runs/transformer_nmt $(ARGS)

test: env ## run the default tests, without the network (ARGS='-k beam' selects tests)
	$(TESTS) $(ARGS)

test-network: env ## run the tests that download data packages to the user's cache
	$(TESTS) -m "network and not jobs" $(ARGS)

test-slow: env ## run the tests that train for more than ten seconds
	$(TESTS) -m "slow and not network" $(ARGS)

test-jobs: env ## run the longest tests: eight devices, several processes, each fault
	$(TESTS) -m jobs $(ARGS)

faults: env ## make faults many times, and write what they cost into docs/faults.md
	PYTHONPATH=.:tests $(PY) tests/tools/fault_table.py $(ARGS)

mutants: env ## list changes that the tests do not notice (ARGS=attention/core.py)
	@$(PIP) install -qq mutmut==3.8.1
	$(PY) tests/tools/mutants.py $(ARGS)

lint: env ## check format, lint, names, tests, imports and types
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) tests/tools/static.py
	$(PY) -m mypy

format: env ## format, and apply the fixes of ruff
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

results: env ## train the models that have no recorded result; write the tables of docs/
	$(PY) -m results.make $(ARGS)

docs: env ## build the site with the reference of the code and configs in build/site
	@rm -rf docs/api docs/configs
	$(PY) -m sphinx --quiet --fail-on-warning -d build/doctrees docs build/site

gallery: env ## make the packed examples that are missing, and screenshots of live figures
	$(PY) -m results.live
	$(PY) tests/tools/gallery.py

bench: env ## time this project and other libraries; write docs/benchmarks.md
	$(PY) -m benchmarks $(ARGS)
	$(PY) -m results.tables
