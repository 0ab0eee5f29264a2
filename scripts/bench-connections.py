"""Measures the cost of connections to nodes. Compares the cost of a byte of a followed log and of a forwarded port with
nginx as a TLS proxy for the same bytes, compares a command with a get, and measures followed logs without output.

usage: scripts/bench-connections.py HOLDFAST [--megabytes 400] [--follows 1000] [--json FILE]

The cost is the whole processor time of the server's process, so other load on the machine changes little. The node is a
process that this script starts, at an address of this machine other than loopback. The script needs nginx.
"""

import argparse
import asyncio
import base64
import hashlib
import json
import multiprocessing
import os
import pathlib
import resource
import socket
import ssl
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from cluster import Server  # noqa: E402

PIECE = b"a line of a log, as long as most of them are, with a time and a level\n" * 234
TICKS = os.sysconf("SC_CLK_TCK")
NGINX = """
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{ worker_connections 4096; }}
http {{
  access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{
    listen 127.0.0.1:{port} ssl; ssl_certificate {folder}/node.crt; ssl_certificate_key {folder}/node.key;
    location / {{
      proxy_pass https://{node}; proxy_ssl_verify off; proxy_http_version 1.1; proxy_max_temp_file_size 0;
      proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $http_connection;
    }}
  }}
}}
"""


def own_address():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("198.51.100.1", 9))
        return probe.getsockname()[0]


def frame(payload):
    """Returns a binary WebSocket message, in the form in which servers send it."""
    length = len(payload)
    if length < 126:
        return bytes([0x82, length]) + payload
    return bytes([0x82, 126]) + length.to_bytes(2, "big") + payload


async def node(reader, writer, megabytes):
    """Serves one connection of the node: a kubelet that sends as fast as it can."""
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            path = head.split(" ", 2)[1]
            fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
            if "upgrade" in fields.get("connection", "") and fields.get("upgrade") == "spdy/3.1":
                lines = ["HTTP/1.1 101 Switching Protocols", "Connection: Upgrade", "Upgrade: SPDY/3.1"]
                protocol = fields["x-stream-protocol-version"].split(",")[0]
                writer.write(("\r\n".join(lines) + f"\r\nX-Stream-Protocol-Version: {protocol}\r\n\r\n").encode())
                await talk(writer, megabytes)
                return
            if "upgrade" in fields.get("connection", ""):
                key = next(line for line in head.split("\r\n") if line.lower().startswith("sec-websocket-key"))
                guid = key.split(": ")[1] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
                accept = base64.b64encode(hashlib.sha1(guid.encode()).digest()).decode()
                protocol = fields["sec-websocket-protocol"].split(",")[0]
                writer.write((
                    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                    f"Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: {protocol}\r\n\r\n").encode())
                writer.write(frame(b"\x01hello\n") + frame(b'\x03{"metadata":{},"status":"Success"}'))
                writer.write(bytes([0x88, 2, 0x03, 0xE8]))
                await writer.drain()
                await reader.read(1 << 16)
                return
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n")
            if "/quiet/" in path:
                writer.write(b"7\r\na line\n\r\n")
                await reader.read(1)
                return
            for _ in range(megabytes * (1 << 20) // len(PIECE)):
                writer.write(f"{len(PIECE):x}\r\n".encode() + PIECE + b"\r\n")
                await writer.drain()
            writer.write(b"0\r\n\r\n")
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
        pass
    finally:
        writer.close()


async def talk(writer, megabytes):
    for _ in range(megabytes * (1 << 20) // len(PIECE)):
        writer.write(PIECE)
        await writer.drain()


def serve_node(address, folder, megabytes, port):
    raise_limit()

    async def serve():
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(f"{folder}/node.crt", f"{folder}/node.key")
        answer = lambda reader, writer: node(reader, writer, megabytes)  # noqa: E731
        server = await asyncio.start_server(answer, address, 0, ssl=tls, backlog=2048)
        port.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())


def raise_limit():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def seconds_of(pids):
    """Returns the processor time that the processes have used so far."""
    total = 0
    for pid in pids:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS


def resident(pid):
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


class Front:
    """A proxy in front of the node, Holdfast or nginx: connects to it with TLS, and measures its processor time."""

    def __init__(self, address, tls, pids, prefix):
        self.address, self.tls, self.pids, self.prefix = address, tls, pids, prefix

    def connect(self):
        host, port = self.address.rsplit(":", 1)
        plain = socket.create_connection((host, int(port)))
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self.tls.wrap_socket(plain, server_hostname="localhost" if self.tls.check_hostname else None)

    def ask(self, connection, method, path, *headers):
        lines = [f"{method} {self.prefix}{path} HTTP/1.1", "Host: localhost", *headers]
        connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())

    def drain(self, connection, wanted):
        """Reads until `wanted` bytes or the end of the connection. Returns the number of bytes."""
        buffer, count = bytearray(1 << 18), 0
        while count < wanted:
            piece = connection.recv_into(buffer)
            if piece == 0:
                break
            count += piece
        return count

    def cost_of(self, work):
        before = seconds_of(self.pids)
        received = work()
        return (seconds_of(self.pids) - before) / received


