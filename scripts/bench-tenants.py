#!/usr/bin/env python3
"""Measures how much one tenant's attack slows another tenant, the bystander.

usage: scripts/bench-tenants.py [HOLDFAST [SECONDS [ATTACK...]]]    (target/release/holdfast, 10 seconds each, all attacks)

For each attack the script starts a server with simulated nodes. The bystander, who may edit one namespace, creates and
lists ConfigMaps, resumes watches and rolls out Deployments, first alone and then during the attack. The attacker is
usually an administrator of another namespace, and in some attacks a user with fewer rights. For each operation the
script prints the 99th percentile without and during the attack, in milliseconds, and the ratio. Both are from one run,
so other load on the machine affects both. The attacker is a separate process with a lower priority, because the cost of
the attacker's client is not measured.

Each attack is a function in this file. The function creates the objects that the attack needs, and returns an action
that several threads repeat.
"""

import concurrent.futures
import http.client
import itertools
import json
import multiprocessing
import os
import socket
import ssl
import statistics
import sys
import tempfile
import threading
import time

from cluster import Server

HOLDFAST = sys.argv[1] if len(sys.argv) > 1 else "target/release/holdfast"
SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 10
CHOSEN = sys.argv[3:]
RBAC = "rbac.authorization.k8s.io"
ATTACKS = {}
# The numbers of watches, of watches with long selectors, and of TLS handshakes that an attack keeps open.
WATCHES, SELECTORS, HANDSHAKES = 300, 2000, 400


def attack(description, threads=4, role="admin"):
    """Registers an attack, with its description, the number of threads that repeat it, and the role of the attacker."""

    def register(function):
        ATTACKS[function.__name__.replace("_", "-")] = (description, threads, role, function)
        return function

    return register


class Tenant:
    """A user with a token and a namespace, who may have a role in this namespace."""

    def __init__(self, address, authority, namespace, token):
        self.address, self.namespace, self.token = address, namespace, token
        self.tls = ssl.create_default_context(cafile=authority)
        self.local = threading.local()

    def path(self, resource, group="", version="v1"):
        root = f"/apis/{group}/{version}" if group else f"/api/{version}"
        return f"{root}/namespaces/{self.namespace}/{resource}"

    def ask(self, method, path, body=None, form="application/json"):
        """Sends a request on the connection of this thread. Returns the status and the body of the answer."""
        if not isinstance(body, (bytes, type(None))):
            body = json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": form}
        for again in (True, False):
            connection = getattr(self.local, "connection", None)
            if connection is None:
                connection = http.client.HTTPSConnection(self.address, context=self.tls, timeout=60)
                self.local.connection = connection
            try:
                connection.request(method, path, body, headers)
                answer = connection.getresponse()
                return answer.status, answer.read()
            except (OSError, http.client.HTTPException):
                connection.close()
                self.local.connection = None
                if not again:
                    raise

    def create(self, path, body):
        status, said = self.ask("POST", path, body)
        if status not in (201, 409):
            raise RuntimeError(f"{status}: {said[:300]}")
        return json.loads(said)

    def open(self, path):
        """Sends a GET and returns its connection, from which nothing has been read."""
        host, port = self.address.rsplit(":", 1)
        opened = self.tls.wrap_socket(socket.create_connection((host, int(port)), 60), server_hostname=host)
        head = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.token}\r\n\r\n"
        opened.sendall(head.encode())
        return opened


class Cluster:
    """A server with a bystander, an attacker, and a user without rights."""

    def __init__(self, server, role):
        self.server = server
        server.connect()
        self.authority = os.path.join(server.folder, "bench-certificate-authority")
        self.bystander = self.tenant("bystander", "edit")
        self.attacker = self.tenant("attacker", role)
        self.nobody = self.tenant("nobody", None)

    def tenant(self, namespace, role):
        self.server.ask("/api/v1/namespaces", {"metadata": {"name": namespace}})
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        self.server.ask(accounts, {"metadata": {"name": "tenant"}})
        token = self.server.ask(f"{accounts}/tenant/token", {"spec": {"expirationSeconds": 7200}})["status"]["token"]
        tenant = Tenant(self.server.address, self.authority, namespace, token)
        if role:
            body = {**binding(tenant, "tenant", role), "roleRef": role_ref("ClusterRole", role)}
            self.server.ask(f"/apis/{RBAC}/v1/namespaces/{namespace}/rolebindings", body)
        return tenant


