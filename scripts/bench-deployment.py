#!/usr/bin/env python3
"""Measures, by the times in the event log, how long the pods of a Deployment take to become ready, and how long the
deletion of its namespace takes.

usage: scripts/bench-deployment.py [HOLDFAST [REPLICAS [NODES [TIMES]]]]    (target/release/holdfast, 1000, 100, 3)

The script prints the seconds from the event that creates the Deployment to the creation, the binding and the readiness
of the last pod, the seconds from the deletion of the namespace to its last event, and the processor time of both.
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
    """Yields the time, verb, resource and key of each event of the namespace and of the objects in it."""
    command = [HOLDFAST, "log", "tail", f"--data-dir={server.folder}", "--lines=0"]
    for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():
        found = EVENT.match(line)
        if found and (found[5] == namespace or found[5].startswith(namespace + "/")):
            yield datetime.datetime.fromisoformat(found[2].replace("Z", "+00:00")).timestamp(), *found.group(3, 4, 5)


def wait(condition):
    while not condition():
        time.sleep(0.2)


def ready(server, namespace):
    status = server.ask(f"/apis/apps/v1/namespaces/{namespace}/deployments/web").get("status", {})
    return status.get("readyReplicas") == REPLICAS


def deleted(server, namespace):
    items = server.ask("/api/v1/namespaces")["items"]
    return all(item["metadata"]["name"] != namespace for item in items)


def measure(server, namespace):
    server.ask("/api/v1/namespaces", {"metadata": {"name": namespace}})
    time.sleep(2)
    before = server.processor_seconds()
    server.ask(f"/apis/apps/v1/namespaces/{namespace}/deployments", deployment(namespace))
    wait(lambda: ready(server, namespace))
    cpu = server.processor_seconds() - before
    found = list(events(server, namespace))
    began = next(at for at, verb, resource, _ in found if verb == "created" and resource == "deployments")
    pods = [(at, verb, key) for at, verb, resource, key in found if resource == "pods"]
    created = max(at for at, verb, _ in pods if verb == "created") - began
    first_change = {}
    for at, verb, key in pods:
        if verb != "created":
            first_change.setdefault(key, at)
    bound = max(first_change.values()) - began
    running = max(at for at, *_ in pods) - began
    print(f"{REPLICAS} pods: created after {created:.2f} s, bound after {bound:.2f} s, ready after {running:.2f} s, "
          f"{cpu:.2f} s of CPU", flush=True)
    time.sleep(3)
    before = server.processor_seconds()
    server.remove(f"/api/v1/namespaces/{namespace}")
    wait(lambda: deleted(server, namespace))
    cpu = server.processor_seconds() - before
    found = [event for event in events(server, namespace) if event[0] > began + running]
    began = next(at for at, _, resource, _ in found if resource == "namespaces")
    print(f"  its namespace: deleted after {found[-1][0] - began:.2f} s, {cpu:.2f} s of CPU", flush=True)


def main():
    with tempfile.TemporaryDirectory() as folder, Server(HOLDFAST, folder, f"--nodes={NODES}") as server:
        time.sleep(5)
        for number in range(TIMES):
            measure(server, f"bench-{number}")


if __name__ == "__main__":
    main()
