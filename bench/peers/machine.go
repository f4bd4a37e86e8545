package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/redistest"
)

// redisServer is a private redis-server on loopback, or a Cluster of three without replicas.
type redisServer struct {
	addr  string // of the first node
	nodes []rueidis.Client
	ends  []func()
}

func startRedis(ctx context.Context, nodes int) (s *redisServer, err error) {
	if _, err := redistest.Program(); err != nil {
		return nil, errors.New("no redis-server in PATH; install one (the peers need tracking and Pub/Sub of a real one)")
	}
	s = &redisServer{}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	var addrs, busPorts []string
	for range nodes {
		var clusterArgs []string
		if nodes > 1 {
			bus, err := redistest.FreeAddr()
			if err != nil {
				return s, err
			}
			host, port, err := net.SplitHostPort(bus)
			if err != nil {
				return s, err
			}
			busPorts = append(busPorts, port)
			clusterArgs = []string{"--cluster-enabled", "yes", "--cluster-announce-ip", host, "--cluster-port", port,
				"--cluster-node-timeout", "5000"}
		}
		server, end, err := redistest.Launch(func(host, port, dir string) []string {
			return append([]string{"--port", port, "--bind", host, "--dir", dir, "--save", "", "--appendonly", "no",
				"--logfile", filepath.Join(dir, "log")}, clusterArgs...)
		})
		if err != nil {
			return s, err
		}
		s.ends = append(s.ends, end)
		client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: server.Addrs, ForceSingleClient: true,
			DisableCache: true, PipelineMultiplex: -1})
		if err != nil {
			return s, err
		}
		s.nodes, addrs = append(s.nodes, client), append(addrs, server.Addr())
	}
	s.addr = addrs[0]
	if nodes > 1 {
		err = s.formCluster(ctx, addrs, busPorts)
	}
	return s, err
}

// formCluster divides the slots among the nodes, introduces them to each other, and waits until all serve.
func (s *redisServer) formCluster(ctx context.Context, addrs, busPorts []string) error {
	const slots = 16384
	for i, node := range s.nodes {
		host, port, err := net.SplitHostPort(addrs[i])
		if err != nil {
			return err
		}
		first, last := slots*i/len(s.nodes), slots*(i+1)/len(s.nodes)-1
		for _, command := range [][]string{
			{"SET-CONFIG-EPOCH", strconv.Itoa(i + 1)},
			{"ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last)},
		} {
			if err := node.Do(ctx, node.B().Arbitrary("CLUSTER").Args(command...).Build()).Error(); err != nil {
				return err
			}
		}
		meet := s.nodes[0].B().Arbitrary("CLUSTER").Args("MEET", host, port, busPorts[i]).Build()
		if err := s.nodes[0].Do(ctx, meet).Error(); err != nil {
			return err
		}
	}
	for _, node := range s.nodes {
		if err := awaitCluster(ctx, node, len(s.nodes)); err != nil {
			return err
		}
	}
	return nil
}

// awaitCluster waits until a node serves, and knows that many nodes.
func awaitCluster(ctx context.Context, node rueidis.Client, nodes int) error {
	known := fmt.Sprintf("cluster_known_nodes:%d", nodes)
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		info, err := node.Do(ctx, node.B().Arbitrary("CLUSTER", "INFO").Build()).ToString()
		switch {
		case err != nil:
			return err
		case strings.Contains(info, "cluster_state:ok") && strings.Contains(info, known):
			return nil
		case time.Since(begun) > patience:
			return fmt.Errorf("the Cluster does not form: %s", info)
		}
	}
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

func (s *redisServer) stop() {
	for _, node := range s.nodes {
		node.Close()
	}
	for _, end := range s.ends {
		end()
	}
}

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
