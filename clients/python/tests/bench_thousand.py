"""Measures the cost of a thousand tests, each with its own cluster: ``pytest tests/bench_thousand.py -s``.

Each test creates an object in its own fork and reads it back. A thousand more tests do the same in one cluster, with a
different name in each test. The difference is the cost of the forks.
"""

import os
import resource
import time

import pytest

COUNT = 1000
MAPS = "/api/v1/namespaces/shop/configmaps"


def spent(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture(scope="module", params=["session", "test"], autouse=True)
def measured(request, holdfast_server, holdfast_prepared):
    began, server, own = time.monotonic(), spent(holdfast_server.pid), resource.getrusage(resource.RUSAGE_SELF)
    yield request.param
    wall, server = time.monotonic() - began, spent(holdfast_server.pid) - server
    after = resource.getrusage(resource.RUSAGE_SELF)
    client = after.ru_utime + after.ru_stime - own.ru_utime - own.ru_stime
    what = "a fork for every test" if request.param == "test" else "one cluster for all"
    print(f"\n{COUNT} tests, {what}: {wall:.2f} s; CPU of the server {server:.2f} s, of pytest {client:.2f} s")


@pytest.mark.parametrize("number", range(COUNT))
def test_one_of_a_thousand(number, measured, request, holdfast_prepared):
    if measured == "test":
        cluster, name = request.getfixturevalue("holdfast"), "mine"
    else:
        cluster, name = holdfast_prepared, f"number-{number}"
    cluster.request("POST", MAPS, {"metadata": {"name": name}, "data": {"number": str(number)}})
    assert cluster.request("GET", f"{MAPS}/{name}")["data"]["number"] == str(number)
