package cells

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/rlock"
)

// Library is a lock that works in place of our primitives: the seam between the cells and what is tested in them. It is
// used as its documents say; what can be chosen there is in How.
type Library struct {
	Name    string // as in -only
	Module  string // of which a release is used; of a library that is not Go's, where it is from
	How     string // used as its documents say
	Reports string // how a holder learns that the lock is lost
	// Servers is the deployment of all its cells. Without one they are on one node, and with Sentinel where a replica
	// takes over.
	Servers string
	// Start starts a server of the library's own, one that is not Redis. It ends with the test.
	Start func(t testing.TB) Server
	// Version, if set, asks for the release, and says what is missing to run the library at all. Without it the release is
	// that of Module in the program.
	Version func(ctx context.Context) (string, error)
	// Open connects one process of it, or fails: the servers may be away, and then it is called again.
	Open func(ctx context.Context, s Setup) (Locker, error)
}

// Setup is where a process of a library finds its servers.
type Setup struct {
	// of the server; of sentinels, if Set is their primary; of servers that know nothing of each other, if Each
	Addrs []string
	Set   string
	Each  bool
	Lease time.Duration // of every hold, and the period of a watchdog that renews it
	// Token asks for locks with a fencing token, of which Held has a method Token, where the library has them.
	Token bool
	// Through is which proxy stands before an address that servers say of themselves.
	Through map[string]string
}

// By is the address by which a process reaches one that servers say of themselves: that of its proxy, where there is
// one.
func (s Setup) By(addr string) string {
	if p, ok := s.Through[addr]; ok {
		return p
	}
	return addr
}

// Dial connects to an address, through its proxy.
func (s Setup) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: 5 * time.Second}
	return d.DialContext(ctx, network, s.By(addr))
}

// Locker is one process of a library. It is safe for concurrent use.
type Locker interface {
	// Lock waits until it holds the lock of that name, until ctx ends, or for as long as the library's documents have it
	// wait; then it returns ErrBusy.
	Lock(ctx context.Context, name string) (Held, error)
	Close()
}

// Held is a lock that was acquired, as its library shows it.
type Held interface {
	// Held is false once the library has reported that the lock is lost: by a deadline that has passed, or by a signal. It
	// asks no server.
	Held() bool
	// Lost is closed when the library reports it, if it has a signal for that.
	Lost() <-chan struct{}
	// Release gives the lock back. ErrGone: the library answers that it was not held.
	Release(ctx context.Context) error
}

// ErrBusy: the library waited for as long as it does, and others had the lock.
var ErrBusy = errors.New("others have the lock")

// ErrGone: what is released is not held.
var ErrGone = errors.New("the lock was not held")

// Serve starts the servers of a library's cells in which nothing fails, and says where they are. They end with the
// test.
func (l Library) Serve(t testing.TB) (Setup, error) {
	x := place{lib: l, deployment: one}
	switch {
	case l.Start != nil:
		x.deployment = l.Name
	case l.Servers != "":
		x.deployment = l.Servers
	}
	d, err := x.setUp()
	if err != nil {
		return Setup{}, err
	}
	t.Cleanup(d.st.Clear)
	return Setup{Addrs: d.entry.Addrs, Each: d.entry.Each, Lease: lease}, nil
}

// Server is a server that is not Redis.
type Server interface {
	Addr() string
	Pause(t testing.TB)
	Resume(t testing.TB)
	Kill(t testing.TB)
	Revive(t testing.TB) // with its data
	Wipe(t testing.TB)   // deletes all keys
}

// Ours are the locks of this library, as they contend with those of others.
var Ours = []Library{
	{
		Name:    "redlatch",
		How:     "`Reentrant(name).Lock`, renewed by its watchdog; `MinReplicas` 0, its default",
		Reports: "`Hold.Until`, `Hold.Done`",
		Open:    openOurs,
	},
	{
		Name:    "redlatch-quorum",
		How:     "`rlock.Quorum` of five servers, renewed by its watchdog",
		Reports: "`Hold.Until`, `Hold.Done`",
		Servers: five,
		Open:    openOurs,
	},
}

type ourLocker struct {
	own   client
	token bool
}

func openOurs(ctx context.Context, s Setup) (Locker, error) {
	o := order{Addrs: s.Addrs, Set: s.Set, Each: s.Each, Through: s.Through}
	red, err := connect(ctx, o)
	if err != nil {
		disconnect(red)
		return nil, err
	}
	return &ourLocker{client{order: o, red: red}, s.Token}, nil
}

func (l *ourLocker) Close() { disconnect(l.own.red) }

func (l *ourLocker) Lock(ctx context.Context, name string) (Held, error) {
	lock := l.own.red[0].Locks().Reentrant(name)
	if l.token {
		lock = l.own.red[0].Locks().Fenced(name)
	}
	if l.own.Each {
		var members []*rlock.Lock
		for _, red := range l.own.red {
			members = append(members, red.Locks().Reentrant(name))
		}
		var err error
		if lock, err = rlock.Quorum(members...); err != nil {
			return nil, err
		}
	}
	h, err := lock.Lock(ctx)
	if err != nil {
		return nil, err
	}
	return ourHold{h}, nil
}

type ourHold struct{ *rlock.Hold }

func (h ourHold) Held() bool            { return time.Now().Before(h.Until()) && h.Err() == nil }
func (h ourHold) Lost() <-chan struct{} { return h.Done() }

func (h ourHold) Release(ctx context.Context) error {
	err := h.Unlock(ctx)
	if errors.Is(err, errs.ErrLost) {
		return errors.Join(ErrGone, err)
	}
	return err
}
