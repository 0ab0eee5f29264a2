// An example of a cloud for Holdfast: a provider that keeps everything in memory.
//
//	go run . -listen unix:///run/cloud.sock -nodes a,b
//	holdfast cloud-controller-manager --cloud-provider external --cloud-config cloud.yaml ...
//
// with a file cloud.yaml that contains `endpoint: unix:///run/cloud.sock`. A real provider calls its cloud's API where
// this provider looks into maps. docs/CLOUDS.md describes the rules for each call.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"holdfast.dev/cloud/example/cloudv1"
)

const version = "v1"

type cloud struct {
	cloudv1.UnimplementedCloudServer

	name string

	mutex     sync.Mutex
	instances map[string]*cloudv1.Instance
	next      int
	balancers map[string]string
	routes    map[string]*cloudv1.Route
	clusters  map[string]string
}

func (c *cloud) Hello(_ context.Context, request *cloudv1.HelloRequest) (*cloudv1.HelloResponse, error) {
	for _, known := range request.Versions {
		if known == version {
			return &cloudv1.HelloResponse{
				Version: version, Provider: c.name, Instances: true, Balancers: true, Routes: true, Clusters: true,
			}, nil
		}
	}
	return nil, status.Errorf(codes.Unimplemented, "this provider supports %s, not %v", version, request.Versions)
}

func (c *cloud) GetInstance(_ context.Context, request *cloudv1.NodeRequest) (*cloudv1.Instance, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	node := request.GetNode()
	for name, instance := range c.instances {
		if instance.ProviderId == node.GetProviderId() || node.GetProviderId() == "" && name == node.GetName() {
			return instance, nil
		}
	}
	return nil, status.Error(codes.NotFound, "instance not found")
}

func (c *cloud) EnsureBalancer(_ context.Context, request *cloudv1.BalancerRequest) (*cloudv1.Balancer, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if err := c.claim(request.GetCluster()); err != nil {
		return nil, err
	}
	address, known := c.balancers[request.Name]
	if !known {
		if c.next == 254 {
			return nil, status.Error(codes.ResourceExhausted, "no address is left")
		}
		c.next++
		address = fmt.Sprintf("192.0.2.%d", c.next)
		c.balancers[request.Name] = address
	}
	ingress := []*cloudv1.Ingress{{Ip: address, IpMode: "VIP"}}
	return &cloudv1.Balancer{Name: request.Name, Cluster: request.Cluster, Ingress: ingress}, nil
}

func (c *cloud) UpdateHosts(_ context.Context, request *cloudv1.BalancerRequest) (*cloudv1.Done, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if err := c.claim(request.GetCluster()); err != nil {
		return nil, err
	}
	if _, known := c.balancers[request.Name]; !known {
		return nil, status.Errorf(codes.NotFound, "there is no balancer %s", request.Name)
	}
	return &cloudv1.Done{}, nil
}

func (c *cloud) DeleteBalancer(_ context.Context, request *cloudv1.DeleteBalancerRequest) (*cloudv1.Done, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if err := c.claim(request.GetCluster()); err != nil {
		return nil, err
	}
	delete(c.balancers, request.Name)
	return &cloudv1.Done{}, nil
}

func (c *cloud) ListRoutes(context.Context, *cloudv1.ListRoutesRequest) (*cloudv1.ListRoutesResponse, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	answer := &cloudv1.ListRoutesResponse{}
	for _, route := range c.routes {
		answer.Routes = append(answer.Routes, route)
	}
	return answer, nil
}

func (c *cloud) CreateRoute(_ context.Context, request *cloudv1.RouteRequest) (*cloudv1.Done, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if err := c.claim(request.GetCluster()); err != nil {
		return nil, err
	}
	route := request.GetRoute()
	if known, there := c.routes[route.GetDestination()]; there && known.Node != route.GetNode() {
		return nil, status.Errorf(codes.AlreadyExists, "a route to %s leads to %s", known.Destination, known.Node)
	}
	c.routes[route.GetDestination()] = route
	return &cloudv1.Done{}, nil
}

func (c *cloud) DeleteRoute(_ context.Context, request *cloudv1.RouteRequest) (*cloudv1.Done, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if err := c.claim(request.GetCluster()); err != nil {
		return nil, err
	}
	route := request.GetRoute()
	if known, there := c.routes[route.GetDestination()]; there && known.Node == route.GetNode() {
		delete(c.routes, route.GetDestination())
	}
	return &cloudv1.Done{}, nil
}

func (c *cloud) ListClusters(context.Context, *cloudv1.ListClustersRequest) (*cloudv1.ListClustersResponse, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	answer := &cloudv1.ListClustersResponse{}
	for name, uid := range c.clusters {
		answer.Clusters = append(answer.Clusters, &cloudv1.Cluster{Name: name, Uid: uid})
	}
	return answer, nil
}

// claim checks that no other cluster has this cluster's name, and reserves the name.
func (c *cloud) claim(cluster *cloudv1.Cluster) error {
	known, there := c.clusters[cluster.GetName()]
	if there && known != cluster.GetUid() {
		return status.Errorf(codes.AlreadyExists, "the name %s belongs to another cluster", cluster.GetName())
	}
	c.clusters[cluster.GetName()] = cluster.GetUid()
	return nil
}

func main() {
	listen := flag.String("listen", "unix:///tmp/cloud.sock", "where to listen: unix:///PATH or HOST:PORT")
	name := flag.String("name", "example", "the scheme of the nodes' provider IDs: NAME://NODE")
	nodes := flag.String("nodes", "", "the nodes that have instances, separated by commas")
	flag.Parse()

	network, address := "tcp", *listen
	if path, isUnix := strings.CutPrefix(*listen, "unix://"); isUnix {
		network, address = "unix", path
	}
	listener, err := net.Listen(network, address)
	if err != nil {
		log.Fatal(err)
	}
	c := &cloud{
		name:      *name,
		instances: map[string]*cloudv1.Instance{},
		balancers: map[string]string{},
		routes:    map[string]*cloudv1.Route{},
		clusters:  map[string]string{},
	}
	for _, node := range strings.Split(*nodes, ",") {
		c.instances[node] = &cloudv1.Instance{ProviderId: *name + "://" + node, Type: "example.small"}
	}
	server := grpc.NewServer()
	cloudv1.RegisterCloudServer(server, c)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		server.GracefulStop()
	}()
	fmt.Println("ready")
	if err := server.Serve(listener); err != nil {
		log.Fatal(err)
	}
}
