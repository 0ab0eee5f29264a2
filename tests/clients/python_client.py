#!/usr/bin/env python3
"""Tests the official Python client, typed and dynamic, against the cluster in KUBECONFIG."""

import json
import os
import sys
import threading
import time

from kubernetes import client, config, dynamic, informer, watch
from kubernetes.client.exceptions import ApiException

SPACE = "python-client"


def main():
    if not os.environ.get("KUBECONFIG"):
        sys.exit("set KUBECONFIG to the kubeconfig of the cluster to test")
    config.load_kube_config()
    core, apps = client.CoreV1Api(), client.AppsV1Api()
    step("version", lambda: expect(client.VersionApi().get_code().major, "1"))
    step("create namespace", lambda: core.create_namespace(
        client.V1Namespace(metadata=client.V1ObjectMeta(name=SPACE))))
    try:
        step("config maps", lambda: config_maps(core))
        step("deployments", lambda: deployments(apps))
        step("pages", lambda: pages(core))
        step("list then watch", lambda: list_then_watch(core))
        step("informer", lambda: shared_informer(core))
        step("errors", lambda: errors(core, apps))
        step("dynamic client", dynamic_client)
    finally:
        core.delete_namespace(SPACE)


def config_maps(core):
    made = core.create_namespaced_config_map(SPACE, config_map("first", a="1"))
    expect(made.data, {"a": "1"})
    expect_true(made.metadata.uid and made.metadata.resource_version and made.metadata.creation_timestamp,
                "the metadata is incomplete")

    made.data["b"] = "2"
    replaced = core.replace_namespaced_config_map("first", SPACE, made)
    expect(replaced.data, {"a": "1", "b": "2"})
    expect_true(replaced.metadata.resource_version != made.metadata.resource_version, "the version has not changed")
    expect(replaced.metadata.uid, made.metadata.uid)

    patched = core.patch_namespaced_config_map(
        "first", SPACE, {"data": {"a": None, "c": "3"}}, _content_type="application/merge-patch+json")
    expect(patched.data, {"b": "2", "c": "3"})
    patched = core.patch_namespaced_config_map(
        "first", SPACE, [{"op": "replace", "path": "/data/c", "value": "4"}],
        _content_type="application/json-patch+json")
    expect(patched.data["c"], "4")

    expect(core.read_namespaced_config_map("first", SPACE).data, {"b": "2", "c": "4"})
    dry = core.create_namespaced_config_map(SPACE, config_map("dry"), dry_run="All")
    expect(dry.metadata.name, "dry")
    refused(404, "NotFound", lambda: core.read_namespaced_config_map("dry", SPACE))
    status = core.delete_namespaced_config_map("first", SPACE)
    expect((status if isinstance(status, dict) else status.to_dict())["status"], "Success")


def deployments(apps):
    labels = {"app": "web"}
    container = client.V1Container(name="web", image="registry.example.test/web:1",
                                   ports=[client.V1ContainerPort(container_port=80)])
    template = client.V1PodTemplateSpec(metadata=client.V1ObjectMeta(labels=labels),
                                        spec=client.V1PodSpec(containers=[container]))
    spec = client.V1DeploymentSpec(selector=client.V1LabelSelector(match_labels=labels), template=template)
    made = apps.create_namespaced_deployment(
        SPACE, client.V1Deployment(metadata=client.V1ObjectMeta(name="web", labels=labels), spec=spec))
    expect(made.spec.replicas, 1)
    expect(made.spec.strategy.rolling_update.max_surge, "25%")
    expect(made.spec.template.spec.containers[0].ports[0].protocol, "TCP")
    expect(made.metadata.generation, 1)

    patched = apps.patch_namespaced_deployment(
        "web", SPACE, {"spec": {"template": {"spec": {"containers": [{"name": "web", "image": "web:2"}]}}}},
        _content_type="application/strategic-merge-patch+json")
    expect(patched.spec.template.spec.containers[0].image, "web:2")
    expect(patched.spec.template.spec.containers[0].ports[0].container_port, 80)
    expect(patched.metadata.generation, 2)

    scale = apps.patch_namespaced_deployment_scale(
        "web", SPACE, {"spec": {"replicas": 4}}, _content_type="application/merge-patch+json")
    expect(scale.spec.replicas, 4)
    expect(apps.read_namespaced_deployment_scale("web", SPACE).status.selector, "app=web")
    expect([d.metadata.name for d in apps.list_namespaced_deployment(SPACE, label_selector="app=web").items], ["web"])
    apps.delete_namespaced_deployment("web", SPACE, propagation_policy="Background")


