// A kine for tests: kine's server, which accepts only Kubernetes' transactions, with a store in memory or in SQLite,
// which most users of kine have. This program compiles only these two drivers; kine's own program has the drivers of
// all its databases.
package main

import (
	"context"
	"log"
	"net"
	"os"
	"sync"
	"time"

	"github.com/k3s-io/kine/pkg/drivers"
	"github.com/k3s-io/kine/pkg/drivers/generic"
	"github.com/k3s-io/kine/pkg/drivers/memory"
	"github.com/k3s-io/kine/pkg/drivers/sqlite"
	"github.com/k3s-io/kine/pkg/server"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// The release of etcd that this program reports, which is the same as in kine's own program.
const emulated = "3.5.13"

// usage: kine ADDRESS [FILE]     FILE: the database of SQLite
func main() {
	listener, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	backend, err := store(ctx, os.Args[2:])
	if err != nil {
		log.Fatal(err)
	}
	if err := backend.Start(ctx); err != nil {
		log.Fatal(err)
	}
	pings := keepalive.EnforcementPolicy{MinTime: 5 * time.Second}
	answering := grpc.NewServer(grpc.KeepaliveEnforcementPolicy(pings), grpc.MaxRecvMsgSize(4<<20))
	server.New(backend, "http", 5*time.Second, emulated).Register(answering)
	log.Fatal(answering.Serve(listener))
}

func store(ctx context.Context, files []string) (server.Backend, error) {
	if len(files) == 0 {
		_, backend, err := memory.New(ctx, &sync.WaitGroup{}, &drivers.Config{})
		return backend, err
	}
	// These are the defaults of kine's own program, except that fewer revisions are kept after a compaction. The
	// program does not compact by itself.
	config := drivers.Config{
		DataSourceName:       files[0] + "?" + sqlite.DefaultParams,
		ConnectionPoolConfig: generic.ConnectionPoolConfig{},
		CompactTimeout:       5 * time.Second,
		CompactMinRetain:     10,
		CompactBatchSize:     1000,
		PollBatchSize:        500,
		PollInterval:         time.Second,
	}
	_, backend, err := sqlite.New(ctx, &sync.WaitGroup{}, &config)
	return backend, err
}
