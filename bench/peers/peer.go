package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/bench/internal/load"
)

// Setup is what a peer is opened with.
type Setup struct {
	Redis string        // address of the server
	Etcd  string        // URL of etcd, for the peer that needs it
	Lease time.Duration // how long a crashed holder blocks the others
	Warm  time.Duration // before anything counts, for the peer that is slow at first

	Capacity    int64         `json:",omitempty"` // of a queue
	CallTimeout time.Duration `json:",omitempty"` // of redlatch; 0: its default
}

// Locker is one client of a peer: what one process of an application would have. It is safe for concurrent use, also
// for several waiters on one name.
type Locker interface {
	// Lock waits for the lock of that name until ctx ends.
	Lock(ctx context.Context, name string) (load.Release, error)
	Close()
}

// leaser is a Locker whose leases are not what Setup asked for.
type leaser interface{ Lease() time.Duration }

// Peer is one way to lock.
type Peer struct {
	Name   string
	Module string // whose version is reported
	How    string // settings
	Wakes  string // how a waiter learns that it may go on: push, poll or spin
	Open   func(ctx context.Context, s Setup) (Locker, error)
	Etcd   bool // works on etcd
	Renews bool // renews its leases by itself
	// Optional: takes part only if it is asked for by name.
	Optional bool
	// AloneOnly: takes part only where no worker waits.
	AloneOnly bool
	// Queue is the one workload of queues in which the peer takes part; "": it takes part in the others.
	Queue string
}

// floor is the peer that the ratios of the report are counted from.
const floor = "raw scripts"

var peers = slices.Concat([]Peer{
	redlatchPeer, plainPeer, rawScripts, rawSetNX, permitPeer, rawPermit,
	rueidislockTuned, rueidislockDefault,
	redsyncGoRedis, redsyncRueidis,
	redislock1ms, redislock100ms,
	goRedisson, etcdPeer,
	redissonPeer, redissonDriver,
}, queuePeers)

// in reports whether the peer takes part in a workload.
func (p Peer) in(workload string) bool {
	if workload == impatient {
		return len(givesUp[p.Name]) > 0
	}
	return p.Queue == workload || p.Queue == "" && queues[workload].workers == 0 || p.Etcd && workload == inOrder
}

func peerNamed(name string) (Peer, error) {
	for _, p := range peers {
		if p.Name == name {
			return p, nil
		}
	}
	names := make([]string, len(peers))
	for i, p := range peers {
		names[i] = p.Name
	}
	return Peer{}, fmt.Errorf("no peer %q; there are: %s", name, strings.Join(names, ", "))
}
