#!/usr/bin/env python3
"""Measures the cost of operations with few and with many objects in the store. Only the memory should grow.

usage: scripts/bench-sizes.py [HOLDFAST [OBJECTS...]]    (target/release/holdfast, 1000 35000 500000 1000000)

The server is `holdfast up` without nodes and controllers, in a temporary folder; the client is `holdfast bench`. The
columns are the server's processor time per operation in milliseconds, and the memory of its process after all modes.
The last line shows a restart on the same folder.
"""

import sys
import tempfile

from cluster import Server

HOLDFAST = sys.argv[1] if len(sys.argv) > 1 else "target/release/holdfast"
SIZES = [int(size) for size in sys.argv[2:]] or [1000, 35_000, 500_000, 1_000_000]
MODES = ["create", "get", "merge-patch", "page", "watch-all-paced"]


def main():
    options = ["--nodes=0", "--controllers=-*"]
    load = ["--count=2000", "--watchers=100", "--watch-connections=10", "--objects=1"]
    with tempfile.TemporaryDirectory() as folder:
        with Server(HOLDFAST, folder, *options) as server:
            print("".join(f"{name:>17}" for name in ["objects", *MODES, "MiB"]), flush=True)
            stored = 0
            for size in SIZES:
                rows = {row["operation"]: row["server"] for row in server.bench(*MODES, *load, f"--fill={size - stored}")}
                stored = size
                costs = [f"{rows[mode]['processorMillisecondsPerOperation']:.4f}" for mode in MODES]
                print("".join(f"{column:>17}" for column in [size, *costs, f"{server.mebibytes():.0f}"]), flush=True)
        with Server(HOLDFAST, folder, *options) as server:
            ready, processor = server.seconds_to_ready, server.processor_seconds()
            print(f"restart: {ready:.1f} s, {processor:.1f} s of CPU, {server.mebibytes():.0f} MiB")


if __name__ == "__main__":
    main()
