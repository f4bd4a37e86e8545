package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/redlatch/redlatch/bench/internal/load"
	"github.com/redlatch/redlatch/internal/redistest"
)

// etcdLocker is a reference from another family: consensus on three machines is what etcd is for, and here it is one.
type etcdLocker struct {
	client *clientv3.Client
	ttl    int

	mu       sync.Mutex
	sessions []*etcdSession
}

// etcdSession is one lease and the names that are locked or waited for under it. No name may be there twice: etcd would
// let both in.
type etcdSession struct {
	*concurrency.Session
	names map[string]bool
}

func openEtcd(_ context.Context, s Setup) (Locker, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Etcd}, DialTimeout: 5 * time.Second,
		Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	l := &etcdLocker{client: c, ttl: max(int(s.Lease/time.Second), 1)}
	session, err := l.take("")
	if err != nil {
		c.Close()
		return nil, err
	}
	l.put(session, "")
	return l, nil
}

func (l *etcdLocker) take(name string) (*etcdSession, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.sessions {
		if !s.names[name] {
			s.names[name] = true
			return s, nil
		}
	}
	session, err := concurrency.NewSession(l.client, concurrency.WithTTL(l.ttl))
	if err != nil {
		return nil, err
	}
	s := &etcdSession{session, map[string]bool{name: true}}
	l.sessions = append(l.sessions, s)
	return s, nil
}

func (l *etcdLocker) put(s *etcdSession, name string) {
	l.mu.Lock()
	delete(s.names, name)
	l.mu.Unlock()
}

func (l *etcdLocker) Lock(ctx context.Context, name string) (load.Release, error) {
	s, err := l.take(name)
	if err != nil {
		return nil, err
	}
	m := concurrency.NewMutex(s.Session, name)
	if err := m.Lock(ctx); err != nil {
		l.put(s, name)
		return nil, err
	}
	return func(ctx context.Context) error {
		defer l.put(s, name)
		return m.Unlock(ctx)
	}, nil
}

func (l *etcdLocker) Close() { l.client.Close() }

// serveEtcd runs a node of its own on loopback until stop is closed. Its log is kept in memory where the system has a
// folder for that, so that no disk is measured.
func serveEtcd(ready func(endpoint string) error, stop <-chan struct{}) error {
	dir, err := os.MkdirTemp(memoryDir(), "bench-etcd-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	cfg := embed.NewConfig()
	cfg.Dir, cfg.LogLevel = dir, "panic"
	client, err := freeURL()
	if err != nil {
		return err
	}
	peer, err := freeURL()
	if err != nil {
		return err
	}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	defer e.Close()
	select {
	case <-e.Server.ReadyNotify():
	case <-time.After(20 * time.Second):
		return fmt.Errorf("etcd is not ready after 20 s")
	}
	if err := ready(client.String()); err != nil {
		return err
	}
	select {
	case <-stop:
		return nil
	case err := <-e.Err():
		return err
	}
}

func memoryDir() string {
	if i, err := os.Stat("/dev/shm"); err == nil && i.IsDir() {
		return "/dev/shm"
	}
	return ""
}

func freeURL() (url.URL, error) {
	addr, err := redistest.FreeAddr()
	return url.URL{Scheme: "http", Host: addr}, err
}
