package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/redlatch/redlatch/internal/chaos/cells"
	"github.com/redlatch/redlatch/internal/redistest"
)

var etcdLibrary = cells.Library{
	Name: "etcd", Module: "go.etcd.io/etcd/client/v3",
	How:     "one server of its own, `concurrency.NewSession(WithTTL)` for each worker, `NewMutex`, `Lock`, `Unlock`",
	Reports: "`Session.Done`",
	Start:   startEtcd,
	Open:    openEtcd,
}

type etcdLocker struct {
	client *clientv3.Client
	ttl    int

	mu   sync.Mutex
	idle []*concurrency.Session // a mutex is the session's: each worker has one
}

func dialEtcd(addr string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{"http://" + addr}, DialTimeout: 5 * time.Second,
		Logger: zap.NewNop()})
}

func openEtcd(_ context.Context, s cells.Setup) (cells.Locker, error) {
	c, err := dialEtcd(s.By(s.Addrs[0]))
	if err != nil {
		return nil, err
	}
	return &etcdLocker{client: c, ttl: int(s.Lease / time.Second)}, nil
}

func (l *etcdLocker) Close() { l.client.Close() }

func (l *etcdLocker) session(ctx context.Context) (*concurrency.Session, error) {
	l.mu.Lock()
	for n := len(l.idle); n > 0; n = len(l.idle) {
		s := l.idle[n-1]
		l.idle = l.idle[:n-1]
		select {
		case <-s.Done():
		default:
			l.mu.Unlock()
			return s, nil
		}
	}
	l.mu.Unlock()
	in, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	lease, err := l.client.Grant(in, int64(l.ttl)) // with a deadline, which NewSession has only for its whole life
	if err != nil {
		return nil, err
	}
	return concurrency.NewSession(l.client, concurrency.WithTTL(l.ttl), concurrency.WithLease(lease.ID))
}

func (l *etcdLocker) Lock(ctx context.Context, name string) (cells.Held, error) {
	s, err := l.session(ctx)
	if err != nil {
		return nil, err
	}
	m := concurrency.NewMutex(s, name)
	if err := m.Lock(ctx); err != nil {
		s.Orphan() // what it has queued goes with its lease
		return nil, err
	}
	return &etcdHold{l, s, m}, nil
}

type etcdHold struct {
	locker  *etcdLocker
	session *concurrency.Session
	mutex   *concurrency.Mutex
}

func (h *etcdHold) Held() bool {
	select {
	case <-h.session.Done():
		return false
	default:
		return true
	}
}

// Token is the revision at which it was acquired: that of each later holder is greater.
func (h *etcdHold) Token() (token int64, ok bool) { return h.mutex.Header().Revision, true }

func (h *etcdHold) Lost() <-chan struct{} { return h.session.Done() }

func (h *etcdHold) Release(ctx context.Context) error {
	if err := h.mutex.Unlock(ctx); err != nil {
		h.session.Orphan()
		return err
	}
	h.locker.mu.Lock()
	h.locker.idle = append(h.locker.idle, h.session)
	h.locker.mu.Unlock()
	return nil
}

// etcdEnv makes this program a server of etcd: its directory and its addresses.
const etcdEnv = "REDLATCH_RIVALS_ETCD"

// etcdServer is a server in a process of its own.
type etcdServer struct {
	dir, client, peer string
	cmd               *exec.Cmd
	in                io.Closer
}

func startEtcd(t testing.TB) cells.Server {
	s := &etcdServer{}
	var err error
	if s.dir, err = os.MkdirTemp("", "rivals-etcd-"); err != nil {
		t.Fatalf("etcd: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(s.dir) })
	for _, a := range []*string{&s.client, &s.peer} {
		if *a, err = redistest.FreeAddr(); err != nil {
			t.Fatalf("etcd: %v", err)
		}
	}
	s.Revive(t)
	t.Cleanup(func() { s.end() })
	return s
}

func (s *etcdServer) Addr() string { return s.client }

func (s *etcdServer) signal(sig os.Signal)   { s.cmd.Process.Signal(sig) }
func (s *etcdServer) Pause(testing.TB)       { s.signal(syscall.SIGSTOP) }
func (s *etcdServer) Resume(testing.TB)      { s.signal(syscall.SIGCONT) }
func (s *etcdServer) Kill(testing.TB)        { s.end() }
func (s *etcdServer) end()                   { s.signal(syscall.SIGKILL); s.cmd.Wait(); s.in.Close() }
func (s *etcdServer) url(a string) []url.URL { return []url.URL{{Scheme: "http", Host: a}} }

// Revive starts the process, and returns when it answers.
func (s *etcdServer) Revive(t testing.TB) {
	self, err := os.Executable()
	if err != nil {
		t.Fatalf("etcd: %v", err)
	}
	s.cmd = exec.Command(self)
	s.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %s", etcdEnv, s.dir, s.client, s.peer))
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		t.Fatalf("etcd: %v", err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatalf("etcd: %v", err)
	}
	redistest.Eventually(t, time.Minute, "etcd answers", func() bool {
		return s.ask(func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.Get(ctx, "any")
			return err
		}) == nil
	})
}

// Wipe deletes all keys.
func (s *etcdServer) Wipe(t testing.TB) {
	if err := s.ask(func(ctx context.Context, c *clientv3.Client) error {
		_, err := c.Delete(ctx, "\x00", clientv3.WithFromKey())
		return err
	}); err != nil {
		t.Fatalf("etcd: %v", err)
	}
}

func (s *etcdServer) ask(f func(ctx context.Context, c *clientv3.Client) error) error {
	c, err := dialEtcd(s.client)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return f(ctx, c)
}

// serveEtcd is the main function of a server. It ends with its input.
func serveEtcd(order string) error {
	s := &etcdServer{}
	if _, err := fmt.Sscan(order, &s.dir, &s.client, &s.peer); err != nil {
		return err
	}
	cfg := embed.NewConfig()
	cfg.Dir, cfg.LogLevel = s.dir, "panic"
	// Its leases are at least 1.5 elections long, in whole seconds.
	cfg.TickMs, cfg.ElectionMs = 30, 300
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = s.url(s.client), s.url(s.client)
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = s.url(s.peer), s.url(s.peer)
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	defer e.Close()
	select {
	case <-e.Server.ReadyNotify():
	case <-time.After(time.Minute):
		return errors.New("etcd is not ready after a minute")
	}
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	return <-e.Err()
}
