#!/usr/bin/env python3
"""Measures the cost of etcd: compares a server on etcd with the same server on its own log, in alternate runs.

usage: scripts/bench-etcd.py HOLDFAST [ROUNDS [MODE...]]    (3 rounds of create get list page watch-all)

The script prints:
- for each operation the median processor time of the server, without etcd's, and the median of the rounds' ratios;
- the number of creates in a second with 32 writers, compared with the number of raw transactions of the same size that
  `storage-etcd/examples/transactions.rs` sends, also with 32 in flight;
- with three servers on one etcd, the processor time that a create costs the server that receives the request, and the
  processor time that its event costs each of the other two, which have no watches.

etcd has one member, and stores its files in $TMPDIR. The script runs the etcd that `make clients` has installed in
$HOLDFAST_CLIENTS.
"""

import contextlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from cluster import Server

HOLDFAST = sys.argv[1]
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 3
MODES = sys.argv[3:] or ["create", "get", "list", "page", "watch-all"]
ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
PROGRAMS = pathlib.Path(os.environ.get("HOLDFAST_CLIENTS", TARGET / "clients")) / "etcd/3.6"
FILL = 20_000
COUNTS = {"list": 30, "list-protobuf": 30, "page": 400, "watch": 500, "watch-all": 500}
WRITES = 20_000


class Etcd:
    """A member of etcd, which runs in a temporary folder until the end of a `with` block."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.url = f"http://127.0.0.1:{os.getpid() % 20_000 + 20_000}"
        peer = f"http://127.0.0.1:{os.getpid() % 20_000 + 40_000}"
        command = [PROGRAMS / "etcd", f"--data-dir={self.folder.name}", "--log-level=error", "--quota-backend-bytes=8589934592"]
        command += [f"--listen-client-urls={self.url}", f"--advertise-client-urls={self.url}", "--name=m"]
        command += [f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=m={peer}"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while subprocess.run([*self.ctl(), "endpoint", "health"], capture_output=True).returncode:
            if self.process.poll() is not None:
                sys.exit(f"{command[0]} ended with {self.process.returncode}")
            time.sleep(0.05)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.folder.cleanup()

    def ctl(self):
        return [PROGRAMS / "etcdctl", f"--endpoints={self.url}"]

    def get(self, *arguments):
        return json.loads(subprocess.run([*self.ctl(), "get", "-w", "json", *arguments], check=True, capture_output=True).stdout)


def start(folder, *options):
    return Server(HOLDFAST, folder, "--controllers=-*", *options)


def measure(server):
    """Returns the processor time of an operation in each mode, in milliseconds."""
    server.bench("--fill", str(FILL), "--count", "10", "get")
    one = lambda mode: server.bench("--fill", "0", "--count", str(COUNTS.get(mode, 20_000)), mode)[-1]
    return {mode: one(mode)["server"]["processorMillisecondsPerOperation"] for mode in MODES}


def on_its_own():
    with tempfile.TemporaryDirectory() as folder, start(folder) as server:
        return measure(server)


def on_etcd():
    with Etcd() as etcd, tempfile.TemporaryDirectory() as folder, start(folder, f"--etcd-servers={etcd.url}") as server:
        return measure(server)


def writers():
    """Returns the creates in a second with 32 writers, the raw transactions in a second with 32 in flight, and their
    size."""
    with Etcd() as etcd, tempfile.TemporaryDirectory() as folder, start(folder, f"--etcd-servers={etcd.url}") as server:
        made = server.bench("--fill", "0", "--count", str(WRITES), "create")[-1]["ratePerSecond"]
        stored = etcd.get("/registry/configmaps/", "--prefix", "--limit=10")["kvs"]
        size = max(len(pair["value"]) * 3 // 4 for pair in stored)
    with Etcd() as etcd:
        command = ["cargo", "run", "--quiet", "--release", "--locked", "--package", "holdfast-storage-etcd", "--example"]
        command += ["transactions", "--", etcd.url, str(WRITES), str(size)]
        raw = float(subprocess.run(command, check=True, capture_output=True, cwd=ROOT).stdout)
    return made, raw, size


def three_servers():
    """Returns the processor time per event of the server that writes and of two other servers, in milliseconds. The
    servers have no watches."""
    with Etcd() as etcd, tempfile.TemporaryDirectory() as folder:
        option = f"--etcd-servers={etcd.url}"
        with start(f"{folder}/0", option) as writer, contextlib.ExitStack() as stack:
            for name in "12":
                # The servers of one cluster have the same keys.
                shutil.copytree(f"{folder}/0/pki", f"{folder}/{name}/pki")
            other, third = (stack.enter_context(start(f"{folder}/{name}", option)) for name in "12")
            before = [server.processor_seconds() for server in (writer, other, third)]
            writer.bench("--fill", "0", "--count", str(WRITES), "create")
            for server in (other, third):
                server.ask("/api/v1/namespaces/default/configmaps?limit=1")
            after = [server.processor_seconds() for server in (writer, other, third)]
    return [(now - then) * 1000 / WRITES for then, now in zip(before, after)]


def main():
    rounds = []
    for number in range(ROUNDS):
        rounds.append((on_its_own(), on_etcd()))
        print(number, *rounds[-1], file=sys.stderr)
    print(f"{'mode':<20}{'own log':>10}{'etcd':>10}{'ratio':>8}   lowest to highest")
    for mode in MODES:
        own, etcd = ([pair[side][mode] for pair in rounds] for side in (0, 1))
        ratios = [with_it / without for without, with_it in zip(own, etcd)]
        middle = [statistics.median(values) for values in (own, etcd, ratios)]
        print("{:<20}{:>10.4f}{:>10.4f}{:>8.2f}".format(mode, *middle), f"  {min(ratios):.2f} to {max(ratios):.2f}")
    runs = [writers() for _ in range(ROUNDS)]
    made, raw, shares = ([run[0] for run in runs], [run[1] for run in runs], [run[0] / run[1] for run in runs])
    print(f"32 writers: {statistics.median(made):.0f} creates a second, raw transactions of {runs[0][2]} bytes: ", end="")
    print(f"{statistics.median(raw):.0f}, {statistics.median(shares):.0%} ({min(shares):.0%} to {max(shares):.0%})")
    events = [three_servers() for _ in range(ROUNDS)]
    writer, others = statistics.median(run[0] for run in events), statistics.median(sum(run[1:]) / 2 for run in events)
    print(f"three servers: a create costs the writing server {writer:.4f} ms, and each other server {others:.4f} ms")


main()
