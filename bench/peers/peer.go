package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/bench/internal/load"
)

// Setup is what a peer is opened with.
type Setup struct {
	Redis string        // address of the server
	Etcd  string        // URL of etcd, for the peer that needs it
	Lease time.Duration // how long a crashed holder blocks the others
}

// Locker is one client of a peer, as a process of an application has. A Locker is safe for concurrent use, also for
// several waiters on one name.
type Locker interface {
	// Lock waits for the lock of that name until ctx ends. The hold outlives ctx.
	Lock(ctx context.Context, name string) (load.Release, error)
	Close()
}

// Workloads.
const (
	uncontended = "uncontended"
	contended   = "contended"
	impatient   = "impatient"
	claiming    = "claims"
	limiting    = "limits"
	clustered   = "in a Cluster of three"
)

// Peer is one way to do the work of some workloads.
type Peer struct {
	Name      string
	Module    string // its version is reported
	How       string // settings
	Workloads []string
	Open      func(ctx context.Context, s Setup) (Locker, error)
}

// The workloads of a lock whose callers wait, of one whose callers can also give up, and of one that runs in a Cluster,
// too.
var (
	waits     = []string{uncontended, contended}
	givesUp   = []string{uncontended, contended, impatient}
	inCluster = []string{uncontended, contended, impatient, clustered}
)

const (
	here  = "github.com/redlatch/redlatch"
	etcd  = "etcd"
	lower = "raw SET NX"
)

// floors has the peer from which a workload's ratios are counted.
var floors = map[string]string{
	uncontended: lower, contended: lower, impatient: lower, clustered: lower, claiming: "raw INCR", limiting: "raw script",
}

var peers = slices.Concat(lockPeers, claimPeers, limitPeers)

func peerNamed(name string) (Peer, error) {
	names := make([]string, len(peers))
	for i, p := range peers {
		if p.Name == name {
			return p, nil
		}
		names[i] = p.Name
	}
	return Peer{}, fmt.Errorf("no peer %q; there are: %s", name, strings.Join(names, "; "))
}

// setting is one way to measure a workload.
type setting struct {
	Workload           string
	Processes, Workers int           // Workers: in all processes together
	Patience           time.Duration // of an impatient caller: half to one and a half of it
}

var settings = []setting{
	{uncontended, 1, 1, 0}, {uncontended, 1, 64, 0},
	{contended, 8, 16, 0}, {contended, 8, 64, 0},
	{impatient, 4, 64, 5 * time.Millisecond}, {impatient, 4, 64, 20 * time.Millisecond},
	{clustered, 1, 64, 0}, {clustered, 2, 64, 0}, {clustered, 4, 64, 0}, {clustered, 8, 64, 0},
	{claiming, 1, 1, 0}, {claiming, 1, 256, 0},
	{limiting, 1, 1, 0}, {limiting, 1, 64, 0},
}

func (s setting) String() string {
	switch {
	case s.Patience > 0:
		return fmt.Sprintf("%d callers in %d processes, %v", s.Workers, s.Processes, s.Patience)
	case s.Processes > 1:
		return fmt.Sprintf("%d workers in %d processes", s.Workers, s.Processes)
	case s.Workers == 1:
		return "1 goroutine"
	}
	return fmt.Sprintf("%d goroutines", s.Workers)
}

// queued reports whether all workers want one lock.
func (s setting) queued() bool { return s.Workload == contended || s.Workload == impatient }

// calls is a Locker of claims and limits: Lock is one whole operation, and there is nothing to release.
type calls struct {
	do    func(ctx context.Context, n int64) error // n is another number for each call
	check func(ctx context.Context, done int64) error
	close func()

	next, done, failed atomic.Int64
}

func (c *calls) Lock(ctx context.Context, _ string) (load.Release, error) {
	if err := c.do(ctx, c.next.Add(1)); err != nil {
		c.failed.Add(1)
		return nil, err
	}
	c.done.Add(1)
	return func(context.Context) error { return nil }, nil
}

func (c *calls) Close() { c.close() }

// broken compares the number of calls with the count of the server. After an error the two may differ.
func (c *calls) broken(ctx context.Context) error {
	if c.check == nil || c.failed.Load() > 0 {
		return nil
	}
	return c.check(ctx, c.done.Load())
}
