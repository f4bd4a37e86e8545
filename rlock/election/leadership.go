package election

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/rlock"
)

// Leadership is one term of a leader: from its election until Resign, or until it is lost. It is safe for concurrent
// use.
//
// Run the work under [Leadership.Context], and let the resource check [Leadership.Token]. If the program can no longer
// reach a leadership or any of its contexts, its renewal ends, a warning is logged, and its lease runs out.
type Leadership struct {
	election *Election
	hold     *rlock.Hold
	token    int64
	term     *term

	retracted sync.Once
}

func newLeadership(e *Election, hold *rlock.Hold) *Leadership {
	token, _ := hold.Token()
	return &Leadership{election: e, hold: hold, token: token, term: newTerm(e, hold, token)}
}

// Context returns a child of parent that ends with the leadership. Its cause is ErrReleased after Resign, otherwise
// ErrLost, ErrMaxHold or ErrClosed. If the leadership is over, the context has already ended.
func (l *Leadership) Context(parent context.Context) context.Context { return l.hold.Context(parent) }

// Done returns a channel that is closed when the leadership is over.
func (l *Leadership) Done() <-chan struct{} { return l.hold.Done() }

// Err returns nil while the leadership lasts, and then the reason for its end: ErrReleased, ErrLost, ErrMaxHold or
// ErrClosed.
func (l *Leadership) Err() error { return l.hold.Err() }

// Token returns the leadership's fencing token. It is positive, and greater than the token of every earlier leader of
// the election, under the conditions that [rlock.Client.Fenced] names.
func (l *Leadership) Token() int64 { return l.token }

// Until returns the instant, on this process's monotonic clock, until which it is safe to act as the leader. Every
// confirmed renewal and heartbeat moves it on. Check it directly before an act that cannot be undone.
func (l *Leadership) Until() time.Time { return l.hold.Until() }

// Resign ends the leadership: its contexts end, and then the next candidate is elected. It may be called from any
// goroutine, also with a ctx that has ended. The release then has one second.
//
//   - nil: the server has confirmed the release.
//   - ErrLost: the leadership was over before, and another process may have led since.
//   - ErrUnavailable or ErrUnknownOutcome: the release was not confirmed while ctx lasted. It is retried in the
//     background until the lease is over, and the election has no leader until then.
//   - Any other refusal of the server, such as ErrDenied, is returned at once. The release is retried likewise.
//
// In every case the leadership is over. Later calls return the first one's result.
func (l *Leadership) Resign(ctx context.Context) error {
	err := l.hold.Unlock(ctx)
	if err == nil || errors.Is(err, errs.ErrLost) { // otherwise the lock may still be held, or the server is away
		l.retracted.Do(func() { l.retract(ctx) })
	}
	return withPackage(err)
}

// retract deletes the announcement after a resignation, and notifies the observers. If the call fails, observers see
// the resignation at their next poll, because the lock has another owner, or none.
func (l *Leadership) retract(ctx context.Context) {
	election := l.election
	_, _ = election.client.session.Runner.Attempt(context.WithoutCancel(ctx),
		script.Call{Script: retractScript, Keys: []string{election.announcementKey}, Args: []string{
			l.term.token, l.term.owner, election.announcementKey, election.client.session.Inner.PublishCommand(),
		}})
}