def pages(core):
    names = [f"page-{n}" for n in range(7)]
    for name in names:
        core.create_namespaced_config_map(SPACE, config_map(name, labels={"set": "pages"}))
    seen, token = [], None
    while True:
        page = core.list_namespaced_config_map(SPACE, label_selector="set=pages", limit=3, _continue=token)
        expect_true(len(page.items) <= 3, "a page has more than three objects")
        seen += [item.metadata.name for item in page.items]
        token = page.metadata.var_continue
        if not token:
            break
    expect(seen, names)
    core.delete_collection_namespaced_config_map(SPACE, label_selector="set=pages")
    expect(core.list_namespaced_config_map(SPACE, label_selector="set=pages").items, [])


def list_then_watch(core):
    """Lists and watches like an informer, and checks that the watch delivers each event after the list exactly once."""
    core.create_namespaced_config_map(SPACE, config_map("before", labels={"set": "watch"}))
    listed = core.list_namespaced_config_map(SPACE, label_selector="set=watch")
    expect([item.metadata.name for item in listed.items], ["before"])

    core.create_namespaced_config_map(SPACE, config_map("between", labels={"set": "watch"}))

    def write():
        core.patch_namespaced_config_map(
            "before", SPACE, {"data": {"x": "y"}}, _content_type="application/merge-patch+json")
        core.create_namespaced_config_map(SPACE, config_map("other"))
        core.delete_namespaced_config_map("between", SPACE)

    writer = threading.Timer(0.5, write)
    writer.start()
    events, watcher = [], watch.Watch()
    for event in watcher.stream(core.list_namespaced_config_map, SPACE, label_selector="set=watch",
                                resource_version=listed.metadata.resource_version, timeout_seconds=30):
        events.append((event["type"], event["object"].metadata.name))
        if event["type"] == "DELETED":
            watcher.stop()
    writer.join()
    expect(events, [("ADDED", "between"), ("MODIFIED", "before"), ("DELETED", "between")])


def shared_informer(core):
    """Checks that the informer's cache becomes equal to the cluster, and that the informer reports each change once."""
    labels = {"set": "informer"}
    for n in range(3):
        core.create_namespaced_config_map(SPACE, config_map(f"informed-{n}", labels=labels))
    events = []
    shared = informer.SharedInformer(core.list_namespaced_config_map, namespace=SPACE, label_selector="set=informer")
    for kind in ("ADDED", "MODIFIED", "DELETED"):
        shared.add_event_handler(kind, lambda found, kind=kind: events.append((kind, found.metadata.name)))
    shared.start()
    try:
        wait_for(lambda: len(shared.cache.list_keys()) == 3)
        core.patch_namespaced_config_map(
            "informed-0", SPACE, {"data": {"x": "y"}}, _content_type="application/merge-patch+json")
        core.create_namespaced_config_map(SPACE, config_map("informed-3", labels=labels))
        core.delete_namespaced_config_map("informed-1", SPACE)
        wait_for(lambda: ("DELETED", "informed-1") in events)
    finally:
        shared.stop()
    listed = core.list_namespaced_config_map(SPACE, label_selector="set=informer").items
    expect(sorted((found.metadata.name, found.metadata.resource_version) for found in shared.cache.list()),
           sorted((found.metadata.name, found.metadata.resource_version) for found in listed))
    expect(sorted(events), sorted([("ADDED", f"informed-{n}") for n in range(4)]
                                + [("MODIFIED", "informed-0"), ("DELETED", "informed-1")]))


