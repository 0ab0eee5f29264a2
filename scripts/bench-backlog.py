#!/usr/bin/env python3
"""Measures how fast `holdfast up` binds a backlog: pods that wait when the scheduler starts.

usage: scripts/bench-backlog.py [--apart | --alone] [SHAPE] [HOLDFAST [NODES [PODS]]]
       (target/release/holdfast, 5000, 10000)

No client creates pods meanwhile, so the rate is the rate of scheduling and binding alone; Events are written later.
All controllers run, except the node lifecycle controller: the nodes have no kubelets, so it would taint them.
With --alone, no controller that watches pods runs. With --apart, the scheduler is a separate process that calls the
API server over HTTPS, and no controllers run. The script reads the times from the log: from the scheduler's first
change of a pod to the last binding.

All pods request CPU and memory. SHAPE adds to their specification:
  --affinity       required affinity to the other pods, by region
  --anti-affinity  required anti-affinity to the other pods, by node (PODS must not exceed NODES)
  --preferred      preferred affinity to the other pods, by node
  --spread         topology spread over zones
  --preempt        a high priority: each node runs four pods of low priority, and each pod must preempt three of them
                   (PODS must not exceed NODES)
"""

import base64
import http.client
import json
import os
import pathlib
import re
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from datetime import datetime

APART = "--apart" in sys.argv
# `holdfast up` runs a scheduler only if it runs at least one controller.
CONTROLLERS = "clusterrole-aggregation-controller" if "--alone" in sys.argv else "*,-node-lifecycle-controller"
OTHERS = {"labelSelector": {"matchLabels": {"app": "bench"}}}


def affinity(side, topology_key, required=True):
    term = {**OTHERS, "topologyKey": topology_key}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]}
    return {"affinity": {side: {"requiredDuringSchedulingIgnoredDuringExecution": [term]} if required else preferred}}


SPREAD = {**OTHERS, "topologyKey": "topology.kubernetes.io/zone", "maxSkew": 5, "whenUnsatisfiable": "DoNotSchedule"}
SHAPES = {
    "--affinity": affinity("podAffinity", "topology.kubernetes.io/region"),
    "--anti-affinity": affinity("podAntiAffinity", "kubernetes.io/hostname"),
    "--preferred": affinity("podAffinity", "kubernetes.io/hostname", required=False),
    "--spread": {"topologySpreadConstraints": [SPREAD]},
    "--preempt": {"priorityClassName": "high"},
}
PREEMPT = "--preempt" in sys.argv
HIGH = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 10}
LOW_A_NODE = 4
SHAPE = next((SHAPES[argument] for argument in sys.argv if argument in SHAPES), {})
ARGUMENTS = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
HOLDFAST, NODES, PODS = [*ARGUMENTS, *["target/release/holdfast", 5000, 10000][len(ARGUMENTS):]]
NODES, PODS = int(NODES), int(PODS)
CLIENTS = 8
PATH = "/api/v1/namespaces/default/pods"


