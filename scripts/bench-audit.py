#!/usr/bin/env python3
"""Measures what an audit trail of level Metadata in a file costs: two servers, one of which keeps it, asked in turn.

usage: scripts/bench-audit.py [HOLDFAST [ROUNDS [REQUESTS [CLIENTS]]]]
       (target/release/holdfast, 41 rounds of 320 requests, 1 client)

A single client has each of its writes made durable by itself; those of many clients are by the dozen.

Told are the medians of processor time of a request without and with it, the kernel's part included, and the median of the
rounds' ratios: what else the machine does changes from second to second, and both servers of a round bear it alike.
"""

import collections
import concurrent.futures
import contextlib
import functools
import itertools
import json
import pathlib
import statistics
import sys
import tempfile

from cluster import Server

HOLDFAST = sys.argv[1] if len(sys.argv) > 1 else "target/release/holdfast"
ROUNDS, REQUESTS, CLIENTS = [*map(int, sys.argv[2:5]), *[41, 320, 1][len(sys.argv[2:5]):]]
POLICY = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}
NUMBERS = itertools.count()
VALUE = "v" * 560
CONFIG_MAPS, PODS = [f"/api/v1/namespaces/default/{plural}" for plural in ("configmaps", "pods")]
CONTAINER = {"name": "c", "image": "registry.example/app:1", "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}}}
POD = {"metadata": {"generateName": "bench-", "labels": {"app": "web"}}, "spec": {"containers": [CONTAINER], "nodeName": "n"}}
# `#` is another number each time: a patch that changes nothing is none. `@` is the client's.
OPERATIONS = {
    "create a ConfigMap": ("POST", CONFIG_MAPS, {"metadata": {"generateName": "bench-"}, "data": {"key": VALUE}}),
    "create a Pod": ("POST", PODS, POD),
    "merge-patch a ConfigMap": ("PATCH", f"{CONFIG_MAPS}/x@", {"data": {"key": f"#{VALUE}"}}),
    "get a ConfigMap": ("GET", f"{CONFIG_MAPS}/x@", None),
}


def nanoseconds(server):
    tasks = pathlib.Path(f"/proc/{server.process.pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks)


def run(server, connections, method, path, body):
    """Processor time of a request, in milliseconds."""
    before = nanoseconds(server)
    ask = functools.partial(ask_often, method=method, path=path, body=body)
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as clients:
        collections.deque(clients.map(ask, connections, range(CLIENTS)), maxlen=0)
    return (nanoseconds(server) - before) / REQUESTS / 1e6


def ask_often(connection, client, method, path, body):
    path = path.replace("@", str(client))
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    for _ in range(REQUESTS // CLIENTS):
        number = next(NUMBERS)
        connection.request(method, path, body and body.replace("#", str(number)), {"Content-Type": kind})
        answer = connection.getresponse()
        answer.read()
        if answer.status >= 300:
            raise RuntimeError(answer.status)


def main():
    with contextlib.ExitStack() as stack:
        folders = [pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(2)]
        policy = folders[1] / "policy.json"
        policy.write_text(json.dumps(POLICY))
        trail = [f"--audit-policy-file={policy}", f"--audit-log-path={folders[1] / 'audit.log'}"]
        servers = []
        for folder, options in zip(folders, ([], trail)):
            servers.append(stack.enter_context(Server(HOLDFAST, folder / "data", "--controllers=-*", *options)))
        for server in servers:
            for client in range(CLIENTS):
                server.ask(CONFIG_MAPS, {"metadata": {"name": f"x{client}"}, "data": {}})
            server.ask("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
        connections = [[server.connect() for _ in range(CLIENTS)] for server in servers]
        for what, (method, path, body) in OPERATIONS.items():
            body = body and json.dumps(body)
            rounds = []
            for _ in range(ROUNDS + 2):
                rounds.append([run(*pair, method, path, body) for pair in zip(servers, connections)])
            rounds = rounds[2:]
            without, with_it = (statistics.median(each) for each in zip(*rounds))
            ratio = statistics.median(b / a for a, b in rounds)
            print(f"{what}: {without:.4f} ms, {with_it:.4f} ms with a trail, {(ratio - 1) * 100:+.1f} %", flush=True)


if __name__ == "__main__":
    main()
