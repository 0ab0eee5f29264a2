"""Tests the Python client with a container: commands without and with input, attaching, a forwarded port."""

import time

from kubernetes import client, config
from kubernetes.client.rest import ApiException
from kubernetes.stream import portforward, stream

config.load_kube_config()
core = client.CoreV1Api()


def eventually(attempt, failure):
    """Repeats `attempt` until its result is true, and returns the result."""
    for _ in range(300):
        found = attempt()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(failure)


core.create_namespaced_pod("default", {
    "metadata": {"name": "web"},
    "spec": {"containers": [{
        "name": "c", "image": "busybox", "stdin": True, "ports": [{"containerPort": 80}],
        "command": ["sh", "-c", "echo begun; while read line; do echo got $line; done; sleep infinity"],
    }]},
})
eventually(lambda: core.read_namespaced_pod("web", "default").status.phase == "Running", "the pod does not run")

# Runs a command, and reads its whole output.
said = stream(core.connect_get_namespaced_pod_exec, "web", "default", command=["sh", "-c", "echo a; echo b >&2"],
              stderr=True, stdin=False, stdout=True, tty=False)
assert sorted(said.split()) == ["a", "b"], said

# Runs a command with input, and checks its exit code.
talk = stream(core.connect_get_namespaced_pod_exec, "web", "default", command=["sh"], stderr=True, stdin=True,
              stdout=True, tty=False, _preload_content=False)
talk.write_stdin("echo $((6*7))\n")
assert talk.readline_stdout(timeout=20) == "42"
talk.write_stdin("exit 3\n")
talk.run_forever(timeout=20)
assert talk.returncode == 3, talk.returncode
talk.close()

# Attaches to the container's own command.
attached = stream(core.connect_get_namespaced_pod_attach, "web", "default", container="c", stderr=True, stdin=True,
                  stdout=True, tty=False, _preload_content=False)
attached.write_stdin("hello\n")
assert attached.readline_stdout(timeout=20) == "got hello"
attached.close()

# Forwards a port.
ports = portforward(core.connect_get_namespaced_pod_portforward, "web", "default", ports="80")
http = ports.socket(80)
http.setblocking(True)
http.sendall(b"GET / HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n")
answer = b""
while True:
    piece = http.recv(4096)
    if not piece:
        break
    answer += piece
assert b"200 OK" in answer and b"no container runs" in answer, answer
http.close()

# Reads the log, and the log of a container that does not exist.
assert core.read_namespaced_pod_log("web", "default").startswith("begun\n")
try:
    core.read_namespaced_pod_log("web", "default", container="none")
    raise AssertionError("the log of a missing container is not refused")
except ApiException as error:
    assert error.status in (400, 404), error
