package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/redlatch/redlatch/internal/redistest"
)

// server is the Redis of the shop.
type server interface {
	addr() string
	// restart ends the server without warning, and starts it again after down, with all that it had answered for.
	restart(ctx context.Context, down time.Duration) error
	close()
}

// startServer starts the server that the options ask for; dir is for its data.
func startServer(o options, dir string) (server, error) {
	addr, err := redistest.FreeAddr()
	if err != nil {
		return nil, err
	}
	if !o.redisServer {
		e := &embedded{miniredis.NewMiniRedis(), addr}
		e.m.ClockTTL(true)
		return e, e.m.StartAddr(addr)
	}
	bin, err := redistest.Program()
	if err != nil {
		return nil, fmt.Errorf("-redis-server: %w", err)
	}
	p := &process{bin: bin, at: addr, dir: dir}
	return p, p.start()
}

// embedded is a server inside this process. Its data stay in memory while it does not listen.
type embedded struct {
	m  *miniredis.Miniredis
	at string
}

func (e *embedded) addr() string { return e.at }
func (e *embedded) close()       { e.m.Close() }

func (e *embedded) restart(ctx context.Context, down time.Duration) error {
	e.m.Close()
	pause(ctx, down)
	return e.m.StartAddr(e.at)
}

// process is a redis-server of its own, which writes every change to disk before it answers (appendfsync always): what
// it has said survives a kill.
type process struct {
	bin, at, dir string
	cmd          *exec.Cmd
}

func (p *process) start() error {
	host, port, _ := net.SplitHostPort(p.at)
	log := filepath.Join(p.dir, "redis.log")
	p.cmd = exec.Command(p.bin, "--bind", host, "--port", port, "--dir", p.dir, "--save", "", "--logfile", log,
		"--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction")
	if err := p.cmd.Start(); err != nil {
		return err
	}
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if c, err := net.DialTimeout("tcp", p.at, time.Second); err == nil {
			return c.Close()
		}
	}
	p.close()
	text, _ := os.ReadFile(log)
	return fmt.Errorf("%s does not listen on %s: %s", p.bin, p.at, text)
}

func (p *process) addr() string { return p.at }

func (p *process) close() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

func (p *process) restart(ctx context.Context, down time.Duration) error {
	p.close()
	pause(ctx, down)
	return p.start()
}