def prepare(cluster, path, bodies):
    """Creates objects as the administrator of the cluster, before the attack."""
    connection = cluster.server.connect()
    for body in bodies:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        said = answer.read()
        if answer.status != 201:
            raise RuntimeError(f"{answer.status}: {said[:300]}")


def role_ref(kind, name):
    return {"apiGroup": RBAC, "kind": kind, "name": name}


def deployment(name, replicas, **template):
    labels = {"app": name}
    spec = {"containers": [{"name": "c", "image": "i"}], **template}
    pods = {"metadata": {"labels": labels}, "spec": spec}
    return {"metadata": {"name": name}, "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": pods}}


# Attacks by requests that are expensive to authorize.


@attack("requests of an account to which 1,500 bindings give one role of 1.6 MiB")
def many_bindings(cluster):
    me = cluster.attacker
    bind_large_role(cluster, 1500)
    return lambda _: me.ask("GET", me.path("configmaps/none"))


@attack("SelfSubjectRulesReviews of an account to which 300 bindings give one role of 1.6 MiB")
def rules_reviews(cluster):
    me = cluster.attacker
    bind_large_role(cluster, 300)
    body = {"spec": {"namespace": me.namespace}}
    return lambda _: me.ask("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", body)


@attack("requests of an account to which 1,500 roles are bound")
def many_roles(cluster):
    me = cluster.attacker
    names = [f"r{number}" for number in range(1500)]
    rule = {"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]}
    roles = ({"metadata": {"name": name}, "rules": [{**rule, "resourceNames": [name]}]} for name in names)
    prepare(cluster, me.path("roles", RBAC), roles)
    prepare(cluster, me.path("rolebindings", RBAC), (binding(me, name, name) for name in names))
    return lambda _: me.ask("GET", me.path("secrets/none"))


@attack("bindings to a role of 20,000 rules, written by a user who does not have these rights")
def refused_bindings(cluster):
    me = cluster.attacker
    rules = [{"verbs": ["*"], "apiGroups": [f"g{number}"], "resources": ["*"]} for number in range(20_000)]
    cluster.server.ask(f"/apis/{RBAC}/v1/clusterroles", {"metadata": {"name": "large"}, "rules": rules})
    body = {**binding(me, "x", "large"), "roleRef": role_ref("ClusterRole", "large")}
    return lambda _: me.ask("POST", me.path("rolebindings", RBAC), body)


def bind_large_role(cluster, count):
    """Creates a role whose rules name 150,000 objects, and binds it to the attacker `count` times."""
    me = cluster.attacker
    names = [[f"n{first + offset}" for offset in range(100)] for first in range(0, 150_000, 100)]
    rules = [{"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": some} for some in names]
    prepare(cluster, me.path("roles", RBAC), [{"metadata": {"name": "large"}, "rules": rules}])
    prepare(cluster, me.path("rolebindings", RBAC), (binding(me, f"b{number}", "large") for number in range(count)))


def binding(tenant, name, role):
    subject = {"kind": "ServiceAccount", "namespace": tenant.namespace, "name": "tenant"}
    return {"metadata": {"name": name}, "roleRef": role_ref("Role", role), "subjects": [subject]}


# Attacks by reads, most of them of past versions.


@attack("watches that send large events of the past, which the client does not read")
def unread_watches(cluster):
    me = cluster.attacker
    first = write_events(me, 40, 1_000_000)
    return keep_open(WATCHES, lambda _: me.open(f"{me.path('configmaps')}?watch=1&resourceVersion={first}"))


@attack("watches, from the oldest version, of objects that other users write", role="view")
def watches_from_the_beginning(cluster):
    me, other = cluster.attacker, cluster.bystander
    first = write_events(other, 20_000, 1000)
    return keep_open(WATCHES, lambda _: me.open(f"{me.path('configmaps')}?watch=1&resourceVersion={first}"))


@attack("access reviews at versions of the past, by a user without rights")
def reviews_of_the_past(cluster):
    first = write_events(cluster.bystander, 5000, 4000)
    body = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}
    versions = itertools.cycle(range(first, first + 4000))
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    return lambda _: cluster.nobody.ask("POST", f"/at/{next(versions)}{path}", body)


