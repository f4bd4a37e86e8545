package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/bench/internal/load"
)

// redisServer is a private redis-server on loopback. Every measurement has a new one, so that nothing of the last
// peer is left.
type redisServer struct {
	addr   string
	dir    string
	cmd    *exec.Cmd
	exited chan struct{}
	client rueidis.Client // of the harness: one connection
}

func startRedis() (*redisServer, error) {
	bin, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, errors.New("no redis-server in PATH; install one (the peers need tracking and Pub/Sub of a real one)")
	}
	for try := 0; ; try++ {
		s, err := launchRedis(bin)
		if err == nil || try == 4 { // another process may take the port between our look and the server's bind
			return s, err
		}
	}
}

func launchRedis(bin string) (*redisServer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := l.Addr().String()
	l.Close()
	dir, err := os.MkdirTemp("", "bench-redis-")
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(addr)
	s := &redisServer{addr: addr, dir: dir, exited: make(chan struct{})}
	s.cmd = exec.Command(bin, "--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "no",
		"--logfile", filepath.Join(dir, "log"))
	s.cmd.SysProcAttr = ownGroup()
	if err := s.cmd.Start(); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	go func() { s.cmd.Wait(); close(s.exited) }()
	for end := time.Now().Add(10 * time.Second); ; {
		s.client, err = rueidis.NewClient(rueidis.ClientOption{
			InitAddress: []string{addr}, ForceSingleClient: true, DisableCache: true, PipelineMultiplex: -1,
		})
		if err == nil {
			// whoever answers there must be ours
			info, err := s.client.Do(context.Background(), s.client.B().Info().Section("server").Build()).ToString()
			if err == nil && strings.Contains(info, "process_id:"+strconv.Itoa(s.cmd.Process.Pid)+"\r\n") {
				return s, nil
			}
			s.client.Close()
		}
		select {
		case <-s.exited:
			log, _ := os.ReadFile(filepath.Join(dir, "log"))
			os.RemoveAll(dir)
			return nil, fmt.Errorf("redis-server ended at once: %s", log)
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(end) {
			s.client = nil
			s.stop()
			return nil, fmt.Errorf("redis-server on %s does not answer", addr)
		}
	}
}

func (s *redisServer) stop() {
	if s.client != nil {
		s.client.Close()
	}
	s.cmd.Process.Kill()
	<-s.exited
	os.RemoveAll(s.dir)
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