def log_bytes(front, path, megabytes):
    def work():
        with front.connect() as connection:
            front.ask(connection, "GET", path)
            return front.drain(connection, megabytes << 20)
    return work


SPDY = ("Connection: Upgrade", "Upgrade: SPDY/3.1", "Content-Length: 0",
        "X-Stream-Protocol-Version: portforward.k8s.io")
SOCKET = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
          "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")


def forwarded_bytes(front, method, path, megabytes, headers):
    def work():
        with front.connect() as connection:
            front.ask(connection, method, path, *headers)
            return front.drain(connection, megabytes << 20)
    return work


def commands(front, count):
    def work():
        for _ in range(count):
            with front.connect() as connection:
                front.ask(connection, "GET", "/exec?command=echo&stdout=true", *SOCKET,
                          "Sec-WebSocket-Protocol: v4.channel.k8s.io")
                received = b""
                while b"Success" not in received:
                    piece = connection.recv(1 << 16)
                    if not piece:
                        raise RuntimeError(f"the command ended early: {received!r}")
                    received += piece
        return count
    return work


def gets(front, count, kept):
    def work():
        connection = None
        for _ in range(count):
            connection = connection or front.connect()
            front.ask(connection, "GET", "")
            received = b""
            while not received.endswith(b"}\n") and not received.endswith(b"}"):
                received += connection.recv(1 << 16)
            if not kept:
                connection.close()
                connection = None
        return count
    return work


def handshakes(front, count):
    def work():
        for _ in range(count):
            front.connect().close()
        return count
    return work


def measure_simulated(server):
    """Measures the same command in a pod of a simulated node, whose kubelet runs in the server's process."""
    pods, pod = "/api/v1/namespaces/default/pods", {"metadata": {"name": "web"}, "spec": {
        "automountServiceAccountToken": False,
        "containers": [{"name": "c", "image": "i", "command": ["sleep", "infinity"]}]}}
    # A controller creates the service account that pods need.
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    while not any(account["metadata"]["name"] == "default" for account in server.ask(accounts)["items"]):
        time.sleep(0.1)
    server.ask(pods, pod)
    while server.ask(f"{pods}/web")["status"].get("phase") != "Running":
        time.sleep(0.1)
    front = Front(server.address, server.connect()._context, [server.process.pid], f"{pods}/web")
    commands(front, 10)()
    count, seconds = 300, 2
    one = front.cost_of(commands(front, count))
    # Measures the processor time that the server and its controllers use without commands.
    before = seconds_of(front.pids)
    time.sleep(seconds)
    rest = (seconds_of(front.pids) - before) / seconds
    rows = {"command on a simulated node: ms": one * 1e3,
            "the same server without commands: share of a processor": rest}
    get = front.cost_of(gets(front, count, False))
    rows["command on a simulated node: in gets on new connections"] = one / get
    return rows


def http2_get(connection, path):
    """Sends a GET over HTTP/2 without compressing the header fields, which is the simplest form."""
    def field(name, value):
        return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
    fields = b"".join(field(*pair) for pair in [
        (":method", "GET"), (":scheme", "https"), (":authority", "localhost"), (":path", path)])
    headers = len(fields).to_bytes(3, "big") + b"\x01\x05" + (1).to_bytes(4, "big") + fields
    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04\0" + bytes(4) + headers)


def idle_follows(front, count, seconds, by_http2):
    """Returns the memory of a followed log without output, and the share of a processor that all of them use. As with
    kubectl, each has a connection of its own."""
    pid = front.pids[0]
    front.tls.set_alpn_protocols(["h2"] if by_http2 else ["http/1.1"])
    before, connections = resident(pid), []
    for _ in range(count):
        connection = front.connect()
        if by_http2:
            http2_get(connection, f"{front.prefix}/log?follow=true")
        else:
            front.ask(connection, "GET", "/log?follow=true")
        received = b""
        while b"a line" not in received:
            received += connection.recv(4096)
        connections.append(connection)
    time.sleep(2)
    kibibytes = (resident(pid) - before) / count
    begin = seconds_of([pid])
    time.sleep(seconds)
    share = (seconds_of([pid]) - begin) / max(seconds, 1)
    for connection in connections:
        connection.close()
    return kibibytes, share


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("holdfast")
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--follows", type=int, default=1000)
    parser.add_argument("--json", metavar="FILE")
    given = parser.parse_args()
    raise_limit()
    address = own_address()
    with tempfile.TemporaryDirectory() as folder:
        make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                "-subj", "/CN=node", "-keyout", f"{folder}/node.key", "-out", f"{folder}/node.crt"]
        subprocess.run(make, check=True, capture_output=True)
        receiver, port = multiprocessing.Pipe()
        process = multiprocessing.Process(target=serve_node, args=(address, folder, given.megabytes, port), daemon=True)
        process.start()
        node_port = receiver.recv()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            nginx_port = free.getsockname()[1]
        pathlib.Path(folder, "nginx.conf").write_text(
            NGINX.format(folder=folder, port=nginx_port, node=f"{address}:{node_port}"))
        nginx = subprocess.Popen(["nginx", "-p", folder, "-c", f"{folder}/nginx.conf"], stderr=subprocess.DEVNULL)
        try:
            with Server(given.holdfast, f"{folder}/data", "--controllers=-*", "--nodes=0") as server:
                rows = measure(given, server, nginx, nginx_port, address, node_port)
            with Server(given.holdfast, f"{folder}/simulated", "--nodes=1") as server:
                rows |= measure_simulated(server)
        finally:
            nginx.terminate()
            process.terminate()
    for name, value in rows.items():
        print(f"{name:60} {value:10.3f}")
    if given.json:
        pathlib.Path(given.json).write_text(json.dumps(rows, indent=1))


