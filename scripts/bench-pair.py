#!/usr/bin/env python3
"""Compares two builds of the server: measures the processor time of a request with each build alternately.

usage: scripts/bench-pair.py BEFORE AFTER [ROUNDS [MODE...]]    (6 rounds of get create merge-patch apply page list)

The speed of a shared machine changes from hour to hour, so a single number says little about a build. Each round
measures both builds, one right after the other. The script prints the median processor time of each build, the
kernel's part included, and the median of the rounds' ratios. AFTER's `holdfast bench` makes the load: 32 workers on 8
connections, and 35,000 ConfigMaps in the store.
"""

import json
import statistics
import subprocess
import sys
import tempfile

from cluster import Server

BEFORE, AFTER = sys.argv[1:3]
ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 6
MODES = sys.argv[4:] or ["get", "create", "merge-patch", "apply", "page", "list"]
FILL = 35_000
COUNTS = {"page": 400, "list": 30, "list-protobuf": 30, "table": 400, "watch": 500, "watch-all": 500}


def options(holdfast):
    """Turns off the controllers, if the build has the option for it."""
    known = subprocess.run([holdfast, "up", "--help"], capture_output=True, text=True).stdout
    return ["--controllers=-*"] if "--controllers" in known else []


def measure(holdfast):
    """Returns the processor time of an operation in each mode, in milliseconds."""
    with tempfile.TemporaryDirectory() as folder, Server(holdfast, folder, *options(holdfast)) as server:
        generate(server, "--fill", str(FILL), "--count", "10", "get")
        return {mode: generate(server, "--fill", "0", "--count", str(COUNTS.get(mode, 20_000)), mode) for mode in MODES}


def generate(server, *arguments):
    command = [AFTER, "bench", f"--kubeconfig={server.kubeconfig}", f"--pid={server.process.pid}", "--json", "--keep"]
    output = subprocess.run([*command, *arguments], check=True, capture_output=True).stdout
    return json.loads(output)["rows"][-1]["server"]["processorMillisecondsPerOperation"]


def main():
    rounds = []
    for number in range(ROUNDS):
        rounds.append((measure(BEFORE), measure(AFTER)))
        print(number, *rounds[-1], file=sys.stderr)
    print(f"{'mode':<20}{'before':>10}{'after':>10}{'ratio':>8}   lowest to highest")
    for mode in MODES:
        before, after = ([pair[side][mode] for pair in rounds] for side in (0, 1))
        ratios = [now / then for then, now in zip(before, after)]
        middle = [statistics.median(values) for values in (before, after, ratios)]
        print("{:<20}{:>10.4f}{:>10.4f}{:>8.2f}".format(mode, *middle), f"  {min(ratios):.2f} to {max(ratios):.2f}")


main()
