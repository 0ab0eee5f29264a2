#!/usr/bin/env python3
"""An example of a cloud for Holdfast: a provider that keeps everything in memory.

    pip install grpcio grpcio-tools
    ./provider.py unix:///run/cloud.sock --node a --node b
    holdfast cloud-controller-manager --cloud-provider external --cloud-config cloud.yaml ...

with a file cloud.yaml that contains `endpoint: unix:///run/cloud.sock`. A real provider calls its cloud's API where
this provider looks into dictionaries. docs/CLOUDS.md describes the rules for each call.
"""

import argparse
import ipaddress
import os
import signal
import sys
import threading
from concurrent import futures

import grpc

# The messages are generated from the .proto file at the start. The file is in the repository, or beside this program.
HERE = os.path.dirname(os.path.abspath(__file__))
PROTO = os.path.normpath(os.path.join(HERE, "..", "..", "..", "components", "cloud-controller", "proto"))
sys.path.insert(0, PROTO if os.path.exists(os.path.join(PROTO, "cloud.proto")) else HERE)
messages, services = grpc.protos_and_services("cloud.proto")

VERSION = "v1"


class Cloud(services.CloudServicer):
    def __init__(self, name, nodes, pool):
        self.name = name
        self.lock = threading.Lock()
        self.instances = {node: messages.Instance(provider_id=f"{name}://{node}", type="example.small") for node in nodes}
        self.free = [str(address) for address in ipaddress.ip_network(pool).hosts()]
        self.balancers = {}
        self.routes = {}
        self.clusters = {}

    def Hello(self, request, context):
        if VERSION not in request.versions:
            problem = f"this provider supports {VERSION}, not {list(request.versions)}"
            context.abort(grpc.StatusCode.UNIMPLEMENTED, problem)
        return messages.HelloResponse(
            version=VERSION, provider=self.name, instances=True, balancers=True, routes=True, clusters=True
        )

    def GetInstance(self, request, context):
        node = request.node
        with self.lock:
            for name, instance in self.instances.items():
                if instance.provider_id == node.provider_id or (not node.provider_id and name == node.name):
                    return instance
        context.abort(grpc.StatusCode.NOT_FOUND, "instance not found")

    def EnsureBalancer(self, request, context):
        with self.lock:
            self.claim(request.cluster, context)
            known = self.balancers.get(request.name)
            if known is None:
                if not self.free:
                    context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "no address is left")
                known = self.free.pop(0)
            self.balancers[request.name] = known
            print(f"balancer {request.name} at {known}: {len(request.hosts)} hosts", flush=True)
            ingress = messages.Ingress(ip=known, ip_mode="VIP")
            return messages.Balancer(name=request.name, cluster=request.cluster, ingress=[ingress])

    def UpdateHosts(self, request, context):
        with self.lock:
            self.claim(request.cluster, context)
            if request.name not in self.balancers:
                context.abort(grpc.StatusCode.NOT_FOUND, f"there is no balancer {request.name}")
            print(f"balancer {request.name}: {len(request.hosts)} hosts", flush=True)
        return messages.Done()

    def DeleteBalancer(self, request, context):
        with self.lock:
            self.claim(request.cluster, context)
            address = self.balancers.pop(request.name, None)
            if address is not None:
                self.free.append(address)
                print(f"balancer {request.name} deleted", flush=True)
        return messages.Done()

    def ListRoutes(self, request, context):
        with self.lock:
            return messages.ListRoutesResponse(routes=list(self.routes.values()))

    def CreateRoute(self, request, context):
        with self.lock:
            self.claim(request.cluster, context)
            known = self.routes.get(request.route.destination)
            if known is not None and (known.node, known.cluster) != (request.route.node, request.route.cluster):
                context.abort(grpc.StatusCode.ALREADY_EXISTS, f"a route to {known.destination} leads to {known.node}")
            self.routes[request.route.destination] = request.route
        return messages.Done()

    def DeleteRoute(self, request, context):
        with self.lock:
            self.claim(request.cluster, context)
            known = self.routes.get(request.route.destination)
            if known is not None and known.node == request.route.node:
                del self.routes[request.route.destination]
        return messages.Done()

    def ListClusters(self, request, context):
        with self.lock:
            clusters = [messages.Cluster(name=name, uid=uid) for name, uid in self.clusters.items()]
        return messages.ListClustersResponse(clusters=clusters)

    def claim(self, cluster, context):
        """Checks that no other cluster has this cluster's name, and reserves the name."""
        if self.clusters.setdefault(cluster.name, cluster.uid) != cluster.uid:
            context.abort(grpc.StatusCode.ALREADY_EXISTS, f"the name {cluster.name} belongs to another cluster")


def read(path):
    with open(path, "rb") as file:
        return file.read()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("endpoint", help="where to listen: unix:///PATH or HOST:PORT")
    parser.add_argument("--name", default="example", help="the scheme of the nodes' provider IDs: NAME://NODE")
    parser.add_argument("--node", action="append", default=[], help="a node that has an instance; may be repeated")
    parser.add_argument("--addresses", default="192.0.2.0/24", help="the range of the balancers' addresses")
    parser.add_argument("--certificate", help="serve over TLS, with this certificate in PEM")
    parser.add_argument("--key", help="the private key of the certificate, in PEM")
    parser.add_argument("--client-ca", help="require client certificates of this authority, in PEM")
    options = parser.parse_args()
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
    services.add_CloudServicer_to_server(Cloud(options.name, options.node, options.addresses), server)
    if options.certificate:
        pair = (read(options.key), read(options.certificate))
        authority = read(options.client_ca) if options.client_ca else None
        secured = grpc.ssl_server_credentials([pair], authority, authority is not None)
        server.add_secure_port(options.endpoint, secured)
    else:
        server.add_insecure_port(options.endpoint)
    server.start()
    print("ready", flush=True)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: server.stop(1))
    server.wait_for_termination()


if __name__ == "__main__":
    main()
