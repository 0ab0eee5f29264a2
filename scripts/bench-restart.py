#!/usr/bin/env python3
"""Measures a restart of `holdfast up` on the log of a cluster of simulated nodes that run Deployments.

usage: scripts/bench-restart.py [HOLDFAST [NODES [DEPLOYMENTS [REPLICAS [SIMULATED]]]]]
       (target/release/holdfast, 5000, 100, 1000)
       SIMULATED: the number of nodes that are simulated after the restart [default: NODES]

The script prints:
- the seconds until the server serves, until the ReplicaSet controller has received all ReplicaSets, and until the
  queues of all controllers are empty;
- the seconds, the processor time and the memory until the server is at rest, and writes only leases and statuses of
  nodes;
- the processor time of a GET of a pod and of lists of pods after that.
"""

import sys
import tempfile
import time

from cluster import Server

HOLDFAST = sys.argv[1] if len(sys.argv) > 1 else "target/release/holdfast"
NODES, DEPLOYMENTS, REPLICAS = [*map(int, sys.argv[2:5]), *[5000, 100, 1000][len(sys.argv[2:5]):]]
SIMULATED = int(sys.argv[5]) if len(sys.argv) > 5 else NODES
IDLE_SHARE = 0.2
FORMS = {"JSON": "application/json", "Protobuf": "application/vnd.kubernetes.protobuf",
         "Table": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}


def deployment(number):
    labels = {"app": f"web-{number:03}"}
    container = {"name": "c", "image": "registry.example/app:1", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": REPLICAS, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": labels["app"]}, "spec": spec}


def deploy(server):
    """Creates the Deployments, and waits until all pods are ready."""
    for number in range(DEPLOYMENTS):
        server.ask("/apis/apps/v1/namespaces/default/deployments", deployment(number))
    ready, began = 0, time.monotonic()
    while ready < DEPLOYMENTS * REPLICAS:
        time.sleep(2)
        items = server.ask("/apis/apps/v1/namespaces/default/deployments")["items"]
        ready = sum(item.get("status", {}).get("readyReplicas", 0) for item in items)
    print(f"all ready after {time.monotonic() - began:.0f} s, {server.mebibytes():.0f} MiB", flush=True)


def sync(server):
    """Waits until the ReplicaSet controller has all ReplicaSets, and the queues of all controllers are empty."""
    cost = server.processor_seconds()
    print(f"serves after {server.seconds_to_ready:.1f} s, {cost:.1f} s of CPU, {server.mebibytes():.0f} MiB", flush=True)
    connection, synced, received = server.connect(), None, None
    while synced is None or time.monotonic() - synced < 0.5:
        metrics = server.metrics(connection)
        added = metrics.get('workqueue_adds_total{name="replicaset"}', 0)
        waiting = any(value for name, value in metrics.items() if name.startswith("workqueue_depth{"))
        if added >= DEPLOYMENTS and received is None:
            received = time.monotonic()
        if added < DEPLOYMENTS or waiting:
            synced = None
        elif synced is None:
            synced = time.monotonic()
        time.sleep(0.05)
    first, last = (moment - server.began - server.seconds_to_ready for moment in (received, synced))
    print(f"all ReplicaSets received {first:.1f} s later, queues empty {last:.1f} s later", flush=True)


def settle(server):
    """Waits until the server uses little processor time in each of three consecutive seconds."""
    quiet, before = 0, server.processor_seconds()
    while quiet < 3:
        time.sleep(1)
        now = server.processor_seconds()
        quiet = quiet + 1 if now - before < IDLE_SHARE else 0
        before = now
        if quiet == 1:
            settled = time.monotonic() - server.began - 1
            print(f"settled after {settled:.0f} s, {now:.1f} s of CPU, {server.mebibytes():.0f} MiB", flush=True)


def read(server):
    """Measures the processor time of reads of packed objects (docs/performance/packed-objects.md)."""
    name = server.ask("/api/v1/namespaces/default/pods?limit=1")["items"][0]["metadata"]["name"]
    for what, path, times in [
        ("get", f"/api/v1/namespaces/default/pods/{name}", 2000),
        ("page of 500", "/api/v1/pods?limit=500", 100),
        ("list", "/api/v1/pods", 2),
    ]:
        for form, accept in FORMS.items():
            for encoding in ["identity", "gzip"] if what == "list" else ["identity"]:
                before = server.processor_seconds()
                server.drain(path, times, {"Accept": accept, "Accept-Encoding": encoding})
                cost = (server.processor_seconds() - before) / times * 1000
                print(f"{what}, {form}, {encoding}: {cost:.3f} ms", flush=True)
    print(f"memory after the reads {server.mebibytes():.0f} MiB, peak {server.most_mebibytes():.0f} MiB")


def main():
    with tempfile.TemporaryDirectory() as folder:
        with Server(HOLDFAST, folder, f"--nodes={NODES}") as server:
            deploy(server)
        with Server(HOLDFAST, folder, f"--nodes={SIMULATED}") as server:
            sync(server)
            settle(server)
            read(server)


if __name__ == "__main__":
    main()
