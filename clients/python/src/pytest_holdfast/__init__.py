"""Kubernetes clusters for tests: one server for the test run, and a fork of the prepared cluster for every test.

The pytest plug-in is in ``plugin``. Without pytest, use ``Server`` and ``Cluster`` alone::

    with Server() as server:
        with server.cluster.fork() as cluster:
            cluster.request("GET", "/api/v1/namespaces")
"""

from .cluster import Cluster, HoldfastError
from .server import Server

__all__ = ["Cluster", "HoldfastError", "Server"]