def processor_seconds(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Server:
    """A cluster whose data folder is in `folder`. The server runs until the end of a `with` block."""

    def __init__(self, folder, *options):
        self.folder, self.options = folder, options

    def __enter__(self):
        data = os.path.join(self.folder, "data")
        command = [HOLDFAST, "up", "--nodes=0", "--secure-port=0", f"--data-dir={data}", *self.options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        line = self.process.stdout.readline()
        self.address = re.search(r"https://(\S+)", line).group(1)
        config = pathlib.Path(data, "admin.kubeconfig").read_text()
        files = {}
        for part in ("certificate-authority", "client-certificate", "client-key"):
            found = re.search(rf"\b{part}-data:\s*\"?([A-Za-z0-9+/=]+)", config)
            files[part] = os.path.join(self.folder, part)
            pathlib.Path(files[part]).write_bytes(base64.b64decode(found.group(1)))
        self.tls = ssl.create_default_context(cafile=files["certificate-authority"])
        self.tls.load_cert_chain(files["client-certificate"], files["client-key"])
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()

    def processor_seconds(self):
        return processor_seconds(self.process)

    def post_all(self, path, bodies):
        def post(first):
            connection = http.client.HTTPSConnection(self.address, context=self.tls)
            for body in bodies[first::CLIENTS]:
                connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
                answer = connection.getresponse()
                said = answer.read()
                if answer.status >= 300:
                    sys.exit(f"{answer.status}: {said[:300]}")

        threads = [threading.Thread(target=post, args=(first,)) for first in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def node(number):
    name, room = f"node-{number:06}", {"cpu": "4", "memory": "32Gi", "pods": "110"}
    places = {"zone": f"z{number % 3}", "region": "r"}
    labels = {f"topology.kubernetes.io/{key}": value for key, value in places.items()}
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}}
    status = {"capacity": room, "allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}


def pod(name, cpu, more):
    resources = {"requests": {"cpu": cpu, "memory": "500Mi"}}
    container = {"name": "c", "image": "registry.k8s.io/pause:3.10", "resources": resources}
    metadata = {"name": name, "labels": {"app": "bench"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container], **more}}


def low(number):
    """A bound pod of low priority, which ends at once when it is preempted."""
    place = {"nodeName": f"node-{number // LOW_A_NODE:06}", "terminationGracePeriodSeconds": 0}
    return pod(f"low-{number:06}", "900m", place)


def bindings(folder):
    """Reads from the log the time when the scheduler first changed a pod, and the time of each binding."""
    data = os.path.join(folder, "data")
    tail = subprocess.run([HOLDFAST, "log", "tail", "--data-dir", data], capture_output=True, text=True, check=True)
    lines = (line.split() for line in tail.stdout.splitlines())
    changed = [line for line in lines if line[2:3] == ["changed"] and "(kube-scheduler," in line]
    moment = lambda line: datetime.fromisoformat(line[1].replace("Z", "+00:00"))
    return moment(changed[0]), [moment(line) for line in changed if "create)" in line]


def schedule(folder, bare):
    """Waits until the pods are scheduled. Returns the CPU seconds of the server, and of a separate scheduler."""
    seconds = max(8, PODS / 1000)
    if not APART:
        with Server(folder, f"--controllers={CONTROLLERS}") as server:
            time.sleep(seconds)
            status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
            kibibytes = int(re.search(r"VmHWM:\s+(\d+)", status).group(1))
            print(f"peak memory: {kibibytes >> 10} MiB", flush=True)
            return [server.processor_seconds()]
    with Server(folder, *bare) as server:
        kubeconfig = os.path.join(folder, "data", "admin.kubeconfig")
        rates = ("--kube-api-qps=100000", "--kube-api-burst=100000")
        command = [HOLDFAST, "scheduler", f"--kubeconfig={kubeconfig}", "--secure-port=0", "--leader-elect=false", *rates]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as scheduler:
            time.sleep(seconds * 2)
            spent = [server.processor_seconds(), processor_seconds(scheduler)]
            scheduler.terminate()
        return spent


def main():
    with tempfile.TemporaryDirectory() as folder:
        # Without the admission plug-in, new nodes have no taint that says that they are not ready. Without controllers
        # no scheduler runs, so the pods wait.
        bare = ("--controllers=-*", "--disable-admission-plugins=TaintNodesByCondition")
        with Server(folder, *bare) as server:
            server.post_all("/api/v1/nodes", [node(number) for number in range(NODES)])
        with Server(folder):
            time.sleep(6)  # Controllers make their one-time writes for new nodes, which are not measured.
        with Server(folder, *bare) as server:
            if PREEMPT:
                server.post_all("/apis/scheduling.k8s.io/v1/priorityclasses", [HIGH])
                server.post_all(PATH, [low(number) for number in range(NODES * LOW_A_NODE)])
            cpu = "3000m" if PREEMPT else "100m"
            server.post_all(PATH, [pod(f"pod-{number:06}", cpu, SHAPE) for number in range(PODS)])
        spent = schedule(folder, bare)
        began, times = bindings(folder)
        took = (times[-1] - began).total_seconds()
        print(f"{len(times)} of {PODS} pods bound in {took:.2f} s: {len(times) / took:.0f} a second; "
              f"{' and '.join(f'{seconds:.2f}' for seconds in spent)} s of CPU, including the start with {NODES} nodes")


if __name__ == "__main__":
    main()
