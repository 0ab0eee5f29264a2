"""Starts `holdfast up` on a data folder, for the benchmarks in this folder."""

import base64
import http.client
import json
import pathlib
import re
import signal
import ssl
import subprocess
import time


class Server:
    """A server, which runs until the end of a `with` block."""

    def __init__(self, holdfast, folder, *options):
        self.holdfast, self.folder, self.options = holdfast, folder, options

    def __enter__(self):
        self.began = time.monotonic()
        command = [self.holdfast, "up", "--secure-port=0", f"--data-dir={self.folder}", *self.options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.address = re.search(r"https://(\S+)", self.process.stdout.readline()).group(1)
        self.seconds_to_ready = time.monotonic() - self.began
        self.kubeconfig = pathlib.Path(self.folder, "admin.kubeconfig")
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()

    def bench(self, *options):
        """Runs `holdfast bench` against the server, and returns the rows of its table."""
        process = [f"--kubeconfig={self.kubeconfig}", f"--pid={self.process.pid}"]
        command = [self.holdfast, "bench", *process, "--json", "--keep", *options]
        return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["rows"]

    def connect(self):
        files = {}
        for part in ("certificate-authority", "client-certificate", "client-key"):
            found = re.search(rf"\b{part}-data:\s*\"?([A-Za-z0-9+/=]+)", self.kubeconfig.read_text())
            files[part] = pathlib.Path(self.folder, f"bench-{part}")
            files[part].write_bytes(base64.b64decode(found.group(1)))
        tls = ssl.create_default_context(cafile=files["certificate-authority"])
        tls.load_cert_chain(files["client-certificate"], files["client-key"])
        return http.client.HTTPSConnection(self.address, context=tls)

    def ask(self, path, body=None):
        """Sends a GET, or a POST of the body, and returns the JSON of the answer."""
        return self._ask("GET" if body is None else "POST", path, body)

    def remove(self, path):
        return self._ask("DELETE", path, None)

    def _ask(self, method, path, body):
        connection = self.connect()
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        said = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{answer.status}: {said[:300]}")
        return json.loads(said)

    def drain(self, path, times, headers):
        """Sends GETs one after the other on one connection, and reads each answer to its end."""
        connection = self.connect()
        for _ in range(times):
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            while answer.read(1 << 20):
                pass

    def metrics(self, connection):
        """Returns the values of all metrics, by their names and labels."""
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
        values = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {labels: float(value) for labels, value in values}

    def mebibytes(self):
        return self._status("VmRSS")

    def most_mebibytes(self):
        return self._status("VmHWM")

    def _status(self, field):
        lines = pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))

    def processor_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / 100
