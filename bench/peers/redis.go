package main

import (
	"context"
	"errors"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/bench/internal/load"
	"github.com/redlatch/redlatch/internal/redistest"
)

// redisServer is a private redis-server on loopback. Every measurement has a new one, so that nothing of the last
// peer is left.
type redisServer struct {
	addr   string
	end    func()
	client rueidis.Client // of the harness: one connection
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
	s := &redisServer{addr: server.Addr(), end: end}
	s.client, err = rueidis.NewClient(rueidis.ClientOption{
		InitAddress: server.Addrs, ForceSingleClient: true, DisableCache: true, PipelineMultiplex: -1,
	})
	if err != nil {
		end()
		return nil, err
	}
	return s, nil
}

func (s *redisServer) stop() {
	s.client.Close()
	s.end()
}

func (s *redisServer) usage(ctx context.Context) (load.Usage, error) {
	return load.ServerUsage(ctx, s.client)
}

// connections is how many clients are connected, the harness's own not counted.
func (s *redisServer) connections(ctx context.Context) (int64, error) {
	text, err := s.client.Do(ctx, s.client.B().Info().Section("clients").Build()).ToString()
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "connected_clients:"); ok {
			n, err := strconv.ParseInt(v, 10, 64)
			return n - 1, err
		}
	}
	return 0, errors.New("INFO clients has no connected_clients")
}

func (s *redisServer) version(ctx context.Context) string {
	text, _ := s.client.Do(ctx, s.client.B().Info().Section("server").Build()).ToString()
	for line := range strings.Lines(text) {
		for _, name := range []string{"valkey_version:", "redis_version:"} {
			if v, ok := strings.CutPrefix(strings.TrimSpace(line), name); ok {
				return strings.TrimSuffix(name, "_version:") + " " + v
			}
		}
	}
	return "unknown"
}
