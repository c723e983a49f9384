# Everything a newcomer, a developer and CI need; each target installs what it uses.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
STAMP := $(VENV)/.installed
SPARK_STAMP := $(VENV)/.installed-spark
BENCH_STAMP := $(VENV)/.installed-bench
RESULTS := bench-results/page
BENCH := --seconds 1 --warm 0.3 --seconds-max 1.2
# All of ours, and of each peer the client that keeps most of the loads: gmqtt for paho, which keeps a third of L4.
SUSTAINED_SYSTEMS := mesh-requests,mesh-topics,mesh-topics-batch,mesh-durable,mesh-durable-each,zeromq,nng,zenoh,redis-pipelined,redis-streams,nats,jetstream,rabbitmq,rabbitmq-durable,mosquitto-gmqtt,activemq
SUSTAINED := --systems $(SUSTAINED_SYSTEMS) --warm 1 --seconds-max 2
BENCH_QUICK := --systems zeromq,mesh-requests,mesh-topics-batch,mesh-durable,zenoh,nats,redis-streams --workloads L2 --seconds 5

# Hundreds of processes start here, and one that compiles our modules anew takes half as long again:
# what is compiled is kept, whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test check sim bench bench-quick bench-sustained bench-marks bench-servers clean

$(STAMP): requirements.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -r requirements.txt
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(STAMP)

# Half a gigabyte, so apart from what everybody needs. Without Java its tests are skipped and say why.
$(SPARK_STAMP): requirements-spark.txt $(STAMP)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -r requirements-spark.txt
	@touch $(SPARK_STAMP)

$(BENCH_STAMP): requirements-bench.txt $(SPARK_STAMP)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --no-deps -r requirements-bench.txt
	@touch $(BENCH_STAMP)

demo: $(SPARK_STAMP)      ## the main job on real processes, then what was captured
	@$(RUN) -m examples.demo

# Three processes on two cores: tests of real processes wait for disks and timers for a third of their time.
test: check               ## everything CI runs
	$(RUN) -m pytest -q -rs -n 3 --dist loadgroup tests

# Its workers have 3 s to begin, or it fails: then once more without.
check: $(SPARK_STAMP)     ## format, lint, types
	$(VENV)/bin/ruff format --check --quiet .
	$(VENV)/bin/ruff check --quiet .
	$(VENV)/bin/mypy --num-workers 2 || $(VENV)/bin/mypy

sim: $(STAMP)             ## one story of the simulated network: make sim SEED=7
	MESH_SIM_SEED=$(SEED) $(RUN) -m pytest -q tests/sim/test_stories.py

bench: $(BENCH_STAMP)     ## docs/performance.md: all systems that are installed, under 20 minutes
	rm -rf $(RESULTS)
	$(RUN) -m bench compare --out $(RESULTS) --runs 1 $(BENCH) || test $$? -eq 1
	$(RUN) -m bench scale --out $(RESULTS) || test $$? -eq 1
	$(RUN) -m bench page $(RESULTS) --to docs/performance.md

bench-quick: $(BENCH_STAMP)  ## tries all of that in under 3 minutes: no figures to quote
	rm -rf $(RESULTS)-quick
	$(RUN) -m bench compare --out $(RESULTS)-quick --runs 1 --quick $(BENCH_QUICK)
	$(RUN) -m bench scale --out $(RESULTS)-quick --quick --axes size
	$(RUN) -m bench page $(RESULTS)-quick --to $(RESULTS)-quick/performance.md

bench-sustained: $(BENCH_STAMP)  ## docs/sustained.md: 30 s of each load, one client of each peer, in less than 45 minutes
	rm -rf $(RESULTS)-sustained
	$(RUN) -m bench compare --out $(RESULTS)-sustained --runs 1 $(SUSTAINED) || test $$? -eq 1
	$(RUN) -m bench page $(RESULTS)-sustained --to docs/sustained.md

bench-marks: $(BENCH_STAMP)   ## docs/performance.md: the project's own marks, in about 40 minutes
	rm -rf $(RESULTS)-marks && mkdir -p $(RESULTS)-marks
	$(RUN) -m bench mesh --json $(RESULTS)-marks/mesh.json || test $$? -eq 1
	$(RUN) -m bench durable --json $(RESULTS)-marks/durable.json || test $$? -eq 1
	$(RUN) -m bench spark --json $(RESULTS)-marks/spark.json || test $$? -eq 1
	$(RUN) -m bench page $(RESULTS)-marks --to docs/performance.md

bench-servers:            ## the servers of the other systems, from Debian
	apt-get install -y redis-server nats-server rabbitmq-server mosquitto activemq

clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
