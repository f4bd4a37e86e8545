package script

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/errs"
)

// outcome is what an error proves about the run of a script.
type outcome int

const (
	answered outcome = iota // the server replied; sending again would get the same reply
	notRun                  // nothing happened on the server
	unknown                 // the script may have run, or may run yet
)

// refusals are the error replies by which a server says that it did not begin, or that nothing was written: the server
// refuses the first write of a script before it happens, and our scripts decide before they write.
var refusals = []string{
	"LOADING ", "TRYAGAIN ", "CLUSTERDOWN ", "READONLY ", "MASTERDOWN ", "NOREPLICAS ", "MOVED ", "ASK ", "BUSY ", "OOM ",
	"MISCONF ", "NOSCRIPT ",
}

// passing reports whether err is one of the refusals. ErrNoCache is rueidis' error for any refusal of CLIENT TRACKING
// at a connection's start, with the server's text in front: also for the refusal of a busy server, which answers HELLO.
func passing(err error) bool {
	text := err.Error()
	return slices.ContainsFunc(refusals, func(prefix string) bool { return strings.HasPrefix(text, prefix) })
}

// saysBusy reports whether the server refused a command because it is busy with a script.
func saysBusy(err error) bool { return err != nil && strings.Contains(err.Error(), "BUSY ") }

func classify(err error) outcome {
	// The runner's own error comes first, because it wraps the cause of the caller's context. An errgroup ends the
	// contexts of all its calls with the error of one call, which proves nothing about the others
	// (TestAttempt_CauseOfAnotherCall_ProvesNothing). A wrapped gaveUp is of another call, too.
	if end, ok := err.(gaveUp); ok { //nolint:errorlint // see above
		if end.sent {
			return unknown
		}
		return notRun
	}
	if err == nil || rueidis.IsRedisNil(err) || errors.Is(err, errs.ErrNotReplicated) {
		return answered
	}
	if _, ok := rueidis.IsRedisErr(err); ok || errors.Is(err, rueidis.ErrNoCache) {
		if passing(err) {
			return notRun
		}
		return answered
	}
	switch {
	case errors.Is(err, rueidis.ErrNoSlot), errors.Is(err, rueidis.ErrDedicatedClientRecycled):
		return notRun
	case errors.Is(err, syscall.ECONNREFUSED):
		return notRun
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return notRun
	}
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return notRun
	}
	// rueidis.ErrClosing, EOF, resets, time-outs: the bytes may have left. A deadline error may be rueidis' own, because
	// the HELLO of a new connection has a timeout even if the caller has none. Such an error looks like that of a call
	// under way.
	return unknown
}

// wrap turns the error of an attempt into what callers see.
func wrap(call Call, err error) error {
	if err == nil {
		return nil
	}
	kind := errs.ErrUnavailable
	switch result := classify(err); {
	case result == unknown && !call.onlyReads():
		kind = errs.ErrUnknownOutcome
	case result == answered:
		return answeredError(call.Script, call.Keys[0], err)
	}
	return fmt.Errorf("%w: %s on %q: %w", kind, call.Script.name, call.Keys[0], err)
}

// Explain classifies an error of a command that did not go through a Runner.
func Explain(command string, err error) error {
	return wrap(Call{Script: Plain(command), Keys: []string{""}}, err)
}

// Refusal is the error of a script whose reply carries, for one of its keys, the text with which the server refused a
// command.
func (s *Script) Refusal(key, text string) error { return answeredError(s, key, errors.New(text)) }

func answeredError(script *Script, key string, err error) error {
	why, kind := refusal(script.src(), err)
	err = plainly(err)
	switch {
	case kind != nil:
		return fmt.Errorf("%w: %s on %q: %s: %w", kind, script.name, key, why, err)
	case strings.Contains(err.Error(), "NEWER a later version"):
		return fmt.Errorf("%w: %s on %q", errs.ErrNewer, script.name, key)
	case unreadable(err):
		return fmt.Errorf("%w: %s on %q: %w", errs.ErrWrongType, script.name, key, err)
	}
	return fmt.Errorf("%s on %q: %w", script.name, key, err)
}