@attack("requests for the first page of a list, each at another version")
def first_pages(cluster):
    me = cluster.attacker
    write_events(me, 100, 100_000)
    texts = itertools.count()

    def page(_):
        me.ask("PUT", me.path("configmaps/w0"), {"metadata": {"name": "w0"}, "data": {"a": f"{next(texts)}" * 50_000}})
        me.ask("GET", f"{me.path('configmaps')}?limit=1")

    return page


@attack("large answers that the client does not read")
def unread_answers(cluster):
    me = cluster.attacker
    for number in range(20):
        me.create(me.path("configmaps"), {"metadata": {"name": f"c{number}"}, "data": {"a": "x" * 900_000}})
    return keep_open(WATCHES, lambda _: me.open(f"{me.path('configmaps')}?pretty=true"))


def write_events(tenant, count, size):
    """Writes `count` events of `size` bytes. Returns the version of the first event."""
    makers = 4
    begun = []

    def write(maker):
        name = f"w{maker}"
        for number in range(count // makers):
            body = {"metadata": {"name": name}, "data": {"a": f"{number} " + "x" * size}}
            method, path = ("PUT", f"{tenant.path('configmaps')}/{name}") if number else ("POST", tenant.path("configmaps"))
            code, said = tenant.ask(method, path, body)
            if code not in (200, 201):
                raise RuntimeError(f"{method} {path}: {said}")
            if not number:
                begun.append(int(json.loads(said)["metadata"]["resourceVersion"]))

    with concurrent.futures.ThreadPoolExecutor(makers) as pool:
        list(pool.map(write, range(makers)))
    return min(begun)


def keep_open(count, open_one):
    """Returns an action that opens `count` connections, over all threads, and then waits. The connections stay open
    until the attack ends."""
    kept, lock, numbers = [], threading.Lock(), itertools.count()

    def open_or_wait(_):
        with lock:
            number = next(numbers)
        if number >= count:
            time.sleep(0.1)
            return
        opened = open_one(number)
        with lock:
            kept.append(opened)

    return open_or_wait


# An attack by watches.


@attack("2,000 watches with selectors of 60 KB, and writes to the watched objects")
def long_selectors(cluster):
    me = cluster.attacker

    def watch(number):
        values = ",".join(f"v{number}x{value}" for value in range(6000))
        return me.open(f"{me.path('configmaps')}?watch=1&labelSelector=a%20notin%20({values})")

    opening, numbers = keep_open(SELECTORS, watch), itertools.count()

    def watch_and_write(thread):
        opening(thread)
        labels = {"a": f"v{next(numbers)}"}
        me.ask("PATCH", f"{me.path('configmaps')}/w?fieldManager=x&force=true", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "w", "labels": labels}}, "application/apply-patch+yaml")

    return watch_and_write


# Attacks by objects that are expensive for controllers, the scheduler and nodes.


@attack("one Deployment with a large template and 2,147,483,647 replicas", threads=1)
def endless_deployment(cluster):
    me = cluster.attacker
    large = [{"name": "c", "image": "i", "env": [{"name": "A", "value": "x" * (5 << 19)}]}]
    me.create(me.path("deployments", "apps"), deployment("w", 2147483647, containers=large, nodeSelector={"no": "where"}))
    return lambda _: time.sleep(0.1)


@attack("600 Services, all of which select the same 800 pods", threads=1)
def many_services(cluster):
    me = cluster.attacker
    for number in range(600):
        service = {"clusterIP": "None", "selector": {"app": "x"}, "ports": [{"port": 80}]}
        me.create(me.path("services"), {"metadata": {"name": f"s{number}"}, "spec": service})
    me.create(me.path("deployments", "apps"), deployment("x", 800))
    return lambda _: time.sleep(0.1)


@attack("30 PodDisruptionBudgets whose selectors have 40,000 terms, over 800 pods", threads=1)
def long_budgets(cluster):
    me = cluster.attacker
    me.create(me.path("deployments", "apps"), deployment("x", 800))
    terms = [{"key": f"k{number}", "operator": "DoesNotExist"} for number in range(40_000)]
    selector = {"matchLabels": {"app": "x"}, "matchExpressions": terms}
    for number in range(30):
        budget = {"minAvailable": 1, "selector": selector}
        me.create(me.path("poddisruptionbudgets", "policy"), {"metadata": {"name": f"b{number}"}, "spec": budget})
    return touch(me, "deployments/x", "apps")


