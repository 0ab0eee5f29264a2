"""The prepared cluster of the plug-in's tests has a namespace, a definition of a custom kind and a service account."""

import pytest

pytest_plugins = ["pytester"]

THING = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "things.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


@pytest.fixture(scope="session")
def holdfast_prepared(holdfast_prepared):
    ask = holdfast_prepared.request
    ask("POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}})
    ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", THING)
    ask("POST", "/api/v1/namespaces/shop/serviceaccounts", {"metadata": {"name": "clerk"}})
    ask("POST", "/api/v1/namespaces/shop/configmaps", {"metadata": {"name": "prices"}, "data": {"apple": "1"}})
    return holdfast_prepared
