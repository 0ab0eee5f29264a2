"""A cluster, with its address and credentials for clients, and its forks."""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import ssl
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Mapping, Optional
from urllib.parse import quote, urlsplit

FORKS = "/holdfast/v1/forks"
# Servers close idle connections, so a connection that was idle for this time is not used again.
IDLE_SECONDS_MAX = 10.0
TIMEOUT_SECONDS = 60.0


class HoldfastError(Exception):
    """The server could not be started, or it refused a request. Then ``status`` is the ``Status`` in its answer."""

    def __init__(self, message: str, code: int = 0, status: Optional[Mapping[str, Any]] = None) -> None:
        super().__init__(message)
        self.code = code
        self.status: Mapping[str, Any] = status or {}


class Wire:
    """Sends requests to one server, over one connection for each thread."""

    def __init__(self, url: str, ca_file: str, client_cert: str, client_key: str) -> None:
        parts = urlsplit(url)
        if not parts.hostname or not parts.port:
            raise HoldfastError(f"{url} is not the URL of a server")
        self.host, self.port = parts.hostname, parts.port
        self.context = ssl.create_default_context(cafile=ca_file)
        self.context.load_cert_chain(client_cert, client_key)
        self._connections = threading.local()

    def send(self, method: str, path: str, body: Optional[bytes], headers: Mapping[str, str]) -> "tuple[int, bytes]":
        connection: Optional[http.client.HTTPSConnection] = getattr(self._connections, "open", None)
        if connection is not None and time.monotonic() - self._connections.used > IDLE_SECONDS_MAX:
            connection.close()
            connection = None
        if connection is None:
            connection = http.client.HTTPSConnection(
                self.host, self.port, context=self.context, timeout=TIMEOUT_SECONDS
            )
            self._connections.open = connection
        try:
            connection.request(method, path, body=body, headers=dict(headers))
            response = connection.getresponse()
            answer = response.status, response.read()
        except BaseException:
            # After an error the connection may contain the rest of this answer. The next request would read it as the
            # beginning of its own answer, so the connection is closed.
            connection.close()
            self._connections.open = None
            raise
        self._connections.used = time.monotonic()
        return answer


class Cluster:
    """One cluster, with its address, its credentials and its forks. Every client that accepts a URL or a kubeconfig can
    use it.

    A fork begins with the state of this cluster, and from then on the two clusters are independent. A fork ends with
    ``delete()``, at the end of a ``with`` block, or after ``idle_seconds`` without requests and watches.
    """

    def __init__(
        self,
        url: str,
        ca_file: str,
        client_cert: str,
        client_key: str,
        folder: str,
        *,
        name: str = "",
        version: int = 0,
        parent: "Optional[Cluster]" = None,
    ) -> None:
        #: The URL, without a slash at the end, such as ``https://127.0.0.1:6443/forks/NAME``.
        self.url = url
        #: The PEM files that contain the server's certificate authority, the administrator's certificate and the
        #: administrator's private key.
        self.ca_file, self.client_cert, self.client_key = ca_file, client_cert, client_key
        #: The name of this fork, the last version that this fork has in common with its parent, and the parent.
        self.name, self.version, self.parent = name, version, parent
        self._folder = folder
        self._kubeconfig: Optional[str] = None
        self._is_deleted = False
        self._wire = parent._wire if parent else Wire(url, ca_file, client_cert, client_key)

    def __repr__(self) -> str:
        return f"<holdfast cluster at {self.url}>"

    def fork(self, *, at: Optional[str] = None, idle_seconds: int = 3600) -> "Cluster":
        """Makes another cluster, which begins with the present state of this cluster, or with its state at a version
        (``"42"``), a time or a duration before now (``"-15m"``)."""
        wanted: "dict[str, Any]" = {"idleSeconds": idle_seconds}
        if at is not None:
            wanted["at"] = at
        made = self.request("POST", FORKS, wanted)
        root = self
        while root.parent is not None:
            root = root.parent
        return Cluster(
            root.url + made["path"],
            self.ca_file,
            self.client_cert,
            self.client_key,
            self._folder,
            name=made["name"],
            version=made["version"],
            parent=self,
        )

    def delete(self) -> None:
        """Ends a fork: its watches end, and requests to it get 404. Ending a fork twice has no effect."""
        if self.parent is None:
            raise HoldfastError("only a fork can be deleted: the server's cluster ends with the server")
        if self._is_deleted:
            return
        self._is_deleted = True
        if self._kubeconfig is not None:
            Path(self._kubeconfig).unlink(missing_ok=True)
        try:
            self.parent.request("DELETE", f"{FORKS}/{self.name}")
        except HoldfastError as error:
            # The fork has already ended, because it was idle for too long or because its parent has ended.
            if error.code != 404:
                raise

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(
        self,
        kind: Optional["type[BaseException]"],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if self.parent is not None:
            self.delete()

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        headers: Optional[Mapping[str, str]] = None,
    ) -> Any:
        """Sends a request as the administrator, and returns the JSON of the answer. Use it for steps that do not test a
        client. ``headers`` may name another user: ``{"Impersonate-User": "jane"}``."""
        sent = {"Accept": "application/json", **(headers or {})}
        encoded = None
        if body is not None:
            encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
            sent.setdefault("Content-Type", content_type)
        code, answer = self._wire.send(method, urlsplit(self.url).path + path, encoded, sent)
        said = _json(answer)
        if code >= 400:
            status = said if isinstance(said, dict) else {}
            raise HoldfastError(f"{method} {path}: {status.get('message') or answer[:200]!r}", code, status)
        return said

    def at(self, moment: str) -> str:
        """The URL at which clients can read this cluster as it was at a version, a time or a duration before now."""
        return f"{self.url}/at/{quote(moment, safe='')}"

    @property
    def kubeconfig_dict(self) -> "dict[str, Any]":
        """A kubeconfig that needs no other file, for ``kubernetes.config.new_client_from_config_dict``."""

        def data(file: str) -> str:
            return base64.b64encode(Path(file).read_bytes()).decode()

        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "holdfast", "cluster": {"server": self.url, "certificate-authority-data": data(self.ca_file)}}
            ],
            "users": [
                {
                    "name": "admin",
                    "user": {
                        "client-certificate-data": data(self.client_cert),
                        "client-key-data": data(self.client_key),
                    },
                }
            ],
            "contexts": [{"name": "holdfast", "context": {"cluster": "holdfast", "user": "admin"}}],
            "current-context": "holdfast",
        }

    @property
    def kubeconfig(self) -> str:
        """The path of a kubeconfig file, which the first read of this property writes."""
        if self._kubeconfig is None:
            path = os.path.join(self._folder, f"{self.name or 'cluster'}.kubeconfig")
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
                # The kubeconfig is written as JSON, because every JSON text is also YAML.
                json.dump(self.kubeconfig_dict, file)
            self._kubeconfig = path
        return self._kubeconfig

    @property
    def env(self) -> "dict[str, str]":
        """The environment of this process, with variables by which programs find this cluster."""
        return {**os.environ, "KUBECONFIG": self.kubeconfig, "HOLDFAST_URL": self.url, "USE_EXISTING_CLUSTER": "true"}


def _json(answer: bytes) -> Any:
    text = answer.decode("utf-8", "replace")
    if not re.match(r"\s*[\[{\"0-9tfn-]", text):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text
