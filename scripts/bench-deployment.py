#!/usr/bin/env python3
"""Measures by the event log's own times how long a Deployment takes to come to life, and its namespace to go.

usage: scripts/bench-deployment.py [HOLDFAST [REPLICAS [NODES [TIMES]]]]    (target/release/holdfast, 1000, 100, 3)

Told are the seconds from the Deployment's event to that of its last pod's creation, binding and readiness, and from the
namespace's deletion to its last event, with the processor time of both.
"""

import datetime
import re
import subprocess
import sys
import tempfile
import time

from cluster import Server

HOLDFAST = sys.argv[1] if len(sys.argv) > 1 else "target/release/holdfast"
REPLICAS, NODES, TIMES = [*map(int, sys.argv[2:]), *[1000, 100, 3][len(sys.argv[2:]):]]
EVENT = re.compile(r"(\d+) (\S+Z) (\w+) ([a-z.]+)/(\S+)")


def deployment(namespace):
    labels = {"app": "web"}
    container = {"name": "c", "image": "registry.example/app:1", "resources": {"requests": {"cpu": "10m"}}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": REPLICAS, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": namespace}, "spec": spec}


def events(server, namespace):
    """Times, verbs, resources and keys of what was done to the namespace and in it."""
    command = [HOLDFAST, "log", "tail", f"--data-dir={server.folder}", "--lines=0"]
    for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():
        found = EVENT.match(line)
        if found and (found[5] == namespace or found[5].startswith(namespace + "/")):
            yield datetime.datetime.fromisoformat(found[2].replace("Z", "+00:00")).timestamp(), *found.group(3, 4, 5)


def wait(done):
    while not done():
        time.sleep(0.2)


def ready(server, namespace):
    status = server.ask(f"/apis/apps/v1/namespaces/{namespace}/deployments/web").get("status", {})
    return status.get("readyReplicas") == REPLICAS


def gone(server, namespace):
    items = server.ask("/api/v1/namespaces")["items"]
    return all(item["metadata"]["name"] != namespace for item in items)


def measure(server, namespace):
    server.ask("/api/v1/namespaces", {"metadata": {"name": namespace}})
    time.sleep(2)
    before = server.processor_seconds()
    server.ask(f"/apis/apps/v1/namespaces/{namespace}/deployments", deployment(namespace))
    wait(lambda: ready(server, namespace))
    lives = server.processor_seconds() - before
    told = list(events(server, namespace))
    began = next(at for at, verb, resource, _ in told if verb == "created" and resource == "deployments")
    pods = [(at, verb, key) for at, verb, resource, key in told if resource == "pods"]
    created = max(at for at, verb, _ in pods if verb == "created") - began
    first_change = {}
    for at, verb, key in pods:
        if verb != "created":
            first_change.setdefault(key, at)
    bound = max(first_change.values()) - began
    running = max(at for at, *_ in pods) - began
    print(f"{REPLICAS} pods: created after {created:.2f} s, bound after {bound:.2f} s, ready after {running:.2f} s, "
          f"{lives:.2f} s of CPU", flush=True)
    time.sleep(3)
    before = server.processor_seconds()
    server.remove(f"/api/v1/namespaces/{namespace}")
    wait(lambda: gone(server, namespace))
    goes = server.processor_seconds() - before
    told = [event for event in events(server, namespace) if event[0] > began + running]
    began = next(at for at, _, resource, _ in told if resource == "namespaces")
    print(f"  its namespace: nothing left after {told[-1][0] - began:.2f} s, {goes:.2f} s of CPU", flush=True)


def main():
    with tempfile.TemporaryDirectory() as folder, Server(HOLDFAST, folder, f"--nodes={NODES}") as server:
        time.sleep(5)
        for number in range(TIMES):
            measure(server, f"bench-{number}")


if __name__ == "__main__":
    main()
