#!/usr/bin/env python3
"""Measures the start of `holdfast up` on the log of a living cluster: simulated nodes, and Deployments on them.

usage: scripts/bench-restart.py [HOLDFAST [NODES [DEPLOYMENTS [REPLICAS [LIVE]]]]]
       (target/release/holdfast, 5000, 100, 1000; LIVE: how many nodes have a life after the restart, all by default)

Told are the seconds until it serves, until controllers are in sync (they have been told of all that there is) and until
nothing of that waits in their queues any more, processor time and memory until nothing is done any more beside leases and
statuses of nodes, and what lists and a GET of a pod cost then.
"""

import sys
import tempfile
import time

from cluster import Server

HOLDFAST = sys.argv[1] if len(sys.argv) > 1 else "target/release/holdfast"
NODES, DEPLOYMENTS, REPLICAS = [*map(int, sys.argv[2:5]), *[5000, 100, 1000][len(sys.argv[2:5]):]]
LIVE = int(sys.argv[5]) if len(sys.argv) > 5 else NODES
IDLE_SHARE = 0.2
FORMS = {"JSON": "application/json", "Protobuf": "application/vnd.kubernetes.protobuf",
         "Table": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}


def deployment(number):
    labels = {"app": f"web-{number:03}"}
    container = {"name": "c", "image": "registry.example/app:1", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": REPLICAS, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": labels["app"]}, "spec": spec}


def live(server):
    """Has all pods become ready."""
    for number in range(DEPLOYMENTS):
        server.ask("/apis/apps/v1/namespaces/default/deployments", deployment(number))
    ready, began = 0, time.monotonic()
    while ready < DEPLOYMENTS * REPLICAS:
        time.sleep(2)
        items = server.ask("/apis/apps/v1/namespaces/default/deployments")["items"]
        ready = sum(item.get("status", {}).get("readyReplicas", 0) for item in items)
    print(f"all ready after {time.monotonic() - began:.0f} s, {server.mebibytes():.0f} MiB", flush=True)


def sync(server):
    """Waits until controllers have been told of everything, and then until no key of any waits any more."""
    cost = server.processor_seconds()
    print(f"serves after {server.seconds_to_ready:.1f} s, {cost:.1f} s of CPU, {server.mebibytes():.0f} MiB", flush=True)
    connection, synced, knowing = server.connect(), None, None
    while synced is None or time.monotonic() - synced < 0.5:
        metrics = server.metrics(connection)
        told = metrics.get('workqueue_adds_total{name="replicaset"}', 0)
        waiting = any(value for name, value in metrics.items() if name.startswith("workqueue_depth{"))
        if told >= DEPLOYMENTS and knowing is None:
            knowing = time.monotonic()
        if told < DEPLOYMENTS or waiting:
            synced = None
        elif synced is None:
            synced = time.monotonic()
        time.sleep(0.05)
    first, last = (moment - server.began - server.seconds_to_ready for moment in (knowing, synced))
    print(f"controllers in sync {first:.1f} s later, nothing waits {last:.1f} s later", flush=True)


def settle(server):
    """Waits until three seconds in a row cost next to nothing."""
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
    """What reads of packed objects cost."""
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
    print(f"afterwards {server.mebibytes():.0f} MiB, at most {server.most_mebibytes():.0f}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        with Server(HOLDFAST, folder, f"--nodes={NODES}") as server:
            live(server)
        with Server(HOLDFAST, folder, f"--nodes={LIVE}") as server:
            sync(server)
            settle(server)
            read(server)


if __name__ == "__main__":
    main()