@attack("3 Services with 20,000 named ports, which select 800 pods", threads=1)
def many_ports(cluster):
    me = cluster.attacker
    me.create(me.path("deployments", "apps"), deployment("x", 800))
    ports = [{"name": f"p{number}", "port": number + 1} for number in range(20_000)]
    for number in range(3):
        service = {"clusterIP": "None", "selector": {"app": "x"}, "ports": ports}
        me.create(me.path("services"), {"metadata": {"name": f"s{number}"}, "spec": service})
    return touch(me, "deployments/x", "apps")


@attack("3 pods with 2,000 ephemeral volumes", threads=1)
def many_volumes(cluster):
    me = cluster.attacker
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    volumes = [{"name": f"v{number}", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}} for number in range(2000)]
    for number in range(3):
        spec = {"containers": [{"name": "c", "image": "i"}], "volumes": volumes}
        me.create(me.path("pods"), {"metadata": {"name": f"p{number}"}, "spec": spec})
    return lambda _: time.sleep(0.1)


@attack("pods for which the query of a Stage takes long", threads=2)
def long_stages(cluster):
    me = cluster.attacker
    query = '.metadata.annotations.x | (split("") - (ascii_downcase | split("")))'
    selector = {"matchLabels": {"stage": "yes"}, "matchExpressions": [{"key": query, "operator": "Exists"}]}
    spec = {"resourceRef": {"apiGroup": "v1", "kind": "Pod"}, "selector": selector, "next": {"statusTemplate": "phase: Running"}}
    cluster.server.ask("/apis/kwok.x-k8s.io/v1alpha1/stages", {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage", "metadata": {"name": "x"}, "spec": spec})
    metadata = {"name": "p", "labels": {"stage": "yes"}, "annotations": {"x": "B" * 250_000}}
    me.create(me.path("pods"), {"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    return touch(me, "pods/p")


@attack("3 pods with 6,000 terms of affinity and spreading, which fit on no node", threads=2)
def long_affinities(cluster):
    me = cluster.attacker
    me.create(me.path("deployments", "apps"), deployment("x", 100))
    select = {"matchLabels": {"app": "x"}}
    apart = [{"labelSelector": select, "topologyKey": f"k{number}"} for number in range(3000)]
    spread = [{"labelSelector": select, "maxSkew": 1, "topologyKey": f"k{number}", "whenUnsatisfiable": "ScheduleAnyway"} for number in range(3000)]
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": apart}}
    for number in range(3):
        labels = {"app": "x"}
        spec = {"containers": [{"name": "c", "image": "i"}], "affinity": affinity, "topologySpreadConstraints": spread, "nodeSelector": {"no": "where"}}
        me.create(me.path("pods"), {"metadata": {"name": f"p{number}", "labels": labels}, "spec": spec})
    return touch(me, "pods/p0")


@attack("StatefulSets and Jobs of 2,147,483,647 pods that fit on no node", threads=1)
def endless_sets(cluster):
    me, most = cluster.attacker, 2147483647
    nowhere = {"containers": [{"name": "c", "image": "i"}], "nodeSelector": {"no": "where"}}
    for number in range(10):
        name = f"s{number}"
        template = {"metadata": {"labels": {"app": name}}, "spec": nowhere}
        parts = {"serviceName": "x", "podManagementPolicy": "Parallel", "ordinals": {"start": most}}
        spec = {"replicas": most, "selector": {"matchLabels": {"app": name}}, "template": template, **parts}
        me.create(me.path("statefulsets", "apps"), {"metadata": {"name": name}, "spec": spec})
        once = {**template, "spec": {**nowhere, "restartPolicy": "Never"}}
        indexed = {"completionMode": "Indexed", "parallelism": 100_000, "completions": 100_000}
        me.create(me.path("jobs", "batch"), {"metadata": {"name": f"i{number}"}, "spec": {**indexed, "template": once}})
        me.create(me.path("jobs", "batch"), {"metadata": {"name": f"j{number}"}, "spec": {"parallelism": most, "completions": most, "template": once}})
    return lambda _: time.sleep(0.1)


@attack("Jobs of 2,147,483,647 pods, of which 500 at a time are bound, run and end", threads=1)
def endless_jobs(cluster):
    me, most = cluster.attacker, 2147483647
    for number in range(5):
        spec = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
        spec = {"parallelism": 100, "completions": most, "template": {"spec": spec}}
        me.create(me.path("jobs", "batch"), {"metadata": {"name": f"j{number}"}, "spec": spec})
    return lambda _: time.sleep(0.1)


@attack("pods with 30,000 tolerations that fit on no node, five created in a second", threads=1)
def long_tolerations(cluster):
    me, numbers = cluster.attacker, itertools.count()
    tolerations = [{"key": f"k{number}", "operator": "Exists"} for number in range(30_000)]
    spec = {"containers": [{"name": "c", "image": "i"}], "tolerations": tolerations, "nodeSelector": {"no": "where"}}

    def create(_):
        me.create(me.path("pods"), {"metadata": {"name": f"p{next(numbers)}"}, "spec": spec})
        time.sleep(0.2)

    return create


@attack("5 objects with 20,000 owner references, changed again and again", threads=1)
def many_owners(cluster):
    me, numbers = cluster.attacker, itertools.count()
    owners = [{"apiVersion": "v1", "kind": "ConfigMap", "name": f"n{number}", "uid": f"u{number}"} for number in range(20_000)]
    for number in range(5):
        me.create(me.path("configmaps"), {"metadata": {"name": f"o{number}", "ownerReferences": owners}})

    def change(_):
        number = next(numbers)
        patch = {"metadata": {"annotations": {"touched": f"{number}"}}}
        me.ask("PATCH", f"{me.path('configmaps')}/o{number % 5}", patch, "application/merge-patch+json")

    return change


@attack("40 PersistentVolumeClaims that select among 200 volumes, with 15,000 terms in their selectors", threads=1)
def long_claims(cluster):
    me, numbers = cluster.attacker, itertools.count()
    volume = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}, "storageClassName": "s"}
    volumes = ({"metadata": {"name": f"v{number}", "labels": {"a": f"{number}"}}, "spec": volume} for number in range(200))
    prepare(cluster, "/api/v1/persistentvolumes", volumes)
    terms = [{"key": f"k{number}", "operator": "DoesNotExist"} for number in range(15_000)]
    selector = {"matchExpressions": [*terms, {"key": "z", "operator": "Exists"}]}
    common = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    for number in range(40):
        spec = {"storageClassName": "s", "selector": selector, **common}
        me.create(me.path("persistentvolumeclaims"), {"metadata": {"name": f"c{number}"}, "spec": spec})

    def change(_):
        number = next(numbers)
        patch = {"metadata": {"annotations": {"touched": f"{number}"}}}
        me.ask("PATCH", f"{me.path('persistentvolumeclaims')}/c{number % 40}", patch, "application/merge-patch+json")

    return change


@attack("300 autoscalers of one Deployment of 800 pods", threads=1)
def many_autoscalers(cluster):
    me = cluster.attacker
    me.create(me.path("deployments", "apps"), deployment("x", 800))
    metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": number + 1}}} for number in range(50)]
    for number in range(300):
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}
        spec = {"scaleTargetRef": target, "minReplicas": 800, "maxReplicas": 801, "metrics": metrics}
        me.create(me.path("horizontalpodautoscalers", "autoscaling", "v2"), {"metadata": {"name": f"h{number}"}, "spec": spec})
    return lambda _: time.sleep(0.1)


def touch(me, name, group=""):
    """Returns an action that changes an object. Controllers and nodes process the object after each change."""
    numbers, path = itertools.count(), me.path(name, group)

    def change(_):
        patch = {"metadata": {"annotations": {"touched": f"{next(numbers)}"}}}
        me.ask("PATCH", path, patch, "application/merge-patch+json")
        time.sleep(0.05)

    return change


# Attacks by requests whose bytes are expensive to decode, check or patch, and by many connections.


@attack("requests of 3 MiB to create pods with 900,000 empty containers")
def empty_containers(cluster):
    me = cluster.attacker
    body = b'{"metadata":{"name":"p"},"spec":{"containers":[' + b"{}," * 899_999 + b"{}]}}"
    return lambda _: me.ask("POST", me.path("pods"), body)


@attack("server-side apply of Deployments with 900,000 empty volumes")
def empty_volumes(cluster):
    me = cluster.attacker
    body = b'{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"template":{"spec":{"volumes":[' + b"{}," * 899_999 + b"{}]}}}}"
    path = f"{me.path('deployments', 'apps')}/d?fieldManager=x"
    return lambda _: me.ask("PATCH", path, body, "application/apply-patch+yaml")


@attack("ConfigMaps whose labels break the rules in 300,000 places")
def faulty_labels(cluster):
    me = cluster.attacker
    labels = ",".join(f'"-{number}-":"-"' for number in range(180_000))
    body = f'{{"metadata":{{"name":"c","labels":{{{labels}}}}}}}'.encode()
    return lambda _: me.ask("POST", me.path("configmaps"), body)


@attack("patches that insert 10,000 texts at the beginning of a list of 700,000 texts")
def early_items(cluster):
    me = cluster.attacker
    made = deployment("d", 0)
    made["spec"]["template"]["spec"]["containers"][0]["args"] = [""] * 700_000
    me.create(me.path("deployments", "apps"), made)
    place = "/spec/template/spec/containers/0/args/0"
    body = json.dumps([{"op": "add", "path": place, "value": ""}] * 9_999)
    path = f"{me.path('deployments', 'apps')}/d?dryRun=All"
    return lambda _: me.ask("PATCH", path, body.encode(), "application/json-patch+json")


@attack("patches that remove all 150,000 texts of a list")
def many_deletions(cluster):
    me = cluster.attacker
    names = [f"a.b/{number}" for number in range(150_000)]
    me.create(me.path("configmaps"), {"metadata": {"name": "c", "finalizers": names}})
    order = {"$deleteFromPrimitiveList/finalizers": names[::-1], "$setElementOrder/finalizers": names[:10]}
    path = f"{me.path('configmaps')}/c?dryRun=All"
    body = json.dumps({"metadata": order}).encode()
    return lambda _: me.ask("PATCH", path, body, "application/strategic-merge-patch+json")


@attack("access reviews of accounts that are in 200,000 groups", role="admin")
def many_groups(cluster):
    me = cluster.attacker
    groups = [f"g{number}" for number in range(200_000)]
    about = {"namespace": me.namespace, "verb": "get", "resource": "pods"}
    body = {"metadata": {"namespace": me.namespace}, "spec": {"user": "x", "groups": groups, "resourceAttributes": about}}
    sent = json.dumps(body).encode()
    return lambda _: me.ask("POST", me.path("localsubjectaccessreviews", "authorization.k8s.io"), sent)


@attack("CONNECT requests of clients without credentials")
def connects(cluster):
    host, port = cluster.server.address.rsplit(":", 1)
    tls = ssl._create_unverified_context()

    def connect(_):
        with tls.wrap_socket(socket.create_connection((host, int(port)), 5), server_hostname=host) as opened:
            opened.settimeout(5)
            opened.sendall(b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: x\r\n\r\n")
            opened.recv(300)

    return connect


@attack("TLS handshakes that clients without credentials begin and never end")
def handshakes(cluster):
    host, port = cluster.server.address.rsplit(":", 1)

    def begin(_):
        opened = socket.create_connection((host, int(port)), 5)
        opened.sendall(b"\x16\x03\x01\x02\x00")
        return opened

    return keep_open(HANDSHAKES, begin)


# The bystander.


class Bystander:
    """A tenant that repeats a few operations, and measures the time of each."""

    def __init__(self, tenant):
        self.tenant, self.numbers = tenant, itertools.count()
        self.times = {}

    def measure(self, seconds):
        """Repeats all operations for some seconds. Returns the 99th percentile of each, in milliseconds."""
        self.times = {operation: [] for operation in ("create", "list", "resume", "rollout")}
        self.until = time.monotonic() + seconds
        with concurrent.futures.ThreadPoolExecutor(2) as both:
            for done in [both.submit(self.repeat, act) for act in (self.requests, self.roll_out)]:
                done.result()
        return {operation: percentile(times) * 1e3 for operation, times in self.times.items() if times}

    def repeat(self, act):
        while time.monotonic() < self.until:
            act(f"x{next(self.numbers)}")
            time.sleep(0.02)

    def timed(self, operation, act):
        began = time.monotonic()
        said = act()
        self.times[operation].append(time.monotonic() - began)
        return said

    def requests(self, name):
        me, path = self.tenant, self.tenant.path("configmaps")
        status, said = self.timed("list", lambda: me.ask("GET", f"{path}?labelSelector=of=bystander"))
        version = json.loads(said)["metadata"]["resourceVersion"] if status == 200 else "0"
        body = {"metadata": {"name": name, "labels": {"of": "bystander"}}, "data": {"a": "b"}}
        self.timed("create", lambda: me.ask("POST", path, body))
        self.timed("resume", lambda: self.resume(f"{path}?watch=1&labelSelector=of=bystander&resourceVersion={version}", name))
        me.ask("DELETE", f"{path}/{name}")

    def resume(self, path, name):
        with self.tenant.open(path) as watch:
            watch.settimeout(60)
            seen = b""
            while f'"{name}"'.encode() not in seen:
                read = watch.recv(65536)
                if not read:
                    return
                seen += read

    def roll_out(self, name):
        me, path = self.tenant, self.tenant.path("deployments", "apps")

        def until_ready():
            me.ask("POST", path, deployment(name, 3))
            while True:
                status, said = me.ask("GET", f"{path}/{name}")
                if status == 200 and json.loads(said).get("status", {}).get("readyReplicas") == 3:
                    return
                if time.monotonic() > self.until + 60:
                    return
                time.sleep(0.01)

        self.timed("rollout", until_ready)
        me.ask("DELETE", f"{path}/{name}")


def percentile(times):
    return sorted(times)[min(len(times) - 1, int(len(times) * 0.99))]


def attack_until(ended, act, threads, begun):
    """Runs in the attacker's process: repeats the action in several threads until the event `ended`."""
    os.nice(10)

    def repeat(thread):
        while not ended.is_set():
            try:
                act(thread)
            except (OSError, http.client.HTTPException):
                time.sleep(0.1)

    begun.set()
    pool = [threading.Thread(target=repeat, args=(thread,), daemon=True) for thread in range(threads)]
    [thread.start() for thread in pool]
    ended.wait()
    os._exit(0)


def run(name):
    description, threads, role, function = ATTACKS[name]
    with tempfile.TemporaryDirectory(prefix="holdfast-tenants-") as folder, Server(HOLDFAST, folder, "--nodes=8") as server:
        cluster = Cluster(server, role)
        bystander = Bystander(cluster.bystander)
        bystander.measure(2)
        alone = bystander.measure(SECONDS)
        act = function(cluster)
        # The attacker's process must not use the connections of this process.
        for tenant in (cluster.attacker, cluster.bystander, cluster.nobody):
            tenant.local = threading.local()
        begun, ended = multiprocessing.Event(), multiprocessing.Event()
        attacker = multiprocessing.Process(target=attack_until, args=(ended, act, threads, begun), daemon=True)
        attacker.start()
        begun.wait()
        time.sleep(1)
        spent = server.processor_seconds()
        during = bystander.measure(SECONDS)
        spent = server.processor_seconds() - spent
        ended.set()
        attacker.join(5)
        attacker.kill()
        ratios = {operation: during[operation] / alone[operation] for operation in alone if operation in during}
        cells = [f"{alone[key]:.0f} → {during[key]:.0f}, ×{ratios[key]:.1f}" for key in ratios]
        worst = max(ratios.values())
        cells += [f"×{worst:.1f}", f"{spent:.0f} s, {server.most_mebibytes():.0f} MiB"]
        print(f"| {description} | {' | '.join(cells)} |", flush=True)
        return worst


def main():
    multiprocessing.set_start_method("fork")
    unknown = [name for name in CHOSEN if name not in ATTACKS]
    if unknown:
        sys.exit(f"unknown attacks: {', '.join(unknown)}; the attacks are {', '.join(ATTACKS)}")
    print("| attack | create, ms | list, ms | resumed watch, ms | rollout, ms | worst | processor, peak |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    ratios = [run(name) for name in CHOSEN or ATTACKS]
    print(f"\nThe worst ratio is {max(ratios):.1f}, the median is {statistics.median(ratios):.1f}.")


if __name__ == "__main__":
    main()
