# make test   lint, types and tests, in a virtual environment of its own
# make demo   train an ECOC language model and a softmax for the same time, and compare (under 5 minutes)
# make heads  codebooks and heads over the built-in vocabulary, side by side
# make bench  speed and memory of every head next to torch's own

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: test lint demo heads bench clean

$(VENV)/.run: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -e .
	touch $@

$(VENV)/.dev: $(VENV)/.run
	$(BIN)/python -m pip install --quiet -e ".[dev]"
	touch $@

test: lint
	$(BIN)/python -m pytest -n auto --dist worksteal

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

demo: $(VENV)/.run
	$(BIN)/python -m examples.demo

heads: $(VENV)/.run
	$(BIN)/python -m examples.compare_heads

bench: $(VENV)/.run
	$(BIN)/python -m benchmarks.heads --json benchmarks/heads.json

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
