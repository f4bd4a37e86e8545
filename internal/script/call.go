package script

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

// Call is one request: a script, its keys and its arguments. There is at least one key, which routes the call. Neither
// slice may be changed afterwards, because an attempt that was given up may still read them.
type Call struct {
	Script     *Script
	Keys, Args []string
	// Command, if set, makes a command that only reads, which is sent in place of the script; the script's name still
	// stands in errors (see Plain). Every attempt calls Command, and its commands are never recycled (see send). rueidis
	// repeats such a command by itself when its connection is lost, so the call is not made in place.
	Command func(builder rueidis.Builder) rueidis.Completed
	// Cached, if CachedFor is set, is a pinned command that is read through the client's cache in place of the script, and
	// kept there for that long.
	Cached    rueidis.Cacheable
	CachedFor time.Duration
	// Tracked, if set, is a connection on which the server is to remember the keys that the script reads.
	Tracked Conn
	// Replicas > 0: WAIT follows the call on the same connection, for so many replicas and at most ReplicasWait. If they
	// do not confirm in time the attempt's error is errs.ErrNotReplicated, and its reply is returned with it.
	Replicas     int
	ReplicasWait time.Duration
	// Once: the script must not run twice, so an attempt of unknown outcome ends the call.
	Once bool
	// Patient: the reply is awaited until ctx ends, however much later than the call timeout. The call is never made in
	// place then, because a reply that came after its caller has left would be dropped there.
	Patient bool
	// Late, if set, gets the reply of an attempt that was given up and answered after all, on a goroutine of the runner.
	Late func(rueidis.RedisResult)

	byText bool          // the script's text is sent, not its hash
	solo   bool          // the call is sent on the connection of solo calls
	start  time.Duration // when the attempt begins, after the runner's base; 0: now
}

// Conn sends several commands in a row over one connection: a dedicated client, or a client if the commands are of one
// slot.
type Conn interface {
	B() rueidis.Builder
	DoMulti(ctx context.Context, multi ...rueidis.Completed) []rueidis.RedisResult
}

// repeats reports whether rueidis sends the call again, by itself, when its connection is lost.
func (c *Call) repeats() bool { return c.Command != nil || c.CachedFor > 0 }

// onlyReads reports whether the call has no outcome.
func (c *Call) onlyReads() bool { return c.repeats() || c.Script.reads }

// fitsInPlace reports whether the call may be made on its caller's goroutine.
func (c *Call) fitsInPlace() bool {
	return !c.repeats() && c.Tracked == nil && c.Replicas == 0 && !c.Patient
}

// command is the script by its hash, or its text, or the plain command.
func (c *Call) command(builder rueidis.Builder) rueidis.Completed {
	if c.Script.plain != "" {
		plain := builder.Arbitrary(c.Script.plain).Keys(c.Keys...).Args(c.Args...)
		if c.solo {
			return plain.Blocking()
		}
		return plain.Build()
	}
	length, sent := int64(len(c.Keys)), c.Script.sent()
	switch {
	case c.byText:
		return builder.Eval().Script(sent.src).Numkeys(length).Key(c.Keys...).Arg(c.Args...).Build()
	case c.solo:
		count := strconv.FormatInt(length, 10)
		return builder.Arbitrary("EVALSHA", sent.sha, count).Keys(c.Keys...).Args(c.Args...).Blocking()
	}
	return builder.Evalsha().Sha1(sent.sha).Numkeys(length).Key(c.Keys...).Arg(c.Args...).Build()
}
