# Everything a newcomer, a developer and CI need; each target installs what it uses.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
STAMP := $(VENV)/.installed
SPARK_STAMP := $(VENV)/.installed-spark

.PHONY: demo test check sim bench clean

$(STAMP): requirements.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -r requirements.txt
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(STAMP)

# Half a gigabyte, so apart from what everybody needs. Without Java its tests are skipped and say why.
$(SPARK_STAMP): requirements-spark.txt $(STAMP)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -r requirements-spark.txt
	@touch $(SPARK_STAMP)

demo: $(SPARK_STAMP)      ## the main job on real processes, then what was captured
	@$(RUN) -m examples.demo

test: check               ## everything CI runs
	$(RUN) -m pytest -q -rs -n 2 --dist loadgroup tests

check: $(SPARK_STAMP)     ## format, lint, types
	$(VENV)/bin/ruff format --check --quiet .
	$(VENV)/bin/ruff check --quiet .
	$(VENV)/bin/mypy

sim: $(STAMP)             ## one story of the simulated network: make sim SEED=7
	MESH_SIM_SEED=$(SEED) $(RUN) -m pytest -q tests/sim/test_stories.py

bench: $(STAMP)           ## the figures of docs/performance.md
	$(RUN) -m bench mesh --json out.json

clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
