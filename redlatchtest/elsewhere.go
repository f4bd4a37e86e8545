package redlatchtest

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/rlock"
)

// elsewhere is the name of the connections of the processes that the server plays.
const elsewhere = "redlatchtest-elsewhere"

// helpTime bounds a call of a helper.
const helpTime = 30 * time.Second

// LockKind is a kind of lock, for [Server.HoldElsewhere].
type LockKind int

// The kinds of locks.
const (
	Reentrant LockKind = iota // Reentrant covers NonReentrant and Spin locks.
	Fenced                    // Fenced is a Fenced lock.
	Fair                      // Fair is a Fair lock.
	Plain                     // Plain is a Plain lock.
	Read                      // Read is the read side of a ReadWrite lock.
	Write                     // Write is its write side.
)

// other returns the client that plays another process. No fault strikes it.
func (s *Server) other() *redlatch.Client {
	s.t.Helper()
	s.first.Do(func() {
		via := s.Option()
		via.ClientName = elsewhere
		s.others = s.open(via, redlatch.Options{Logger: slog.New(slog.DiscardHandler)})
	})
	return s.others
}

// help is a context for one call of a helper.
func help() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), helpTime)
}

// check ends the test if a call of a helper failed.
func (s *Server) check(what, name string, err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("redlatchtest: %s %q: %v", what, name, err)
	}
}

// HoldElsewhere has another process acquire the lock of that name (with its KeyPrefix) and hold it, renewed, until
// release is called, or until the end of the test. The lock is Reentrant unless one kind is given. If the lock
// is not free, the test ends at once.
func (s *Server) HoldElsewhere(name string, kind ...LockKind) (release func()) {
	s.t.Helper()
	ctx, cancel := help()
	defer cancel()
	lock := s.lock(name, kind...)
	if lock == nil {
		s.t.Fatalf("redlatchtest: HoldElsewhere %q: kind is %v, want one of the constants", name, kind)
	}
	hold, err := lock.TryLock(ctx, 0, 0)
	s.check("HoldElsewhere", name, err)
	return s.holding("release", name, hold.Unlock, redlatch.ErrLost)
}

// lock returns the other process's lock of that kind, or nil for an unknown kind.
func (s *Server) lock(name string, kind ...LockKind) *rlock.Lock {
	s.t.Helper()
	locks := s.other().Locks()
	if len(kind) == 0 {
		return locks.Reentrant(name)
	}
	switch kind[0] {
	case Reentrant:
		return locks.Reentrant(name)
	case Fenced:
		return locks.Fenced(name)
	case Fair:
		return locks.Fair(name)
	case Plain:
		return locks.Plain(name)
	case Read:
		return locks.ReadWrite(name).Read()
	case Write:
		return locks.ReadWrite(name).Write()
	}
	return nil
}

// TakeElsewhere has another process acquire that many permits of the semaphore of that name (with its KeyPrefix) and
// capacity, and hold them until release is called, or until the end of the test. If the permits are not free, the test
// ends at once.
func (s *Server) TakeElsewhere(name string, permits, capacity int) (release func()) {
	s.t.Helper()
	ctx, cancel := help()
	defer cancel()
	permit, err := s.other().Semaphores().Semaphore(name, capacity).TryAcquire(ctx, permits, 0, 0)
	s.check("TakeElsewhere", name, err)
	return s.holding("release", name, permit.Release, redlatch.ErrLost)
}

