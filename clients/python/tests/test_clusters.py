"""Tests the content of forks, and their isolation from each other."""

import http.client
import json
import ssl
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest
from pytest_holdfast import HoldfastError, Server

MAPS = "/api/v1/namespaces/shop/configmaps"
CLERK = "/api/v1/namespaces/shop/serviceaccounts/clerk"


def names(cluster, path=MAPS):
    return {item["metadata"]["name"] for item in cluster.request("GET", path)["items"]}


def put(cluster, name, **data):
    return cluster.request("POST", MAPS, {"metadata": {"name": name}, "data": data})


class Watch:
    """Collects the events of a watch in the background, until the answer ends."""

    def __init__(self, cluster, path):
        parts = urlsplit(cluster.url)
        context = ssl.create_default_context(cafile=cluster.ca_file)
        context.load_cert_chain(cluster.client_cert, cluster.client_key)
        self.events, self.ended = [], threading.Event()
        self.connection = http.client.HTTPSConnection(parts.hostname, parts.port, context=context, timeout=30)
        self.connection.request("GET", f"{parts.path}{path}?watch=true")
        self.answer = self.connection.getresponse()
        assert self.answer.status == 200
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        try:
            for line in self.answer:
                self.events.append(json.loads(line)["object"]["metadata"]["name"])
        except (OSError, http.client.HTTPException):
            # The connection broke because the server of the test run ended before the watch.
            pass
        finally:
            self.ended.set()

    def saw(self, name):
        deadline = time.monotonic() + 30
        while name not in self.events:
            assert time.monotonic() < deadline, f"{name} is not among {self.events}"
            time.sleep(0.005)


def test_a_test_begins_with_the_prepared_objects(holdfast):
    assert {"prices"} <= names(holdfast)
    assert names(holdfast, "/api/v1/namespaces") >= {"default", "kube-system", "shop"}
    assert "/forks/" in holdfast.url and holdfast.version > 0


@pytest.mark.parametrize("turn", range(3))
def test_a_test_sees_no_objects_of_another_test(holdfast, turn):
    assert "mine" not in names(holdfast)
    put(holdfast, "mine")
    holdfast.request("DELETE", f"{MAPS}/prices")
    assert "mine" in names(holdfast) and "prices" not in names(holdfast)


def test_parent_and_fork_do_not_see_each_others_objects(holdfast, holdfast_prepared):
    of_parent, of_fork = Watch(holdfast_prepared, MAPS), Watch(holdfast, MAPS)
    put(holdfast, "in-the-fork")
    of_fork.saw("in-the-fork")
    other = holdfast_prepared.fork()
    put(other, "in-another-fork")
    # The parent's watch receives this object, which is created after the fork's object. So the watch will not receive
    # the fork's object later.
    ours = put(holdfast_prepared, "in-the-parent")
    of_parent.saw("in-the-parent")
    put(holdfast, "later")
    of_fork.saw("later")
    holdfast_prepared.request("DELETE", f"{MAPS}/in-the-parent")
    assert not {"in-the-fork", "in-another-fork", "later"} & set(of_parent.events)
    assert not {"in-the-parent", "in-another-fork"} & set(of_fork.events)
    assert int(ours["metadata"]["resourceVersion"]) > holdfast.version
    other.delete()


def test_custom_kinds_of_a_fork_are_independent(holdfast, holdfast_prepared):
    things = "/apis/example.com/v1/namespaces/shop/things"
    made = holdfast.request("POST", things, {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}})
    assert made["metadata"]["uid"]
    definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com"
    patch = {"metadata": {"labels": {"a": "b"}}}
    holdfast.request("PATCH", definition, patch, content_type="application/merge-patch+json")
    assert names(holdfast_prepared, things) == set()
    assert "labels" not in holdfast_prepared.request("GET", definition)["metadata"]
    holdfast.request("DELETE", definition)
    deadline = time.monotonic() + 30
    while any(group["name"] == "example.com" for group in holdfast.request("GET", "/apis")["groups"]):
        assert time.monotonic() < deadline, "the group did not disappear with its only kind"
        time.sleep(0.01)
    assert any(group["name"] == "example.com" for group in holdfast_prepared.request("GET", "/apis")["groups"])


