#!/usr/bin/env python3
"""Measures what operations cost with few objects in the store and with many: no line should grow.

usage: scripts/bench-sizes.py [HOLDFAST [OBJECTS...]]    (target/release/holdfast, 1000 35000 500000 1000000)

The server is a bare `holdfast up` on a folder of its own, the client `holdfast bench`. Costs are the server's processor
time in milliseconds; memory is what its process holds when the modes are done. The last line is the same folder opened
anew.
"""

import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

HOLDFAST = sys.argv[1] if len(sys.argv) > 1 else "target/release/holdfast"
SIZES = [int(size) for size in sys.argv[2:]] or [1000, 35_000, 500_000, 1_000_000]
COUNTS = {"create": 10_000, "get": 20_000, "merge-patch": 10_000, "page": 1500, "watch-all-paced": 500}
HEADER = ["objects", *COUNTS, "MiB"]


class Server:
    def __init__(self, data):
        options = ["--nodes=0", "--controllers=-*", "--secure-port=0", f"--data-dir={data}"]
        self.began = time.monotonic()
        self.process = subprocess.Popen([HOLDFAST, "up", *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.process.stdout.readline()
        self.ready = time.monotonic() - self.began
        self.kubeconfig = pathlib.Path(data, "admin.kubeconfig")

    def bench(self, *options):
        command = [HOLDFAST, "bench", f"--kubeconfig={self.kubeconfig}", f"--pid={self.process.pid}", "--json", "--keep"]
        said = subprocess.run([*command, *options], check=True, capture_output=True).stdout
        return json.loads(said)["rows"]

    def measure(self, mode, fill):
        # A list of its own would first have so many objects made: there are enough.
        options = ["--objects=1", "--watchers=100", "--watch-connections=10", f"--fill={fill}"]
        row = self.bench(mode, f"--count={COUNTS[mode]}", *options)[0]
        return row["server"]["processorMillisecondsPerOperation"]

    def mebibytes(self):
        lines = pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))

    def processor_seconds(self):
        return sum(int(field) for field in pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().split()[13:15]) / 100

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def main():
    with tempfile.TemporaryDirectory() as folder:
        server, there = Server(folder), 0
        print("".join(f"{name:>17}" for name in HEADER), flush=True)
        for size in SIZES:
            costs = [server.measure(mode, max(0, size - there) if mode == "create" else 0) for mode in COUNTS]
            there = max(there, size) + COUNTS["create"]
            columns = [size, *(f"{cost:.4f}" for cost in costs), f"{server.mebibytes():.0f}"]
            print("".join(f"{column:>17}" for column in columns), flush=True)
        server.end()
        server = Server(folder)
        print(f"started anew: {server.ready:.1f} s, {server.processor_seconds():.1f} s of CPU, {server.mebibytes():.0f} MiB")
        server.end()


if __name__ == "__main__":
    main()