def wait_for(condition):
    until = time.monotonic() + 20
    while not condition():
        expect_true(time.monotonic() < until, "the condition is false after 20 s")
        time.sleep(0.05)


def errors(core, apps):
    body = refused(404, "NotFound", lambda: core.read_namespaced_config_map("none", SPACE))
    expect(body["message"], 'configmaps "none" not found')
    expect(body["details"], {"name": "none", "kind": "configmaps"})
    expect((body["kind"], body["apiVersion"], body["status"], body["code"]), ("Status", "v1", "Failure", 404))

    made = core.create_namespaced_config_map(SPACE, config_map("twice"))
    body = refused(409, "AlreadyExists", lambda: core.create_namespaced_config_map(SPACE, config_map("twice")))
    expect(body["message"], 'configmaps "twice" already exists')
    core.patch_namespaced_config_map(
        "twice", SPACE, {"data": {"x": "y"}}, _content_type="application/merge-patch+json")
    body = refused(409, "Conflict", lambda: core.replace_namespaced_config_map("twice", SPACE, made))
    expect_true("the object has been modified; please apply your changes to the latest version" in body["message"],
                body["message"])

    body = refused(422, "Invalid", lambda: core.create_namespaced_config_map(SPACE, config_map("Bad_Name")))
    expect(body["details"]["causes"][0]["field"], "metadata.name")
    expect(body["details"]["causes"][0]["reason"], "FieldValueInvalid")
    stale = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid="00000000-0000-0000-0000-000000000000"))
    refused(409, "Conflict", lambda: core.delete_namespaced_config_map("twice", SPACE, body=stale))
    refused(404, "NotFound", lambda: core.create_namespaced_config_map("nowhere", config_map("a")))
    body = refused(400, "BadRequest", lambda: core.list_namespaced_config_map(SPACE, limit=1, _continue="nonsense"))
    expect_true("continue key is not valid" in body["message"], body["message"])


def dynamic_client():
    cluster = dynamic.DynamicClient(client.ApiClient())
    config_maps = cluster.resources.get(api_version="v1", kind="ConfigMap")
    made = config_maps.create(namespace=SPACE, body={"apiVersion": "v1", "kind": "ConfigMap",
                                                    "metadata": {"name": "dynamic"}, "data": {"a": "1"}})
    expect(made.data.a, "1")
    applied = config_maps.server_side_apply(
        namespace=SPACE, name="applied", field_manager="python",
        body={"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {"b": "2"}})
    expect(applied.metadata.managedFields[0].manager, "python")
    names = sorted(item.metadata.name for item in config_maps.get(namespace=SPACE).items)
    expect_true({"applied", "dynamic"} <= set(names), names)
    cron_jobs = cluster.resources.get(api_version="batch/v1", kind="CronJob")
    expect(cron_jobs.get(namespace=SPACE).items, [])
    config_maps.delete(name="dynamic", namespace=SPACE)
    expect_true("deployments" in [r.name for r in cluster.resources.search(group="apps")], "apps has no deployments")


def config_map(name, labels=None, **data):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels=labels), data=data or None)


def refused(code, reason, call):
    try:
        call()
    except ApiException as error:
        expect(error.status, code)
        body = json.loads(error.body)
        expect(body["reason"], reason)
        return body
    raise AssertionError(f"the request was not refused with {code} {reason}")


def expect(actual, wanted):
    if actual != wanted:
        raise AssertionError(f"expected {wanted!r}, got {actual!r}")


def expect_true(condition, what):
    if not condition:
        raise AssertionError(f"unexpected: {what}")


def step(name, action):
    try:
        action()
    except Exception as error:
        print(f"FAILED {name}: {type(error).__name__}: {error}", file=sys.stderr)
        raise
    print(f"ok {name}", flush=True)


if __name__ == "__main__":
    main()