def test_roles_of_a_fork_are_independent(holdfast, holdfast_prepared):
    jane = {"Impersonate-User": "jane"}
    with pytest.raises(HoldfastError) as refused:
        holdfast.request("GET", MAPS, headers=jane)
    assert refused.value.code == 403 and refused.value.status["reason"] == "Forbidden"
    holdfast.request(
        "POST",
        "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/rolebindings",
        {
            "metadata": {"name": "jane"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
        },
    )
    assert holdfast.request("GET", MAPS, headers=jane)["items"]
    with pytest.raises(HoldfastError) as refused:
        holdfast_prepared.request("GET", MAPS, headers=jane)
    assert refused.value.code == 403
    with pytest.raises(HoldfastError) as refused:
        holdfast.request("POST", "/holdfast/v1/forks", {}, headers=jane)
    assert refused.value.code == 403, "a user who may read one namespace could fork the whole cluster"


def whoami(cluster, token):
    """Returns the name of the user that the server authenticates by this token, or the status code of a refusal."""
    parts = urlsplit(cluster.url)
    context = ssl.create_default_context(cafile=cluster.ca_file)
    connection = http.client.HTTPSConnection(parts.hostname, parts.port, context=context, timeout=30)
    review = json.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection.request("POST", f"{parts.path}/apis/authentication.k8s.io/v1/selfsubjectreviews", review, headers)
    answer = connection.getresponse()
    said = json.loads(answer.read())
    return said["status"]["userInfo"]["username"] if answer.status == 201 else answer.status


def test_tokens_of_the_parent_are_valid_in_a_fork_but_not_the_reverse(holdfast, holdfast_prepared):
    clerk = "system:serviceaccount:shop:clerk"
    old = holdfast_prepared.request("POST", f"{CLERK}/token", {"spec": {}})["status"]["token"]
    new = holdfast.request("POST", f"{CLERK}/token", {"spec": {}})["status"]["token"]
    assert whoami(holdfast_prepared, old) == whoami(holdfast, old) == whoami(holdfast, new) == clerk
    assert whoami(holdfast_prepared, new) == 401
    with holdfast.fork() as below, holdfast_prepared.fork() as beside:
        assert whoami(below, new) == clerk
        assert whoami(beside, new) == 401
    holdfast.request("DELETE", CLERK)
    assert whoami(holdfast, old) == whoami(holdfast, new) == 401
    assert whoami(holdfast_prepared, old) == clerk


def test_the_past_can_be_read_before_and_after_the_fork(holdfast):
    put(holdfast, "new", a="1")
    before = holdfast.request("GET", MAPS)["metadata"]["resourceVersion"]
    holdfast.request("DELETE", f"{MAPS}/prices")
    past = holdfast.at(before)[len(holdfast.url) :]
    assert names(holdfast, past + MAPS) >= {"new", "prices"}
    assert "prices" not in names(holdfast)
    began = holdfast.at(str(holdfast.version))[len(holdfast.url) :]
    assert "prices" in names(holdfast, began + MAPS) and "new" not in names(holdfast, began + MAPS)
    first = holdfast.at("1")[len(holdfast.url) :]
    assert "shop" not in names(holdfast, first + "/api/v1/namespaces")
    with holdfast.fork(at=before) as again:
        assert names(again) >= {"new", "prices"}
        put(again, "later")


def test_deleting_a_fork_ends_its_watches_and_its_forks(holdfast_prepared):
    fork = holdfast_prepared.fork()
    below = fork.fork()
    put(below, "below")
    watches = [Watch(fork, MAPS), Watch(below, MAPS)]
    watches[1].saw("below")
    fork.delete()
    for watch in watches:
        assert watch.ended.wait(30), "the watch did not end"
    for deleted in (fork, below):
        with pytest.raises(HoldfastError) as refused:
            deleted.request("GET", MAPS)
        assert refused.value.code == 404
    fork.delete()
    assert fork.name not in {fork["name"] for fork in holdfast_prepared.request("GET", "/holdfast/v1/forks")["forks"]}


def test_an_idle_fork_ends(holdfast_prepared):
    idle, watched = holdfast_prepared.fork(idle_seconds=1), holdfast_prepared.fork(idle_seconds=1)
    watch = Watch(watched, MAPS)
    deadline = time.monotonic() + 30

    def there():
        return {fork["name"] for fork in holdfast_prepared.request("GET", "/holdfast/v1/forks")["forks"]}

    while idle.name in there():
        assert time.monotonic() < deadline, "the idle fork did not end"
        time.sleep(0.05)
    assert watched.name in there() and not watch.ended.is_set(), "the watched fork ended"
    watched.delete()


def test_fifty_forks_at_once_do_not_see_each_others_objects(holdfast_prepared):
    def one(number):
        with holdfast_prepared.fork() as cluster:
            put(cluster, "mine", number=str(number))
            for turn in range(5):
                put(cluster, f"more-{turn}")
            assert cluster.request("GET", f"{MAPS}/mine")["data"] == {"number": str(number)}
            return sorted(names(cluster))

    with ThreadPoolExecutor(50) as pool:
        seen = list(pool.map(one, range(50)))
    expected = sorted({"kube-root-ca.crt", "mine", "prices", *(f"more-{turn}" for turn in range(5))} & set(seen[0]))
    assert all(one == expected for one in seen) and "mine" in expected
    assert "mine" not in names(holdfast_prepared)


def test_a_fork_has_a_kubeconfig_and_an_environment(holdfast, holdfast_env):
    assert holdfast is holdfast_env
    assert holdfast.kubeconfig_dict["clusters"][0]["cluster"]["server"] == holdfast.url
    with open(holdfast.kubeconfig) as file:
        assert json.load(file) == holdfast.kubeconfig_dict
    assert holdfast.env["KUBECONFIG"] == holdfast.kubeconfig


def test_the_kubernetes_client_works_in_a_fork(holdfast):
    kubernetes = pytest.importorskip("kubernetes")
    for api in (
        kubernetes.config.new_client_from_config(holdfast.kubeconfig),
        kubernetes.config.new_client_from_config_dict(holdfast.kubeconfig_dict),
    ):
        core = kubernetes.client.CoreV1Api(api)
        core.create_namespaced_config_map("shop", {"metadata": {"generateName": "by-the-client-"}})
        found = [item.metadata.name for item in core.list_namespaced_config_map("shop").items]
        assert "prices" in found and any(name.startswith("by-the-client-") for name in found)
        events = kubernetes.watch.Watch().stream(core.list_namespaced_config_map, "shop", timeout_seconds=1)
        assert {event["object"].metadata.name for event in events} == set(found)


def test_a_server_ends_when_it_is_stopped():
    server = Server()
    code = subprocess.run(["kill", "-0", str(server.pid)]).returncode
    assert code == 0
    folder = server.cluster.ca_file
    server.stop()
    assert subprocess.run(["kill", "-0", str(server.pid)], stderr=subprocess.DEVNULL).returncode != 0
    with pytest.raises(OSError):
        open(folder)


def test_a_server_that_cannot_start_reports_the_reason():
    with pytest.raises(HoldfastError, match="--no-such-option"):
        Server(arguments=["--no-such-option"])
    with pytest.raises(HoldfastError, match="there is no program"):
        Server("/nowhere/holdfast")


def test_the_number_of_forks_is_bounded():
    with Server(arguments=["--forks-max", "4"]) as server:
        made = [server.cluster.fork() for _ in range(2)]
        with pytest.raises(HoldfastError) as refused:
            server.cluster.fork()
        assert refused.value.code == 429, "a user made more than half of the forks"
        made[0].delete()
        server.cluster.fork()
    with Server(arguments=["--forks-max", "0"]) as server, pytest.raises(HoldfastError, match="--forks-max"):
        server.cluster.fork()
