#!/usr/bin/env python3
"""Runs an operator with admission webhooks, written with kopf, against the cluster in KUBECONFIG.

The operator owns the kind EphemeralVolumeClaim. It makes a PersistentVolumeClaim for each object. When the object's
size changes, the operator writes the size into an annotation of the claim. One webhook fills in the size, another
webhook refuses invalid sizes."""

import os
import sys

import kopf
from kopf.testing import KopfRunner
from kopf_common import certificate, expect, gone, refused, wait_for
from kubernetes import client, config

GROUP, VERSION, PLURAL, SPACE = "kopf.example.com", "v1", "ephemeralvolumeclaims", "kopf"

DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"{PLURAL}.{GROUP}", "namespace": "default"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"kind": "EphemeralVolumeClaim", "plural": PLURAL, "singular": "ephemeralvolumeclaim", "shortNames": ["evc"]},
        "versions": [{
            "name": VERSION,
            "served": True,
            "storage": True,
            "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": {"size": {"type": "string"}, "keep": {"type": "boolean"}}},
                "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            }}},
        }],
    },
}


@kopf.on.startup()
def settings(settings, **_):
    settings.posting.level = 100
    settings.persistence.finalizer = f"{GROUP}/finalizer"
    settings.admission.server = kopf.WebhookServer(addr="127.0.0.1", host="127.0.0.1", **certificate())
    settings.admission.managed = f"webhooks.{GROUP}"


@kopf.on.mutate(PLURAL, operation="CREATE")
def fill_in(patch, spec, **_):
    if "size" not in spec:
        patch.spec["size"] = "1Gi"


@kopf.on.validate(PLURAL)
def judge(spec, warnings, **_):
    size = spec.get("size", "")
    if not size[:1].isdigit():
        raise kopf.AdmissionError(f"{size!r} is not a size", code=422)
    if spec.get("keep"):
        warnings.append("keep has no effect yet")


@kopf.on.create(PLURAL)
def created(spec, name, namespace, **_):
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": spec["size"]}}}}
    kopf.adopt(claim)
    made = client.CoreV1Api().create_namespaced_persistent_volume_claim(namespace, claim)
    return {"claim": made.metadata.name}


@kopf.on.update(PLURAL, field="spec.size")
def resized(new, status, namespace, **_):
    client.CoreV1Api().patch_namespaced_persistent_volume_claim(
        status["created"]["claim"], namespace, {"metadata": {"annotations": {"size": new}}})
    return {"size": new}


@kopf.on.delete(PLURAL)
def deleted(name, namespace, **_):
    client.CoreV1Api().create_namespaced_config_map(namespace, {"metadata": {"name": f"{name}-is-gone"}})


def main():
    if not os.environ.get("KUBECONFIG"):
        sys.exit("set KUBECONFIG to the kubeconfig of the cluster to test")
    config.load_kube_config()
    core, custom, hooks = client.CoreV1Api(), client.CustomObjectsApi(), client.AdmissionregistrationV1Api()
    definitions = client.ApiextensionsV1Api()
    core.create_namespace({"metadata": {"name": SPACE}})
    made = definitions.create_custom_resource_definition(DEFINITION)
    expect(made.metadata.namespace, None)
    with KopfRunner(["run", "--namespace", SPACE], timeout=60) as operator:
        # kopf writes the webhook configurations once its webhooks listen.
        wait_for("the webhooks", lambda: hooks.read_validating_webhook_configuration(f"webhooks.{GROUP}").webhooks
                 and hooks.read_mutating_webhook_configuration(f"webhooks.{GROUP}").webhooks)
        expect(create(custom, "filled", {})["spec"], {"size": "1Gi"})
        refused(422, "is not a size", lambda: create(custom, "refused", {"size": "much"}))
        create(custom, "first", {"size": "2Gi", "keep": True})
        claim = wait_for("the claim", lambda: core.read_namespaced_persistent_volume_claim("first", SPACE))
        expect([owner.kind for owner in claim.metadata.owner_references], ["EphemeralVolumeClaim"])
        wait_for("the status", lambda: read(custom, "first").get("status", {}).get("created"))
        expect(read(custom, "first")["metadata"]["finalizers"], [f"{GROUP}/finalizer"])
        custom.patch_namespaced_custom_object(GROUP, VERSION, SPACE, PLURAL, "first", {"spec": {"size": "3Gi"}})
        wait_for("the new size", lambda: (core.read_namespaced_persistent_volume_claim("first", SPACE)
                                          .metadata.annotations or {}).get("size") == "3Gi")
        refused(422, "is not a size", lambda: custom.patch_namespaced_custom_object(
            GROUP, VERSION, SPACE, PLURAL, "first", {"spec": {"size": "none"}}))
        custom.delete_namespaced_custom_object(GROUP, VERSION, SPACE, PLURAL, "first")
        wait_for("the last handler", lambda: core.read_namespaced_config_map("first-is-gone", SPACE))
        wait_for("the end of the object", lambda: gone(lambda: read(custom, "first")))
        items = custom.list_namespaced_custom_object(GROUP, VERSION, SPACE, PLURAL)["items"]
        expect([(item["kind"], item["metadata"]["name"]) for item in items], [("EphemeralVolumeClaim", "filled")])
    if operator.exception is not None or operator.exit_code != 0:
        sys.exit(f"the operator failed: {operator.exception}\n{operator.output}")
    print("ok")


def create(custom, name, spec):
    return custom.create_namespaced_custom_object(GROUP, VERSION, SPACE, PLURAL, {
        "apiVersion": f"{GROUP}/{VERSION}", "kind": "EphemeralVolumeClaim", "metadata": {"name": name}, "spec": spec})


def read(custom, name):
    return custom.get_namespaced_custom_object(GROUP, VERSION, SPACE, PLURAL, name)


if __name__ == "__main__":
    main()