def measure(given, server, nginx, nginx_port, address, node_port):
    server.ask("/api/v1/nodes", {"metadata": {"name": "n"}, "status": {
        "addresses": [{"type": "InternalIP", "address": address}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": node_port}}}})
    for name in ["web", "quiet"]:
        server.ask("/api/v1/namespaces/default/pods", {"metadata": {"name": name}, "spec": {
            "nodeName": "n", "automountServiceAccountToken": False, "containers": [{"name": "c", "image": "i"}]}})
    own = server.connect()
    pods = "/api/v1/namespaces/default/pods"
    holdfast = Front(server.address, own._context, [server.process.pid], f"{pods}/web")
    quiet = Front(server.address, own._context, [server.process.pid], f"{pods}/quiet")
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    time.sleep(0.5)
    children = pathlib.Path(f"/proc/{nginx.pid}/task/{nginx.pid}/children").read_text().split()
    reference = Front(f"127.0.0.1:{nginx_port}", trusting, [int(pid) for pid in children], "")
    rows, megabytes = {}, given.megabytes
    nanos = lambda front, work: front.cost_of(work) * 1e9  # noqa: E731
    # The measurements alternate, so that a change of the machine's speed affects all of them.
    rounds = 3
    sums = {}
    for _ in range(rounds):
        for name, cost in [
            ("log, holdfast", lambda: nanos(holdfast, log_bytes(holdfast, "/log?follow=true", megabytes))),
            ("log, nginx", lambda: nanos(reference, log_bytes(reference, "/containerLogs/default/web/c", megabytes))),
            ("port over SPDY, holdfast",
             lambda: nanos(holdfast, forwarded_bytes(holdfast, "POST", "/portforward", megabytes, SPDY))),
            ("port over a WebSocket, holdfast",
             lambda: nanos(holdfast, forwarded_bytes(holdfast, "GET", "/portforward", megabytes, (
                 *SOCKET, "Sec-WebSocket-Protocol: SPDY/3.1+portforward.k8s.io")))),
            ("port, nginx",
             lambda: nanos(reference, forwarded_bytes(reference, "POST", "/portForward/default/web", megabytes, SPDY))),
        ]:
            sums[name] = sums.get(name, 0) + cost()
    for name, total in sums.items():
        rows[f"{name}: ns a byte"] = total / rounds
    rows["log: times nginx"] = sums["log, holdfast"] / sums["log, nginx"]
    rows["port over SPDY: times nginx"] = sums["port over SPDY, holdfast"] / sums["port, nginx"]
    rows["port over a WebSocket: times nginx"] = sums["port over a WebSocket, holdfast"] / sums["port, nginx"]
    count = 300
    rows["command: ms"] = holdfast.cost_of(commands(holdfast, count)) * 1e3
    rows["handshake: ms"] = holdfast.cost_of(handshakes(holdfast, count)) * 1e3
    rows["get on a new connection: ms"] = holdfast.cost_of(gets(holdfast, count, False)) * 1e3
    rows["get on one connection: ms"] = holdfast.cost_of(gets(holdfast, 10 * count, True)) * 1e3
    rows["command: in gets on new connections"] = rows["command: ms"] / rows["get on a new connection: ms"]
    rows["command: in gets on one connection"] = rows["command: ms"] / rows["get on one connection: ms"]
    rest = rows["command: ms"] - rows["handshake: ms"]
    rows["command without its handshake: in gets on one connection"] = rest / rows["get on one connection: ms"]
    kibibytes, share = idle_follows(quiet, given.follows, 10, True)
    rows["followed log without output, HTTP/2: KiB"] = kibibytes
    rows["followed logs without output: share of a processor"] = share
    return rows


if __name__ == "__main__":
    main()
