package script

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// lone decides which calls are made on a connection where calls never meet.
//
// rueidis begins to pipeline on a connection as soon as two calls meet on it, and never ends: from then on a goroutine writes each call, and
// another reads its reply, also when it is the only one. Both have to be woken, which costs as much processor time as the call itself. On
// a connection on which calls never meet the caller writes, and reads its reply. rueidis keeps such connections for commands that block;
// they are closed with those of the server that they lead to. So a call that is the only one under way is sent as one of these commands.
// Calls that meet others share the pipelining connections, where they share writes and reads, too.
//
// The connection is made in the background, because making it may take long, or be refused where the server has no more room:
//
//	few --loneAfter lone calls in a row--> making --it answers PING--> there
//	 ^                                       |                           |
//	 +------- it does not, lonePause --------+------ a call fails -------+
//
// Nobody reads on such a connection between two calls, so one that was lost is noticed by the next call: its outcome is unknown, and it is
// made again. So no call that must run once is made there, and none after the client has begun to make a connection, before there is
// trust in this one anew: where one was lost, the others may be, too (TestNoLoneCallIsMadeOnAConnectionThatWasLostWithOthers).
//
// A lone call overtakes none that is under way, for there is none. Later ones may overtake it, as they may when a connection is lost.
type lone struct {
	client rueidis.Client
	under  atomic.Int32 // calls under way
	state  atomic.Int32
	calls  atomic.Int32 // lone calls in a row, without the connection
	pause  atomic.Int64 // no connection is made before this, after base
	dials  atomic.Int64 // Runner.dials when it answered
}

const (
	few int32 = iota
	making
	there
)

const (
	// loneAfter keeps the connection from programs that make a few calls only.
	loneAfter = 32
	lonePause = time.Second
)

// newLone returns nil for a Cluster: it would be a connection for each node.
func newLone(client rueidis.Client) *lone {
	if client.Mode() == rueidis.ClientModeCluster {
		return nil
	}
	return &lone{client: client}
}

// enter counts a call in; leave counts it out, when nothing of it is under way any more.
func (l *lone) enter() {
	if l != nil {
		l.under.Add(1)
	}
}

func (l *lone) leave() {
	if l != nil {
		l.under.Add(-1)
	}
}

// takes reports whether a call that has entered, at the time now, is to be made on the connection.
func (l *lone) takes(ctx context.Context, now, timeout time.Duration, dials *atomic.Int64) bool {
	switch {
	case l == nil:
		return false
	case l.under.Load() != 1:
		l.calls.Store(0)
		return false
	case l.state.Load() == there && l.dials.Load() == dials.Load():
		return true
	}
	if l.state.CompareAndSwap(there, few) {
		l.calls.Store(loneAfter) // it is only to answer again
	}
	if l.calls.Add(1) >= loneAfter && now >= time.Duration(l.pause.Load()) && l.state.CompareAndSwap(few, making) {
		go l.make(context.WithoutCancel(ctx), now, timeout, dials)
	}
	return false
}

// make makes the connection, which is then among those for commands that block. No hook around the client's Do sees its PING.
func (l *lone) make(ctx context.Context, now, timeout time.Duration, dials *atomic.Int64) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, release := l.client.Dedicate()
	err := conn.Do(ctx, conn.B().Ping().Build()).Error()
	release() // before a call is made on it: that would make another
	if err != nil {
		l.failed(now + timeout)
		return
	}
	l.dials.Store(dials.Load())
	l.state.Store(there)
}

// failed is called when the connection did not answer.
func (l *lone) failed(now time.Duration) {
	l.pause.Store(int64(now + lonePause))
	l.calls.Store(0)
	l.state.Store(few)
}
