"""A server that this process starts, and that always ends with this process."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from types import TracebackType
from typing import IO, Optional, Sequence

from .cluster import Cluster, HoldfastError

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 10.0


class Server:
    """Runs ``holdfast run --for-parent``: an empty cluster in memory, or a cluster that begins with the state of the
    cluster in a data folder.

    The server ends when its standard input is closed, so it never outlives the test run, even if the run is killed.
    """

    def __init__(
        self, binary: Optional[str] = None, *, from_folder: Optional[str] = None, arguments: Sequence[str] = ()
    ) -> None:
        self.binary = find(binary)
        self.folder = tempfile.mkdtemp(prefix="pytest-holdfast-")
        command = [self.binary, "run", "--for-parent", *arguments]
        if from_folder is not None:
            command += ["--from", from_folder]
        self._errors: IO[bytes] = open(os.path.join(self.folder, "stderr"), "w+b")
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
            )
            access = json.loads(self._first_line())
        except BaseException:
            self.stop()
            raise
        #: The cluster with which the server started. It is not a fork.
        self.cluster = Cluster(
            access["url"], access["certificateAuthority"], access["clientCertificate"], access["clientKey"], self.folder
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def _first_line(self) -> bytes:
        assert self._process.stdout is not None
        deadline, line = time.monotonic() + START_SECONDS_MAX, b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            piece = os.read(self._process.stdout.fileno(), 65536) if ready else b""
            if not piece:
                self._errors.seek(0)
                said = self._errors.read().decode("utf-8", "replace").strip()
                late = f"it was not ready within {START_SECONDS_MAX} s"
                why = said or ("it ended without an error message" if ready else late)
                raise HoldfastError(f"{self.binary} did not start: {why}")
            line += piece
        return line

    def stop(self) -> None:
        """Ends the server with all its forks, and waits for its end."""
        process = getattr(self, "_process", None)
        if process is not None:
            for stream in (process.stdin, process.stdout):
                stream.close()
            try:
                process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._errors.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> "Server":
        return self

    def __exit__(
        self,
        kind: Optional["type[BaseException]"],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.stop()


def find(binary: Optional[str]) -> str:
    """The program to run: ``binary``, or else the program in ``HOLDFAST_BINARY``, or else ``holdfast`` in the PATH."""
    named = binary or os.environ.get("HOLDFAST_BINARY") or "holdfast"
    found = shutil.which(named)
    if found is None:
        raise HoldfastError(
            f"there is no program {named}: put holdfast into the PATH, or name it with --holdfast-binary or HOLDFAST_BINARY"
        )
    return found
