"""A cluster as clients reach it, and its forks."""

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
# Servers close connections on which nothing is said; one as old as this is not used again.
IDLE_SECONDS_MAX = 10.0
TIMEOUT_SECONDS = 60.0


class HoldfastError(Exception):
    """The server could not be started, or refused a request: then ``status`` has its answer, a ``Status``."""

    def __init__(self, message: str, code: int = 0, status: Optional[Mapping[str, Any]] = None) -> None:
        super().__init__(message)
        self.code = code
        self.status: Mapping[str, Any] = status or {}


class Wire:
    """Requests to one server over one connection a thread."""

    def __init__(self, url: str, ca_file: str, client_cert: str, client_key: str) -> None:
        parts = urlsplit(url)
        if not parts.hostname or not parts.port:
            raise HoldfastError(f"{url} is no URL of a server")
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
            # What is left on the connection would be taken for the next answer.
            connection.close()
            self._connections.open = None
            raise
        self._connections.used = time.monotonic()
        return answer


class Cluster:
    """One cluster: how it is reached, and how it is forked. Every client works that takes a URL or a kubeconfig.

    A fork begins with everything that is in this cluster, and from then on the two see nothing of each other. It ends
    with ``delete()``, at the end of a ``with`` block, or when nobody has used it for ``idle_seconds``.
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
        #: As ``https://127.0.0.1:6443/forks/NAME``: without a slash at the end.
        self.url = url
        #: Files in PEM: whom to trust, and who the administrator is.
        self.ca_file, self.client_cert, self.client_key = ca_file, client_cert, client_key
        #: Of a fork: its name, and the last version that it has in common with its parent.
        self.name, self.version, self.parent = name, version, parent
        self._folder = folder
        self._kubeconfig: Optional[str] = None
        self._is_deleted = False
        self._wire = parent._wire if parent else Wire(url, ca_file, client_cert, client_key)

    def __repr__(self) -> str:
        return f"<holdfast cluster at {self.url}>"

    def fork(self, *, at: Optional[str] = None, idle_seconds: int = 3600) -> "Cluster":
        """Another cluster that begins as this one is, or was at a version (``"42"``), a time or a time ago (``"-15m"``)."""
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
        """Ends a fork: its watches end, and requests to it find nothing. Ending it twice does nothing."""
        if self.parent is None:
            raise HoldfastError("only a fork can be deleted: the cluster itself ends with its server")
        if self._is_deleted:
            return
        self._is_deleted = True
        if self._kubeconfig is not None:
            Path(self._kubeconfig).unlink(missing_ok=True)
        try:
            self.parent.request("DELETE", f"{FORKS}/{self.name}")
        except HoldfastError as error:
            # It was idle for too long, or went with its parent.
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
        """Sends a request as the administrator, and gives back what the answer says in JSON; for what is no test of a
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
        """The URL of this cluster as it was at a version, a time or a time ago: to read, with any client."""
        return f"{self.url}/at/{quote(moment, safe='')}"

    @property
    def kubeconfig_dict(self) -> "dict[str, Any]":
        """A kubeconfig that needs no other file, as ``kubernetes.config.new_client_from_config_dict`` takes it."""

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
        """The path of a kubeconfig file, written when it is first asked for."""
        if self._kubeconfig is None:
            path = os.path.join(self._folder, f"{self.name or 'cluster'}.kubeconfig")
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
                # JSON is YAML.
                json.dump(self.kubeconfig_dict, file)
            self._kubeconfig = path
        return self._kubeconfig

    @property
    def env(self) -> "dict[str, str]":
        """The environment of this process, in which programs find this cluster."""
        return {**os.environ, "KUBECONFIG": self.kubeconfig, "HOLDFAST_URL": self.url, "USE_EXISTING_CLUSTER": "true"}


def _json(answer: bytes) -> Any:
    text = answer.decode("utf-8", "replace")
    if not re.match(r"\s*[\[{\"0-9tfn-]", text):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text
