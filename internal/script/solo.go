package script

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
)

// Solo is the connection of solo calls, and serves all runners of a client. A solo call is one during which its client
// has no other call under way.
//
// rueidis begins to pipeline on a connection when two calls meet there, and never ends. From then on one goroutine
// writes each call and another reads its reply, and to wake them costs a solo call as much time as all else. Where
// calls never meet, the caller itself writes, and reads its reply. rueidis has such connections in a pool, for commands
// that block, so a solo call is sent as one of these. Calls that meet use the pipelining connections, where they also
// share system calls.
//
// The connection is made in the background, because that may take long, and a full server refuses it:
//
//	state    event                                            next state
//	absent   SoloAfter solo calls in a row                    opening
//	opening  the connection answers PING                      idle
//	         it does not                                      resting
//	idle     a solo call                                      busy
//	         the client has begun to make another connection  opening: this one is asked for another PING
//	         no call for one to two soloIdle                  opening, then absent: this one is closed
//	busy     the call is answered                             idle
//	         it is not                                        resting: rueidis has closed the connection
//	resting  soloRest is over                                 absent
//	any      Close                                            closed, for good
//
// In opening and busy one goroutine uses the connection, and no other changes the state, except Close.
//
// Nobody reads on the connection between two calls. So the next call finds out that the connection was lost, and its
// outcome is unknown. A call that must run once is never made there.
//
// Calls that are under way at the same time reach the server in any order, as they do without this connection, because
// rueidis sends each on any of its pipelining connections. docs/design/protocols.md has the interleavings ("Solo
// calls").
type Solo struct {
	client rueidis.Client
	dials  *errs.Dials

	callsUnderWay atomic.Int32
	state         atomic.Int32
	callsInARow   atomic.Int32 // solo calls while the state is absent
	trustedDials  atomic.Int64 // dials.Begun when the connection answered PING
	used          atomic.Bool  // since the timer's last run
	timer         *time.Timer  // runs expire

	unused chan struct{} // closed when a use that was under way at Close is over
}

const (
	absent int32 = iota
	opening
	idle
	busy
	resting
	closed
)

// SoloAfter is the number of solo calls in a row before the connection is made, so that programs that send a few calls
// only do without it. The simulation lowers it, before its first call.
var SoloAfter int32 = 32

const (
	// soloIdle is how often the connection is looked at: it is closed after one to two times this long without a call.
	// rueidis sends a PING after an idle second, and if a call met it, this connection would pipeline, too.
	soloIdle = 500 * time.Millisecond
	soloRest = time.Second
	// soloOpening bounds the wait for the PING, and that of Close. rueidis itself bounds how long it makes a connection.
	soloOpening = time.Second
)

// NewSolo returns the Solo of a client whose connections dials counts, or nil for the client of a Cluster, where each
// node would need a connection.
func NewSolo(client rueidis.Client, dials *errs.Dials) *Solo {
	if client.Mode() == rueidis.ClientModeCluster {
		return nil
	}
	l := &Solo{client: client, dials: dials, unused: make(chan struct{})}
	l.timer = time.AfterFunc(time.Hour, l.expire)
	l.timer.Stop()
	return l
}

// enter counts a call in. leave counts it out, when none of it is under way any more. A nil Solo counts nothing.
func (l *Solo) enter() {
	if l != nil {
		l.callsUnderWay.Add(1)
	}
}

func (l *Solo) leave() {
	if l != nil {
		l.callsUnderWay.Add(-1)
	}
}

// take reports whether a call that has entered is made on the connection. The caller calls giveBack afterwards.
func (l *Solo) take() bool {
	if l == nil {
		return false
	}
	if l.callsUnderWay.Load() != 1 {
		if l.callsInARow.Load() != 0 { // so that a crowd does not write to the same memory
			l.callsInARow.Store(0)
		}
		return false
	}
	switch l.state.Load() {
	case idle:
		if l.trustedDials.Load() == l.dials.Begun() {
			return l.state.CompareAndSwap(idle, busy)
		}
		if l.state.CompareAndSwap(idle, opening) {
			go l.open()
		}
	case absent:
		if l.callsInARow.Add(1) >= SoloAfter && l.state.CompareAndSwap(absent, opening) {
			l.callsInARow.Store(0)
			go l.open()
		}
	}
	return false
}

// giveBack ends the use of the connection by a call.
func (l *Solo) giveBack(answered bool) {
	if !answered {
		l.rest(busy)
		return
	}
	l.used.Store(true)
	l.move(busy, idle)
}

// open makes the connection, or asks it for a PING if it is there. Dedicate takes it out of rueidis' pool.
func (l *Solo) open() {
	ctx, cancel := context.WithTimeout(context.Background(), soloOpening)
	defer cancel()
	conn, release := l.client.Dedicate()
	dials := l.dials.Begun()
	err := conn.Do(ctx, conn.B().Ping().Build()).NonRedisError()
	release() // before the first call: otherwise that call would make another connection
	if err != nil {
		l.rest(opening)
		return
	}
	l.trustedDials.Store(dials)
	l.used.Store(true)
	if l.move(opening, idle) {
		l.timer.Reset(soloIdle)
	}
}

// rest ends the use of a connection that did not answer.
func (l *Solo) rest(from int32) {
	if l.move(from, resting) {
		l.timer.Reset(soloRest)
	}
}

// move ends a use of the connection, during which the state is from, and reports whether Close has not come meanwhile.
func (l *Solo) move(from, to int32) bool {
	moved := l.state.CompareAndSwap(from, to)
	if !moved {
		close(l.unused)
	}
	return moved
}

// Close ends the use of the connection, before its client is closed. It waits for a use that is under way, because the
// client's Close holds the mutex of rueidis' pool while it waits for the connection's last reply:
//
//	a call, open or expire            Close                    the client's Close
//	takes the connection, idle until now
//	                                  sets closed
//	                                                           takes the mutex, sends PING
//	waits for the mutex, to take the
//	connection out of the pool                                 waits for the reply
//
// In a bubble of testing/synctest no time passes while a goroutine waits for a mutex, so neither would end. After
// soloOpening at the latest the connection is out of the pool, and the client's Close does not wait for it.
func (l *Solo) Close() {
	if l == nil {
		return
	}
	state := l.state.Swap(closed)
	l.timer.Stop()
	if state != opening && state != busy {
		return
	}
	timeout := time.NewTimer(soloOpening)
	defer timeout.Stop()
	select {
	case <-l.unused:
	case <-timeout.C:
	}
}

// expire ends a rest, and closes the connection if no call has used it since the last run.
func (l *Solo) expire() {
	switch {
	case l.used.Swap(false), l.state.Load() == busy:
		l.timer.Reset(soloIdle)
	case l.state.CompareAndSwap(idle, opening): // so that no call takes the connection meanwhile
		conn, release := l.client.Dedicate()
		conn.Close()
		release()
		l.move(opening, absent)
	default:
		l.state.CompareAndSwap(resting, absent)
	}
}
