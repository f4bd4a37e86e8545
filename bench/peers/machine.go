package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/redistest"
)

// redisServer is a private redis-server on loopback.
type redisServer struct {
	addr   string
	end    func()
	client rueidis.Client // of this program: one connection
}

func startRedis() (*redisServer, error) {
	if _, err := redistest.Program(); err != nil {
		return nil, errors.New("no redis-server in PATH; install one (the peers need tracking and Pub/Sub of a real one)")
	}
	server, end, err := redistest.Launch(func(host, port, dir string) []string {
		return []string{"--port", port, "--bind", host, "--dir", dir, "--save", "", "--appendonly", "no",
			"--logfile", filepath.Join(dir, "log")}
	})
	if err != nil {
		return nil, err
	}
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: server.Addrs, ForceSingleClient: true,
		DisableCache: true, PipelineMultiplex: -1})
	if err != nil {
		end()
		return nil, err
	}
	return &redisServer{server.Addr(), end, c}, nil
}

func (s *redisServer) stop() {
	s.client.Close()
	s.end()
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
