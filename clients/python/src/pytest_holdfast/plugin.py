"""The fixtures. Tests use ``holdfast``, and projects override ``holdfast_prepared`` to prepare their cluster."""

from __future__ import annotations

from typing import Iterator

import pytest

from .cluster import Cluster
from .server import Server

SCOPES = ("test", "session")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("holdfast", "Kubernetes clusters for tests")
    group.addoption("--holdfast-binary", metavar="FILE", help="the program holdfast [default: HOLDFAST_BINARY or PATH]")
    group.addoption("--holdfast-from", metavar="DIR", help="begin with the state of the cluster in this data folder")
    group.addoption(
        "--holdfast-scope",
        choices=SCOPES,
        help="a cluster for every test [default], or one for the session; overridden by @pytest.mark.holdfast(scope=...)",
    )
    parser.addini("holdfast_binary", "the same as --holdfast-binary")
    parser.addini("holdfast_from", "the same as --holdfast-from")
    parser.addini("holdfast_scope", "the same as --holdfast-scope")
    parser.addini("holdfast_args", "more arguments for the server", type="args")


def pytest_configure(config: pytest.Config) -> None:
    scopes = "'test': the test has its own cluster; 'session': all tests with this scope share one"
    config.addinivalue_line("markers", f"holdfast(scope): {scopes}")


def _option(config: pytest.Config, name: str) -> str:
    return config.getoption(f"--holdfast-{name}") or str(config.getini(f"holdfast_{name}") or "")


@pytest.fixture(scope="session")
def holdfast_server(pytestconfig: pytest.Config) -> Iterator[Server]:
    """The server of this process. With pytest-xdist each worker has a server of its own."""
    server = Server(
        _option(pytestconfig, "binary") or None,
        from_folder=_option(pytestconfig, "from") or None,
        arguments=pytestconfig.getini("holdfast_args"),
    )
    yield server
    server.stop()


@pytest.fixture(scope="session")
def holdfast_prepared(holdfast_server: Server) -> Cluster:
    """The cluster with whose state every test begins. Override this fixture in a ``conftest.py`` to add objects::

        @pytest.fixture(scope="session")
        def holdfast_prepared(holdfast_prepared):
            subprocess.run(["kubectl", "apply", "-f", "crds/"], env=holdfast_prepared.env, check=True)
            return holdfast_prepared

    A module or a package may prepare more objects for its own tests, in a fork of this cluster.
    """
    return holdfast_server.cluster


@pytest.fixture(scope="session")
def _holdfast_of_session(holdfast_prepared: Cluster) -> Iterator[Cluster]:
    with holdfast_prepared.fork(idle_seconds=24 * 3600) as cluster:
        yield cluster


@pytest.fixture
def holdfast(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster for this test alone, which begins with the state of ``holdfast_prepared``. With the scope ``session``
    all tests of that scope share one such cluster."""
    marker = request.node.get_closest_marker("holdfast")
    scope = marker.kwargs.get("scope") if marker else None
    scope = scope or _option(request.config, "scope") or SCOPES[0]
    if scope not in SCOPES:
        raise pytest.UsageError(f"the scope of a holdfast cluster is one of {', '.join(SCOPES)}, and not {scope!r}")
    if scope == "session":
        yield request.getfixturevalue("_holdfast_of_session")
        return
    prepared: Cluster = request.getfixturevalue("holdfast_prepared")
    with prepared.fork() as cluster:
        yield cluster


@pytest.fixture
def holdfast_env(holdfast: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The cluster of the fixture ``holdfast``, which the test and programs that it starts find by ``KUBECONFIG``."""
    monkeypatch.setenv("KUBECONFIG", holdfast.kubeconfig)
    monkeypatch.setenv("HOLDFAST_URL", holdfast.url)
    monkeypatch.setenv("USE_EXISTING_CLUSTER", "true")
    return holdfast
