# The only list of commands. Everything they need goes into this folder: .venv, .jars, .ivy.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.SILENT:
.DEFAULT_GOAL := help
.PHONY: help setup demo test soak lives truth capture-truth kills fuzz chaos lag-chaos check docs rules bench lock jar-sums

BIN := .venv/bin
PYTHON ?=
PART ?= all
CHAOS_SECONDS ?= 900
KILLS ?= 50
FUZZ_SECONDS ?= 300
LIVES ?= 3000
SEED ?= $(shell date +%s)

help: ## Show this list
	awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Make .venv and .jars in this folder; takes a second if they are there. PYTHON=… and JAVA_HOME=… choose which
	say() { printf 'setup %3ds  %s\n' "$$SECONDS" "$$1"; }
	for python in $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11 ""; do
	  [[ -n "$$python" ]] || { echo "setup: install Python 3.11 or newer with venv (Debian: apt-get install python3 python3-venv)"; exit 1; }
	  "$$python" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break
	done
	"$$python" streaming/embedded/java.py || exit 1
	if ! $(BIN)/python -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
	  say "creating .venv ($$("$$python" --version))"
	  "$$python" -m venv --clear .venv
	fi
	if ! cmp -s requirements.lock .venv/requirements.lock; then
	  say "installing the packages of requirements.lock; PySpark alone is 430 MB"
	  $(BIN)/python -m pip install --disable-pip-version-check --require-hashes --no-deps -r requirements.lock
	  cp requirements.lock .venv/requirements.lock
	fi
	if ! cmp -s pyproject.toml .venv/pyproject.toml || [[ ! -x $(BIN)/group-monitor ]]; then
	  say "installing the project itself (editable)"
	  $(BIN)/python -m pip install --disable-pip-version-check --quiet --no-build-isolation --no-deps --editable .
	  cp pyproject.toml .venv/pyproject.toml
	fi
	$(BIN)/python -m streaming.embedded.fetch
	say "ready: $(BIN)/group-monitor"

demo: setup ## Real consumers on a real broker are killed, stalled, redeployed and hung; shows the alerts
	exec $(BIN)/group-monitor demo

test: export PYTHONDONTWRITEBYTECODE := # hundreds of processes import the project; each would compile it again
test: setup ## Run every test, in four parts side by side, so that both cores work to the end
	logs=$$(mktemp -d)
	slow="(e2e or spark) and not soak"
	real=(tests/e2e tests/dashboards tests/streaming) # no other folder has slow tests
	longest=(tests/oracle/test_truth.py tests/oracle/test_lives.py tests/oracle tests/streaming/serve tests/coordinator_model)
	fast() { # two parts at a time, the longest first; each ignores the paths of the parts before it
	  local path others=()
	  for path in "$${longest[@]}" tests/streaming tests; do
	    echo "$${others[@]}" "$$path"
	    others+=("--ignore=$$path")
	  done | LOGS=$$logs xargs -P 2 -L 1 sh -c 'nice $(BIN)/python -m pytest -m "not (e2e or spark or soak)" "$$@" > "$$LOGS/fast-$$$$" 2>&1' sh
	}
	parts=()
	beside() { # NAME COMMAND …: run a part in the background
	  "$${@:2}" < /dev/null > "$$logs/$$1" 2>&1 &
	  parts+=("$$!:$$1")
	}
	trap 'for part in "$${parts[@]}"; do kill -- "-$${part%%:*}" 2>/dev/null || true; done; rm -rf "$$logs"' EXIT
	set -m # each part is a process group, which the trap ends as a whole
	beside brokers $(BIN)/python -m pytest -m "$$slow" "$${real[@]}" --ignore=tests/streaming/run --durations=20
	beside fast fast
	set +m
	passed=true
	$(BIN)/python -m pytest -m "$$slow" tests/streaming/run --durations=20 || passed=false
	for part in "$${parts[@]}"; do
	  wait "$${part%%:*}" || passed=false
	  echo "== $${part#*:}"
	  cat "$$logs/$${part#*:}"*
	done
	$$passed