// raised is an error that a script ended with. Its text leaves out the name and the line of the script, which the
// server adds, and Lua. It wraps the server's own error.
type raised struct {
	err  error
	text string
	lua  bool // Lua raised the error, not a command: the script read a value that no program of ours writes
}

func (r *raised) Error() string { return r.text }
func (r *raised) Unwrap() error { return r.err }

// inScript is in the texts of all errors that a script ends with.
const inScript = "user_script"

// plainly returns err as raised, if a script ended with it.
func plainly(err error) error {
	text := err.Error()
	if !strings.Contains(text, inScript) {
		return err
	}
	said, _, _ := strings.Cut(text, " script: ")
	if strings.Contains(said, inScript) {
		return &raised{err, "a value that is not of this kind of object", true}
	}
	return &raised{err, said, false}
}

// unreadableTexts are the texts by which a command of a script says that it cannot count with a value that is there.
// The value is not an argument of the script, because scripts check their arguments.
var unreadableTexts = []string{"is not an integer", "is not a valid float", "is not a float", "would overflow",
	"invalid expire time", "not a number (NaN)"}

// unreadable reports whether err says that a key has another type, or a value that no program of ours writes. A script
// looks at what it needs before it writes.
func unreadable(err error) bool {
	text := err.Error()
	if strings.Contains(text, "WRONGTYPE") {
		return true
	}
	var luaErr *raised
	return errors.As(err, &luaErr) && (luaErr.lua || slices.ContainsFunc(unreadableTexts, func(part string) bool {
		return strings.Contains(text, part)
	}))
}

// NotAnswered reports whether err says that the server could not be asked, so that asking again may help. Such an error
// wraps ErrUnavailable or ErrUnknownOutcome.
func NotAnswered(err error) bool {
	return errors.Is(err, errs.ErrUnavailable) || errors.Is(err, errs.ErrUnknownOutcome)
}

// IsUnreplicated reports whether a call was answered, and too few replicas have confirmed it. Of a call that was not
// answered, an ErrNotReplicated is the cause with which another call has ended its context.
func IsUnreplicated(err error) bool {
	return errors.Is(err, errs.ErrNotReplicated) && !NotAnswered(err)
}

// Unsure is for a call of which an earlier try may have run, though its last try surely did not, as err says. The error
// that Unsure returns is ErrUnknownOutcome, and no longer ErrUnavailable.
func Unsure(err error) error {
	if !errors.Is(err, errs.ErrUnavailable) {
		return err
	}
	unsure := unsureError{text: errs.ErrUnknownOutcome.Error() + ": an earlier request may have run: " + err.Error(),
		is: []error{errs.ErrUnknownOutcome}}
	if list, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range list.Unwrap() {
			if !errors.Is(e, errs.ErrUnavailable) {
				unsure.is = append(unsure.is, e)
			}
		}
	}
	return unsure
}

type unsureError struct {
	text string
	is   []error
}

func (e unsureError) Error() string   { return e.text }
func (e unsureError) Unwrap() []error { return e.is }

// Integer reads a reply that is one number. The name what stands in the error of another reply (see Unexpected).
func Integer(what string, message rueidis.RedisMessage) (int64, error) {
	number, err := message.AsInt64()
	if err != nil {
		return 0, Unexpected(what, nil, err)
	}
	return number, nil
}

// Unexpected is the error of a reply that a script does not return. err is the error of reading the reply; nil: reading
// succeeded, and the values are wrong.
func Unexpected(what string, reply any, err error) error {
	if err != nil {
		return fmt.Errorf("%s: unexpected reply: %w", what, err)
	}
	return fmt.Errorf("%s: unexpected reply %v", what, reply)
}
