#!/usr/bin/env python3
"""Measures the cost of an audit log at level Metadata. Two servers, one with an audit log, get the same requests.

usage: scripts/bench-audit.py [HOLDFAST [ROUNDS [REQUESTS [CLIENTS]]]]
       (target/release/holdfast, 41 rounds of 320 requests, 1 client)

With one client each write has an fsync of its own; with many clients one fsync makes about a dozen durable.

For each operation the script prints the median processor time of a request on both servers, the kernel's part
included, and the median of the rounds' ratios. Other load on the machine changes from second to second. In each round
the script measures one server right after the other, so the load is about the same for both.
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
# `#` stands for a number that differs for each request, so that every patch changes its object. `@` stands for the
# number of the client.
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
    """Sends the requests of one round. Returns the processor time of a request, in milliseconds."""
    before = nanoseconds(server)
    send = functools.partial(send_many, method=method, path=path, body=body)
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as clients:
        collections.deque(clients.map(send, connections, range(CLIENTS)), maxlen=0)
    return (nanoseconds(server) - before) / REQUESTS / 1e6


def send_many(connection, client, method, path, body):
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
        audit = [f"--audit-policy-file={policy}", f"--audit-log-path={folders[1] / 'audit.log'}"]
        servers = []
        for folder, options in zip(folders, ([], audit)):
            servers.append(stack.enter_context(Server(HOLDFAST, folder / "data", "--controllers=-*", *options)))
        for server in servers:
            for client in range(CLIENTS):
                server.ask(CONFIG_MAPS, {"metadata": {"name": f"x{client}"}, "data": {}})
            server.ask("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
        connections = [[server.connect() for _ in range(CLIENTS)] for server in servers]
        for operation, (method, path, body) in OPERATIONS.items():
            body = body and json.dumps(body)
            rounds = []
            for _ in range(ROUNDS + 2):
                rounds.append([run(*pair, method, path, body) for pair in zip(servers, connections)])
            rounds = rounds[2:]  # The first two rounds warm up the servers.
            without, audited = (statistics.median(each) for each in zip(*rounds))
            ratio = statistics.median(b / a for a, b in rounds)
            change = f"{(ratio - 1) * 100:+.1f} %"
            print(f"{operation}: {without:.4f} ms, {audited:.4f} ms with an audit log, {change}", flush=True)


if __name__ == "__main__":
    main()
