package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/redistest"
)

// redisServer is a private redis-server on loopback, or a Cluster of three without replicas.
type redisServer struct {
	addr  string // of the first node
	nodes []rueidis.Client
	stage redistest.Stage
}

func startRedis(inCluster bool) (s *redisServer, err error) {
	if _, err := redistest.Program(); err != nil {
		return nil, errors.New("no redis-server in PATH; install one (the peers need tracking and Pub/Sub of a real one)")
	}
	s = &redisServer{}
	err = s.stage.Try(func() {
		server := redistest.Cluster
		if !inCluster {
			server = func(t testing.TB) *redistest.Server { return redistest.Start(t) }
		}
		for _, addr := range server(&s.stage).Addrs {
			client, err := oneConnection(addr)
			redistest.Must(err)
			s.stage.Cleanup(client.Close)
			s.nodes = append(s.nodes, client)
			s.addr = cmp.Or(s.addr, addr)
		}
	})
	if err != nil {
		s.stop()
	}
	return s, err
}

// oneConnection returns a client with one connection, for commands beside the peers'.
func oneConnection(addr string) (rueidis.Client, error) {
	return rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true, DisableCache: true,
		PipelineMultiplex: -1})
}

// calls returns how often the nodes have run each command.
func (s *redisServer) calls(ctx context.Context) (redistest.Calls, error) {
	all := redistest.Calls{}
	for _, node := range s.nodes {
		calls, err := redistest.CallsOf(ctx, node)
		if err != nil {
			return nil, err
		}
		for name, n := range calls {
			all[name] += n
		}
	}
	return all, nil
}

func (s *redisServer) stop() { s.stage.Clear() }

// facts are what the figures depend on.
func facts(ctx context.Context, steps []step) ([]fact, error) {
	program, err := redistest.Program()
	if err != nil {
		return nil, err
	}
	server, version, err := redistest.VersionOf(program)
	if err != nil {
		return nil, err
	}
	commit, err := exec.CommandContext(ctx, "git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	out := []fact{
		{"date", time.Now().UTC().Format("2006-01-02 15:04 UTC")},
		{"machine", fmt.Sprintf("%d processors, %s/%s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)},
		{"go", runtime.Version()},
		{"server", server + " " + version + ", a new one for each measurement, on the same machine, no persistence"},
		{"redlatch", "commit " + strings.TrimSpace(string(commit))},
		{"load before", loadAverage()},
	}
	versions := map[string]string{here: "this repository"}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if d.Path != here {
				versions[d.Path] = d.Version
			}
		}
	}
	for _, p := range peers {
		if slices.ContainsFunc(steps, func(s step) bool { return s.peer.Name == p.Name }) {
			out = append(out, fact{"peer " + p.Name, p.Module + " " + versions[p.Module] + "; " + p.How})
		}
	}
	return out, nil
}

func loadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(b))[:3], " ")
}
