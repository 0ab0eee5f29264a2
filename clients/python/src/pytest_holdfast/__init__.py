"""Kubernetes clusters for tests: a server for the run, and a fork of what was prepared for every test.

The pytest plug-in is in ``plugin``. Without pytest, use ``Server`` and ``Cluster`` alone::

    with Server() as server:
        with server.cluster.fork() as cluster:
            cluster.request("GET", "/api/v1/namespaces")
"""

from .cluster import Cluster, HoldfastError
from .server import Server

__all__ = ["Cluster", "HoldfastError", "Server"]
