# Everything from a bare python3 (3.11 or newer), make and git:
#   make train    train MBPPO-Lagrangian on PointGoal on the CPU, with live progress
#   make test     run the tests
#   make docs     build the documentation site into .cache/site
#   make smoke    run every algorithm in small, from training to the report page
#   make speed    check that no part of training has become much slower
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
export JAX_COMPILATION_CACHE_DIR ?= $(CURDIR)/.cache/jax

.PHONY: setup train test test-all smoke speed lint types docs clean

setup: $(READY)

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and "Surefoot needs Python 3.11 or newer; $(PYTHON) is %d.%d. Name another: make PYTHON=python3.12" % v[:2])'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

train: setup
	$(BIN)/surefoot train PointGoal

# Neighbouring tests share fixtures and compiled programs, so each worker gets half of the list.
test: setup
	$(BIN)/python -m pytest -n 2 --dist worksteal -m 'not slow'

# With the compiler's default options; tests/conftest.py sets faster ones.
test-all: export XLA_FLAGS ?=
test-all: setup
	$(BIN)/python -m pytest -n 2 --dist worksteal

# Anew every time: what is there already would not be tried.
smoke: setup
	rm -rf .cache/smoke
	$(BIN)/surefoot reproduce smoke --device cpu --jobs 2 --out .cache/smoke

speed: export JAX_PLATFORMS ?= cpu
speed: setup
	$(BIN)/surefoot benchmark all --check

lint: setup
	$(BIN)/ruff check src tests benchmarks examples docs/hooks.py docs/pictures.py
	$(BIN)/ruff format --check src tests benchmarks examples docs/hooks.py docs/pictures.py

types: setup
	$(BIN)/pyright

docs: export NO_MKDOCS_2_WARNING := 1
docs: setup
	@$(BIN)/python -c 'import mkdocs' 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) .cache .pytest_cache .ruff_cache