// holding returns a func that calls release once. The end of the test calls it, too. The error lost is not a failure:
// the test took the hold away.
func (s *Server) holding(what, name string, release func(context.Context) error, lost error) func() {
	var once sync.Once
	do := func() {
		once.Do(func() {
			ctx, cancel := help()
			defer cancel()
			if err := release(ctx); err != nil && !errors.Is(err, lost) {
				s.t.Errorf("redlatchtest: %s %q: %v", what, name, err)
			}
		})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holds = append(s.holds, do)
	return do
}

// Lose takes the lock of that name (with its KeyPrefix) from its holders, or a semaphore's permits, from all holders,
// as [rlock.Lock.ForceUnlock] and [rsemaphore.Semaphore.ReleaseIDs] do. The lock or the permits go to the next waiter.
// The server notifies the holder of a lock: the hold's contexts end with ErrLost at once, or when the hold is 50 ms
// old. The holder of a permit learns of the loss at its next renewal, or by [rsemaphore.Permit.Extend]. If nobody holds
// the lock or a permit, the test ends at once. For a Multi, name a member.
func (s *Server) Lose(name string) {
	s.t.Helper()
	ctx, cancel := help()
	defer cancel()
	switch red := s.other(); s.what(name) {
	case nothing:
		s.notHeld(name)
	case aSemaphore:
		free, err := s.m.Get(name)
		s.check("Lose", name, err)
		n, err := strconv.Atoi(free)
		s.check("Lose", name, err)
		ids, err := s.m.ZMembers(keyname.Suffix(name, "timeout"))
		s.check("Lose", name, err)
		sem := red.Semaphores().Semaphore(name, n+len(ids))
		state, err := sem.Inspect(ctx)
		s.check("Lose", name, err)
		ids = ids[:0]
		for _, p := range state.Permits {
			ids = append(ids, p.ID)
		}
		s.check("Lose", name, sem.ReleaseIDs(ctx, ids...))
	case aWeighted:
		s.send("DEL", keyname.Suffix(name, "weighted"), keyname.Suffix(name, "weights"))
	default:
		was, err := s.lock(name, s.kind(name)).ForceUnlock(ctx)
		s.check("Lose", name, err)
		if !was {
			s.notHeld(name)
		}
	}
}

// Expire has the leases of all holders of the lock of that name (with its KeyPrefix), or of all permits of the
// semaphore, run out on the server, as if their processes had died or been cut off for so long. No waiter is notified:
// waiters find the lock free at their next request, a PollCap later at most. Holders that live learn of the loss as
// they do after Lose. If nobody holds the lock or a permit, the test ends at once.
//
// For the ends of reservations, sales and latches see [Server.Advance].
func (s *Server) Expire(name string) {
	s.t.Helper()
	switch s.what(name) {
	case nothing:
		s.notHeld(name)
	case aSemaphore:
		s.overdue(keyname.Suffix(name, "timeout"))
	case aWeighted:
		s.overdue(keyname.Suffix(name, "weights"))
	default:
		keys := []string{"DEL", name, keyname.Prefix("redlatch_rw", name)}
		for _, key := range s.m.Keys() {
			if strings.HasPrefix(key, keyname.Suffix(name, "")) && strings.Contains(key, ":rwlock_timeout:") {
				keys = append(keys, key)
			}
		}
		s.send(keys...)
	}
}

// overdue sets the ends of all leases in the sorted set key to an instant long ago.
func (s *Server) overdue(key string) {
	s.t.Helper()
	ids, err := s.m.ZMembers(key)
	s.check("Expire", key, err)
	words := []string{"ZADD", key}
	for _, id := range ids {
		words = append(words, "1", id)
	}
	s.send(words...)
}

// send runs a command as another process does.
func (s *Server) send(words ...string) {
	s.t.Helper()
	ctx, cancel := help()
	defer cancel()
	client := s.other().Hub().Client()
	s.check(words[0], words[1], client.Do(ctx, client.B().Arbitrary(words...).Build()).Error())
}

// object is the kind of object that is held under a name.
type object int

const (
	nothing object = iota
	aLock
	aSemaphore
	aWeighted
)

// what returns the kind of object that is held under a name.
func (s *Server) what(name string) object {
	s.tick()
	switch {
	case s.m.Exists(keyname.Suffix(name, "weights")):
		return aWeighted
	case s.m.Exists(keyname.Suffix(keyname.Own(name), "timeout")) && s.m.Type(name) == "string":
		return aSemaphore
	case s.m.Type(name) == "hash":
		return aLock
	case s.m.Type(name) == "string":
		if v, err := s.m.Get(name); err == nil && strings.Contains(v, ":") { // a connection id and a number
			return aLock
		}
	}
	return nothing
}

func (s *Server) notHeld(name string) {
	s.t.Helper()
	s.t.Fatalf("redlatchtest: no one holds %q (names are given with their KeyPrefix)", name)
}

// kind returns the kind of the lock that is held under a name.
func (s *Server) kind(name string) LockKind {
	switch {
	case s.m.Type(name) == "string":
		return Plain
	case s.m.HGet(name, "mode") == "read":
		return Read
	case s.m.HGet(name, "mode") != "":
		return Write
	case s.m.Exists(keyname.Prefix("redisson_lock_queue", keyname.Own(name))):
		return Fair
	}
	return Reentrant
}

// SellOut has other processes buy the rest of the sale, of each item, or take the rest of the red packet, of that name
// (with its KeyPrefix). The sale or packet must be open, and stays open: later callers get the answer that it is sold
// out. Reservations keep their units.
func (s *Server) SellOut(name string) {
	s.t.Helper()
	ctx, cancel := help()
	defer cancel()
	red := s.other()
	if s.m.Exists(keyname.Suffix(keyname.Prefix("rc", name), "p")) {
		packet := red.RedPackets().Packet(name)
		for n := 1; ; n++ {
			share, err := packet.Grab(ctx, elsewhere+"-"+strconv.Itoa(n))
			s.check("SellOut", name, err)
			if !share.Won() {
				return
			}
		}
	}
	sale := red.Sales().Sale(name)
	stand, err := sale.Inspect(ctx)
	s.check("SellOut", name, err)
	for item, has := range stand.Items {
		left := has.Limit - has.Sold - has.Reserved
		if left <= 0 {
			continue
		}
		a, err := sale.Buy(ctx, stock.Order{Anyone: true, Lines: []stock.Line{{Item: item, N: left}}})
		s.check("SellOut", name, err)
		if !a.Won() {
			s.t.Fatalf("redlatchtest: SellOut %q: the sale answers %s, %s", name, a.State, a.Why)
		}
	}
}
