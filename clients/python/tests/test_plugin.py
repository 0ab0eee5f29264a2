"""Tests the plug-in in separate test runs."""

import os

import pytest
from pytest_holdfast.server import find


@pytest.fixture
def project(pytester):
    pytester.makeini(f"[pytest]\nholdfast_binary = {find(None)}\n")
    pytester.makeconftest(
        """
        import pytest
        @pytest.fixture(scope="session")
        def holdfast_prepared(holdfast_prepared):
            holdfast_prepared.request("POST", "/api/v1/namespaces", {"metadata": {"name": "prepared"}})
            return holdfast_prepared
        """
    )
    return pytester


TESTS = """
    import pytest
    SPACES = "/api/v1/namespaces"
    def spaces(cluster):
        return {space["metadata"]["name"] for space in cluster.request("GET", SPACES)["items"]}
    def put(cluster, name):
        cluster.request("POST", SPACES, {"metadata": {"name": name}})
    def test_one(holdfast):
        assert "prepared" in spaces(holdfast)
        put(holdfast, "mine")
    def test_two(holdfast):
        assert "mine" not in spaces(holdfast)
        put(holdfast, "mine")
    @pytest.mark.holdfast(scope="session")
    def test_three(holdfast):
        put(holdfast, "ours")
    @pytest.mark.holdfast(scope="session")
    def test_four(holdfast):
        assert "ours" in spaces(holdfast) and "mine" not in spaces(holdfast)
    def test_five(holdfast, holdfast_prepared):
        assert "ours" not in spaces(holdfast) and "ours" not in spaces(holdfast_prepared)
"""


def test_a_cluster_for_every_test_or_for_the_session(project):
    project.makepyfile(TESTS)
    project.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=5)


def test_the_scope_is_an_option(project):
    project.makepyfile(
        """
        SPACES = "/api/v1/namespaces"
        def test_one(holdfast):
            holdfast.request("POST", SPACES, {"metadata": {"name": "ours"}})
        def test_two(holdfast):
            holdfast.request("GET", SPACES + "/ours")
        """
    )
    project.runpytest_subprocess("--holdfast-scope=session").assert_outcomes(passed=2)
    project.runpytest_subprocess("--holdfast-scope=test").assert_outcomes(passed=1, failed=1)


def test_an_unknown_scope_is_refused(project):
    project.makepyfile(
        """
        import pytest
        @pytest.mark.holdfast(scope="universe")
        def test_one(holdfast):
            pass
        """
    )
    result = project.runpytest_subprocess()
    result.stdout.fnmatch_lines(["*one of test, session, and not 'universe'*"])


def test_workers_of_xdist_do_not_see_each_others_objects(project):
    pytest.importorskip("xdist")
    project.makepyfile(test_a=TESTS, test_b=TESTS)
    project.runpytest_subprocess("-n", "2", "--dist", "loadfile").assert_outcomes(passed=10)


def test_a_missing_program_is_reported(pytester):
    pytester.makeini("[pytest]\nholdfast_binary = /nowhere/holdfast\n")
    pytester.makepyfile("def test_one(holdfast): pass")
    result = pytester.runpytest_subprocess()
    result.stdout.fnmatch_lines(["*there is no program /nowhere/holdfast*"])
    result.assert_outcomes(errors=1)
    assert os.environ.get("PYTEST_CURRENT_TEST")
