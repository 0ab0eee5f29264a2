#!/usr/bin/env python3
"""Runs the cases of kopf's own examples against the cluster in KUBECONFIG: handlers that fail temporarily or
permanently, handlers of single fields, of children and of built-in kinds, handlers with filters; Events; daemons and
timers; indices and probes; peers, of which only one operator is active; and all kinds of admission webhooks."""

import datetime
import itertools
import json
import os
import socket
import sys
import time
import urllib.request

import kopf
from kopf.testing import KopfRunner
from kopf_common import certificate, expect, gone, refused, wait_for
from kubernetes import client, config
from kubernetes.stream import stream

GROUP, VERSION, PLURAL, SPACE = "examples.kopf.example.com", "v1", "kopfexamples", "kopf-examples"
HOOKS = f"webhooks.{GROUP}"
# The calls of handlers, each with the name of the handler and usually the name of the object.
CALLS = []
# The reviews that webhooks received.
REVIEWS = []
TRIES = itertools.count()


def definition(group, kind, plural, scope, names=(), subresources=None):
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "shortNames": list(names)},
            "versions": [{
                "name": "v1", "served": True, "storage": True,
                "subresources": subresources or {},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": anything, "status": anything}}},
            }],
        },
    }


EXAMPLE = definition(GROUP, "KopfExample", PLURAL, "Namespaced", ["kex"], {
    "status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}})
# The custom kinds with which kopf's operators detect each other.
PEERINGS = [definition("kopf.dev", "ClusterKopfPeering", "clusterkopfpeerings", "Cluster"),
            definition("kopf.dev", "KopfPeering", "kopfpeerings", "Namespaced")]


@kopf.on.startup()
def configure(settings, **_):
    settings.posting.level = 20
    settings.peering.priority = 100
    settings.peering.lifetime = 60
    settings.persistence.finalizer = f"{GROUP}/finalizer"
    settings.admission.server = kopf.WebhookServer(addr="127.0.0.1", host="127.0.0.1", **certificate())
    settings.admission.managed = HOOKS


@kopf.on.startup()
def start_at_the_third_try(retry, **_):
    if retry < 2:
        raise kopf.TemporaryError("not yet", delay=0.1)


# These handlers fail temporarily, with an arbitrary exception, or permanently.

@kopf.on.create("kex", annotations={"fails": "once"})
def fails_once(name, retry, **_):
    CALLS.append(("fails_once", name, retry))
    if retry < 1:
        raise kopf.TemporaryError("not yet", delay=0.2)
    return {"tries": retry + 1}


@kopf.on.create("kex", annotations={"fails": "somehow"}, backoff=0.2, retries=3)
def fails_somehow(name, retry, **_):
    CALLS.append(("fails_somehow", name, retry))
    raise ValueError("whoops")


@kopf.on.create("kex", annotations={"fails": "always"})
def fails_always(name, retry, **_):
    CALLS.append(("fails_always", name, retry))
    raise kopf.PermanentError("for good")


# These handlers are for an object, for its fields, and for parts of it (sub-handlers).

@kopf.on.create("kex", labels={"children": kopf.PRESENT})
def with_children(body, spec, name, namespace, **_):
    container = {"name": "c", "image": "busybox", "command": ["sh", "-c", "sleep 1"]}
    child = {"apiVersion": "batch/v1", "kind": "Job",
             "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}}
    kopf.adopt(child)
    kopf.label(child, {"application": "kopf"}, nested=["spec.template"])
    job = client.BatchV1Api().create_namespaced_job(namespace, child)
    kopf.info(body, reason="Made", message=f"made {job.metadata.name}")
    kopf.event(body, type="Warning", reason="Odd", message="something is odd")
    return {"job": job.metadata.name}


@kopf.on.create("kex", labels={"parts": kopf.PRESENT})
def in_parts(spec, **_):
    for part in spec["parts"]:
        @kopf.subhandler(id=part)
        def one(part=part, **_):
            CALLS.append(("part", part))
            return f"done {part}"


@kopf.on.field("kex", field="spec.list")
def listed(old, new, name, **_):
    CALLS.append(("listed", name, tuple(old or ()), tuple(new or ())))


@kopf.on.update("kex", field="spec.size", old="small", new="large")
def grown(name, diff, **_):
    CALLS.append(("grown", name, [tuple(change)[0] for change in diff]))


@kopf.on.update("kex", when=lambda spec, **_: spec.get("watched"))
def watched(name, diff, patch, **_):
    patch.status["changes"] = len(diff)


@kopf.on.resume("kex")
def resumed(name, **_):
    CALLS.append(("resumed", name))


@kopf.on.delete("kex", optional=True)
def ended(name, **_):
    CALLS.append(("ended", name))


@kopf.on.event("pods", labels={"application": "kopf"})
def seen(event, name, **_):
    CALLS.append(("pod", event["type"]))


# A daemon, which runs as long as its object exists, a timer, and a probe.

@kopf.daemon("kex", labels={"daemon": kopf.PRESENT}, cancellation_timeout=1)
async def daemon(stopped, name, patch, **_):
    CALLS.append(("daemon starts", name))
    while not stopped:
        await stopped.wait(0.1)
    CALLS.append(("daemon ends", name))


@kopf.timer("kex", interval=0.3, labels={"timer": kopf.PRESENT})
def ticks(patch, status, by_label, **_):
    patch.status["ticks"] = status.get("ticks", 0) + 1
    patch.status["pods"] = len(by_label.get(("application", "kopf"), []))


@kopf.index("pods")
def by_label(labels, name, **_):
    return {(label, value): name for label, value in labels.items()}


@kopf.on.probe()
def pods(by_label, **_):
    return len(by_label)


# These handlers are admission webhooks for every operation, for subresources, with filters, for dry runs, and for
# built-in kinds.

@kopf.on.mutate("kex", labels={"mutated": kopf.PRESENT}, id="inject")
def injected(patch, **_):
    patch.spec["injected"] = 123
    patch.metadata.labels["mutated"] = "done"


@kopf.on.mutate("kex", operations=["DELETE"], id="deletion")
def reviewed_deletion(name, **_):
    CALLS.append(("reviewed_deletion", name))


@kopf.on.validate("kex", field="spec.field", value="not-allowed", id="field")
def of_a_field(**_):
    raise kopf.AdmissionError("that value is not allowed", code=499)


@kopf.on.validate("kex", id="review")
def record_review(operation, headers, userinfo, dryrun, warnings, name, old, new, body, **_):
    REVIEWS.append((operation, name, dryrun, old is not None, new is not None, userinfo["username"]))
    warnings.append(f"asked by {headers.get('User-Agent', 'nobody').split('/')[0]}")


@kopf.on.validate("kex", operations=["DELETE"], id="keep")
def keep(spec, **_):
    if spec.get("keep"):
        raise kopf.AdmissionError("the object must be kept", code=403)


@kopf.on.validate("kex", subresource="status", operations=["UPDATE"], id="status")
def of_the_status(status, **_):
    if status.get("phase") == "Impossible":
        raise kopf.AdmissionError("there is no such phase")


@kopf.on.validate("kex", subresource="scale", operations=["UPDATE"], id="scale")
def of_the_scale(spec, **_):
    if spec.get("replicas", 0) > 10:
        raise kopf.AdmissionError("ten at most", code=422)


@kopf.on.validate("configmaps", operations=["CREATE", "UPDATE"], id="settings", ignore_failures=True)
def of_settings(body, **_):
    if body.get("data", {}).get("forbidden"):
        raise kopf.AdmissionError("not that")


@kopf.on.validate("pods", subresource="exec", operations=["CONNECT"], id="exec", side_effects=True)
def of_commands(body, name, **_):
    if "forbidden" in body.get("command", []):
        raise kopf.AdmissionError("not that command")


def main():
    if not os.environ.get("KUBECONFIG"):
        sys.exit("set KUBECONFIG to the kubeconfig of the cluster to test")
    config.load_kube_config()
    core, custom, hooks = client.CoreV1Api(), client.CustomObjectsApi(), client.AdmissionregistrationV1Api()
    definitions = client.ApiextensionsV1Api()
    core.create_namespace({"metadata": {"name": SPACE}})
    for made in [EXAMPLE, *PEERINGS]:
        definitions.create_custom_resource_definition(made)
    custom.create_namespaced_custom_object("kopf.dev", "v1", SPACE, "kopfpeerings", {
        "apiVersion": "kopf.dev/v1", "kind": "KopfPeering", "metadata": {"name": "examples"}})
    # Another instance of the operator has already handled this object.
    create(custom, "before", {}, annotations={"kopf.zalando.org/last-handled-configuration": '{"spec":{}}'})
    wait_for("the service account", lambda: core.list_namespaced_service_account(SPACE).items)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with KopfRunner(["run", "--namespace", SPACE, "--peering", "examples",
                     "--liveness", f"http://127.0.0.1:{port}/healthz"], timeout=100) as operator:
        wait_for("the webhooks", lambda: hooks.read_validating_webhook_configuration(HOOKS).webhooks
                 and hooks.read_mutating_webhook_configuration(HOOKS).webhooks)
        wait_for("the handler of the earlier object", lambda: ("resumed", "before") in CALLS)
        failures(custom)
        handlers(core, custom)
        lasting(core, custom, port)
        admission(core, custom)
        peers(custom)
    if operator.exception is not None or operator.exit_code != 0:
        sys.exit(f"the operator failed: {operator.exception}\n{operator.output}")
    peering = custom.get_namespaced_custom_object("kopf.dev", "v1", SPACE, "kopfpeerings", "examples")
    expect(list(peering.get("status", {})), [])
    print("ok")


def failures(custom):
    for fails in ("once", "somehow", "always"):
        create(custom, f"fails-{fails}", {}, annotations={"fails": fails})
    tried = wait_for("the second try", lambda: read(custom, "fails-once").get("status", {}).get("fails_once"))
    expect(tried, {"tries": 2})
    wait_for("the third failure", lambda: ("fails_somehow", "fails-somehow", 2) in CALLS)
    # After all handlers have ended, the object has kopf's annotation with the last handled configuration, and no
    # progress of handlers.
    for fails, times in (("once", 2), ("somehow", 3), ("always", 1)):
        name = f"fails-{fails}"
        wait_for(f"the end of {name}", lambda: settled(read(custom, name)))
        expect(len([call for call in CALLS if call[0] == f"fails_{fails}"]), times)


def settled(found):
    notes = found["metadata"].get("annotations", {})
    return ("kopf.zalando.org/last-handled-configuration" in notes and not found.get("status", {}).get("kopf")
            and not any("." in note.partition("/")[2] or "_" in note.partition("/")[2] for note in notes
                        if note.startswith("kopf.zalando.org/")))


def handlers(core, custom):
    create(custom, "parent", {"list": [1, 2]}, labels={"children": "yes"})
    job = wait_for("the Job", lambda: read(custom, "parent").get("status", {}).get("with_children"))["job"]
    owners = client.BatchV1Api().read_namespaced_job(job, SPACE).metadata.owner_references
    expect([(owner.kind, owner.name) for owner in owners], [("KopfExample", "parent")])
    wait_for("the Events", lambda: {
        (event.type, event.reason) for event in core.list_namespaced_event(
            SPACE, field_selector="involvedObject.kind=KopfExample,involvedObject.name=parent").items
    } >= {("Normal", "Made"), ("Warning", "Odd")})
    wait_for("the pod of the Job", lambda: ("pod", "ADDED") in CALLS and ("pod", "MODIFIED") in CALLS)
    wait_for("the list", lambda: ("listed", "parent", (), (1, 2)) in CALLS)
    patch(custom, "parent", {"spec": {"list": [1, 2, 3], "size": "small", "watched": True}})
    wait_for("the longer list", lambda: ("listed", "parent", (1, 2), (1, 2, 3)) in CALLS)
    wait_for("the changes", lambda: read(custom, "parent")["status"].get("changes"))
    patch(custom, "parent", {"spec": {"size": "large"}})
    wait_for("the growth", lambda: ("grown", "parent", ["change"]) in CALLS)
    create(custom, "parts", {"parts": ["a", "b", "c"]}, labels={"parts": "yes"})
    done = wait_for("the parts", lambda: (status := read(custom, "parts").get("status", {}))
                    and len([key for key in status if key.startswith("in_parts/")]) == 3 and status)
    expect(done["in_parts/b"], "done b")
    delete(custom, "parent", propagation_policy="Foreground")
    wait_for("the end of the parent", lambda: gone(lambda: read(custom, "parent")))
    wait_for("the end of the Job", lambda: gone(lambda: client.BatchV1Api().read_namespaced_job(job, SPACE)))


def lasting(core, custom, port):
    core.create_namespaced_pod(SPACE, {
        "metadata": {"name": "indexed", "labels": {"application": "kopf"}},
        "spec": {"containers": [{"name": "c", "image": "busybox", "command": ["sleep", "infinity"]}]}})
    create(custom, "lasts", {}, labels={"daemon": "yes", "timer": "yes"})
    wait_for("the daemon", lambda: ("daemon starts", "lasts") in CALLS)
    wait_for("the finalizer", lambda: read(custom, "lasts")["metadata"].get("finalizers") == [f"{GROUP}/finalizer"])
    wait_for("three ticks", lambda: read(custom, "lasts").get("status", {}).get("ticks", 0) >= 3)
    wait_for("the indexed pod", lambda: read(custom, "lasts")["status"].get("pods", 0) >= 1)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz") as answer:
        expect(json.load(answer)["pods"] >= 1, True)
    # The daemon ends when the label that selects its object is removed.
    patch(custom, "lasts", {"metadata": {"labels": {"daemon": None}}})
    wait_for("the end of the daemon", lambda: ("daemon ends", "lasts") in CALLS)
    delete(custom, "lasts")
    wait_for("the end of the object", lambda: gone(lambda: read(custom, "lasts")))


def admission(core, custom):
    made = create(custom, "asked", {}, labels={"mutated": "please"})
    expect((made["spec"], made["metadata"]["labels"]), ({"injected": 123}, {"mutated": "done"}))
    warnings = create_with_warnings(custom, "warned")
    expect(any("asked by kube-apiserver-admission" in warning for warning in warnings), True)
    refused(499, "that value is not allowed", lambda: create(custom, "wrong", {"field": "not-allowed"}))
    create(custom, "tried", {}, dry_run="All")
    refused(404, "not found", lambda: read(custom, "tried"))
    asked = [review for review in REVIEWS if review[1] == "tried"]
    expect([review[:5] for review in asked], [("CREATE", "tried", True, False, True)])
    patch(custom, "asked", {"spec": {"replicas": 2}})
    expect(("UPDATE", "asked", False, True, True) in [review[:5] for review in REVIEWS], True)
    patch(custom, "asked", {"spec": {"keep": True}})
    refused(403, "the object must be kept", lambda: delete(custom, "asked"))
    expect(("DELETE", "asked", False, True, False) in [review[:5] for review in REVIEWS], True)
    place = (GROUP, VERSION, SPACE, PLURAL, "asked")
    refused(500, "there is no such phase",
            lambda: custom.patch_namespaced_custom_object_status(*place, {"status": {"phase": "Impossible"}}))
    custom.patch_namespaced_custom_object_status(*place, {"status": {"phase": "Possible"}})
    refused(422, "ten at most",
            lambda: custom.patch_namespaced_custom_object_scale(*place, {"spec": {"replicas": 11}}))
    expect(custom.patch_namespaced_custom_object_scale(*place, {"spec": {"replicas": 9}})["spec"], {"replicas": 9})
    refused(500, "not that", lambda: core.create_namespaced_config_map(
        SPACE, {"metadata": {"name": "settings"}, "data": {"forbidden": "yes"}}))
    core.create_namespaced_config_map(SPACE, {"metadata": {"name": "settings"}, "data": {"allowed": "yes"}})
    patch(custom, "asked", {"spec": {"keep": None}})
    delete(custom, "asked")
    expect(("reviewed_deletion", "asked") in CALLS, True)
    # Admission handles a command in a container as the operation CONNECT on its pod.
    wait_for("the indexed pod", lambda: core.read_namespaced_pod("indexed", SPACE).status.phase == "Running")
    expect(run("echo", "allowed"), "allowed\n")
    try:
        run("echo", "forbidden")
        sys.exit("the server ran a command that a webhook forbids")
    except client.exceptions.ApiException as error:
        expect("not that command" in str(error), True)


def run(*command):
    """Runs a command in the pod, and returns its output. The function makes its own client, because `stream` changes
    the client that it uses."""
    core = client.CoreV1Api(client.ApiClient())
    return stream(core.connect_get_namespaced_pod_exec, "indexed", SPACE, command=list(command),
                  stdout=True, stderr=False, stdin=False, tty=False)


def peers(custom):
    """Checks that this operator pauses while the peering object names a peer of higher priority."""
    place = ("kopf.dev", "v1", SPACE, "kopfpeerings", "examples")
    wait_for("this operator among the peers",
             lambda: any(peer["priority"] == 100 for peer in
                         custom.get_namespaced_custom_object(*place).get("status", {}).values()))
    now = datetime.datetime.now(datetime.timezone.utc).isoformat()
    other = {"namespace": SPACE, "priority": 999, "lastseen": now, "lifetime": 600}
    custom.patch_namespaced_custom_object(*place, {"status": {"somebody-else": other}})
    wait_for("the pause", lambda: paused(custom))
    create(custom, "waits", {"list": ["w"]})
    custom.patch_namespaced_custom_object(*place, {"status": {"somebody-else": None}})
    wait_for("the end of the pause", lambda: ("listed", "waits", (), ("w",)) in CALLS)


def paused(custom):
    """Creates an object. Returns whether the operator leaves it unhandled for a second."""
    name = f"paused-{next(TRIES)}"
    create(custom, name, {"list": [name]})
    for _ in range(10):
        time.sleep(0.1)
        if ("listed", name, (), (name,)) in CALLS:
            return False
    return True


def create(custom, name, spec, labels=None, annotations=None, **options):
    return custom.create_namespaced_custom_object(
        GROUP, VERSION, SPACE, PLURAL, example(name, spec, labels, annotations), **options)


def create_with_warnings(custom, name):
    _, _, headers = custom.create_namespaced_custom_object_with_http_info(
        GROUP, VERSION, SPACE, PLURAL, example(name, {}))
    return headers.getlist("Warning")


def delete(custom, name, **options):
    custom.delete_namespaced_custom_object(GROUP, VERSION, SPACE, PLURAL, name, **options)


def example(name, spec, labels=None, annotations=None):
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": "KopfExample",
            "metadata": {"name": name, "labels": labels or {}, "annotations": annotations or {}}, "spec": spec}


def read(custom, name):
    return custom.get_namespaced_custom_object(GROUP, VERSION, SPACE, PLURAL, name)


def patch(custom, name, changes):
    return custom.patch_namespaced_custom_object(GROUP, VERSION, SPACE, PLURAL, name, changes)


if __name__ == "__main__":
    main()