soak: setup ## Run the tests that are too slow for `make test`: outages, clusters of Spark, the job killed again and again
	$(BIN)/python -m pytest -m soak

lives: setup ## Compare verdicts with Kafka's own coordinator in random lives; LIVES=3000 SEED=1 KINDS=static+moves,… choose
	exec $(BIN)/python -m tests.oracle.lives --first $(or $(SEED),1) --count $(LIVES) $(if $(KINDS),--kinds $(KINDS))

truth: setup ## Print what the monitor says when telemetry is lost, late or doubled; EACH=40 SEED=… choose
	exec $(BIN)/python -m tests.oracle.truth --first $(or $(SEED),1) --count $(or $(EACH),40)

capture-truth: setup ## The same for the captures of real clusters; CAPTURES=kills,java chooses
	exec $(BIN)/python -m tests.oracle.capture_truth $(if $(CAPTURES),--captures $(CAPTURES))

kills: setup ## Kill driver, JVM or worker of the job again and again, at random; KILLS=50 SEED=… choose
	KILLS=$(KILLS) SEED=$(SEED) exec $(BIN)/python -m pytest tests/e2e/test_kills.py

fuzz: setup ## Send randomly damaged captures through parser, operator, store and serve; FUZZ_SECONDS=300 SEED=1 FUZZ_CASES=… choose
	exec $(BIN)/python -m tests.fuzz --seed $(SEED) --seconds $(FUZZ_SECONDS) $(if $(FUZZ_CASES),--count $(FUZZ_CASES))

chaos: setup ## Make random faults on three brokers, then compare all verdicts with their logs; CHAOS_SECONDS=900 SEED=… choose
	exec $(BIN)/python -m tests.e2e.chaos --nodes 3 --java --seconds $(CHAOS_SECONDS) --seed $(SEED) --out chaos-data

lag-chaos: setup ## Make the same faults, then compare lags and stalls with the brokers' answers; CHAOS_SECONDS=900 SEED=… choose
	exec $(BIN)/python -m tests.e2e.lag_chaos --nodes 3 --seconds $(CHAOS_SECONDS) --seed $(SEED) --out chaos-data/lag-$(SEED)

check: setup ## Check lint, format, types and import contracts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: rules ## Write the files that are made from code: docs/metrics.md, configuration.md, states.md, the facts in docs/rules, …
	$(BIN)/python -m docs.generate.metrics_page
	$(BIN)/python -m docs.generate.configuration_page
	$(BIN)/python -m docs.generate.states_page
	$(BIN)/group-monitor log4j2 --alone --key broker-1 > streaming/embedded/broker-log4j2.yaml
	$(BIN)/group-monitor dashboards render

bench: setup ## Measure the numbers of docs/performance.md on this machine; PART=… chooses one (PART=--help lists them)
	exec $(BIN)/python -m tests.benchmarks $(PART)

rules: setup ## Write only the facts in docs/rules and the list of alerts
	$(BIN)/python -m docs.generate.rule_pages

lock: setup ## Resolve all locks again from pyproject.toml: requirements.lock (everything) and deploy/locks (the images)
	$(BIN)/python -m pip install --quiet --upgrade --target .cache/lock uv
	compile() { # OUT WHAT...
	  .cache/lock/bin/uv pip compile "$${@:2}" --universal --python-version 3.11 --upgrade --generate-hashes \
	    --no-emit-index-url --no-annotate --custom-compile-command "make lock" --quiet --output-file "$$1"
	}
	compile requirements.lock pyproject.toml --all-extras --group dev
	tested=(--constraint requirements.lock) # the images get the versions that the tests ran with
	compile deploy/locks/build.lock --group build "$${tested[@]}"
	compile deploy/locks/run.lock pyproject.toml --extra spark --extra postgresql "$${tested[@]}"
	compile deploy/locks/serve.lock pyproject.toml --extra serve --extra postgresql --extra quality --extra grafana "$${tested[@]}"
	compile deploy/locks/sample.lock pyproject.toml --extra sample "$${tested[@]}"

jar-sums: setup ## Fetch the jars of a changed ivy.xml and write their sums
	$(BIN)/python -m streaming.embedded.fetch --accept
