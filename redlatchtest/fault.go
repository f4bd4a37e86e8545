package redlatchtest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/keyname"
)

// Kind is the effect of a fault on a call.
type Kind int

const (
	// Unavailable: the server answers that it is loading its data, and runs nothing. A call that does not wait is repeated
	// until its ctx ends or its RetryTimeout is over, and returns ErrUnavailable.
	Unavailable Kind = iota + 1
	// LostRequest cuts the connection before the call reaches the server. Nothing is run.
	LostRequest
	// LostReply has the server run the call and cuts the connection before the reply.
	//
	// The client cannot tell LostReply from LostRequest. It repeats a call that may run twice, so a call that loses one
	// reply returns as if nothing had happened. A call that loses every reply returns ErrUnknownOutcome.
	LostReply
	// NotReplicated: no replica confirms the call's writes. The fault strikes clients with MinReplicas, and they get
	// ErrNotReplicated. Without the fault every replica that they ask for confirms everything.
	NotReplicated
	// Slow keeps the call back for Fault.Delay.
	Slow
	// Denied: the server answers that the user lacks the right to the command, and runs nothing: ErrDenied.
	Denied
	// Silent keeps the call back until the fault is healed. Then the server runs the call, though its caller may have left
	// long before.
	Silent
)

var kinds = map[Kind]string{Unavailable: "Unavailable", LostRequest: "LostRequest", LostReply: "LostReply",
	NotReplicated: "NotReplicated",
	Slow:          "Slow", Denied: "Denied", Silent: "Silent"}

func (k Kind) String() string {
	if name, ok := kinds[k]; ok {
		return name
	}
	return fmt.Sprintf("Kind(%d)", int(k))
}

// Fault says which calls go wrong, and how.
//
// Calls share a connection: if the connection is cut, or keeps a call back, its other calls are cut or wait, too.
type Fault struct {
	// Kind is required.
	Kind Kind
	// Name of the object, with its KeyPrefix, or of the channel, whose calls are struck. Defaults to "": all calls, except
	// the commands by which clients connect and keep their connections (HELLO, CLIENT, PING, INFO and the like).
	Name string
	// Match, if set, decides in place of Name whether a command is struck. Match gets every command of every client, in
	// upper case, with its arguments, and must neither block nor call the Server.
	Match func(words []string) bool
	// Skip is how many such calls pass before the first is struck. Defaults to 0.
	Skip int
	// Times is how many calls are struck. Defaults to 0: all, until the fault is healed.
	Times int
	// Delay of Slow. Required there, and 0 elsewhere.
	Delay time.Duration
}

// Injected is a fault that is in force. Its methods are safe for concurrent use.
type Injected struct {
	s      *Server
	fault  Fault
	caught chan struct{} // closed when the first call is struck
	healed chan struct{}

	passed, struck int // guarded by Server.mu
}

// Break has calls go wrong from now on, until the fault is used up or healed, or the test ends. Of several faults that
// a call meets, the earliest strikes.
//
// A call without a useful answer is repeated until its ctx ends or its RetryTimeout is over, 5 s with the CallTimeout
// of [Server.Open]: give the call a ctx that ends sooner, or run the test in a bubble of testing/synctest.
func (s *Server) Break(f Fault) *Injected {
	s.t.Helper()
	switch {
	case kinds[f.Kind] == "":
		s.t.Fatalf("redlatchtest: Fault.Kind is %v, want one of the constants", f.Kind)
	case f.Skip < 0, f.Times < 0:
		s.t.Fatalf("redlatchtest: Fault.Skip is %d and Fault.Times %d, want 0 or more", f.Skip, f.Times)
	case (f.Kind == Slow) != (f.Delay > 0):
		s.t.Fatalf("redlatchtest: Fault.Delay is %v with Kind %v, want more than 0 with Slow and 0 with others", f.Delay,
			f.Kind)
	}
	i := &Injected{s: s, fault: f, caught: make(chan struct{}), healed: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, i)
	return i
}

// Heal heals all faults. The end of the test does so, too.
func (s *Server) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range s.faults {
		i.heal()
	}
	s.faults = nil
}

// Heal ends the fault. Calls that it keeps back go on. Later calls do nothing.
func (i *Injected) Heal() {
	i.s.mu.Lock()
	defer i.s.mu.Unlock()
	i.heal()
	i.s.faults = slices.DeleteFunc(i.s.faults, func(o *Injected) bool { return o == i })
}

// heal is called with mu held.
func (i *Injected) heal() {
	select {
	case <-i.healed:
	default:
		close(i.healed)
	}
}

// Calls returns how many calls were struck.
func (i *Injected) Calls() int {
	i.s.mu.Lock()
	defer i.s.mu.Unlock()
	return i.struck
}

// Caught returns a channel that is closed when the first call is struck.
func (i *Injected) Caught() <-chan struct{} { return i.caught }

// upkeep are the commands by which clients connect and keep their connections.
var upkeep = []string{"HELLO", "AUTH", "CLIENT", "PING", "SELECT", "QUIT", "INFO", "CONFIG", "SCRIPT", "COMMAND",
	"CLUSTER", "ROLE", "UNSUBSCRIBE"}

// strikes returns the fault that strikes a call, or the confirmation of one.
func (s *Server) strikes(c *peer, words []string, confirmation bool) *Injected {
	if c.elsewhere || len(words) == 0 {
		return nil
	}
	s.mu.Lock()
	none := len(s.faults) == 0
	s.mu.Unlock()
	if none || words[0] == "EVALSHA" && len(words) > 1 && !s.knows(words[1]) {
		return nil // the client sends the text of the script next, and that command is the call
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range s.faults {
		if (i.fault.Kind == NotReplicated) != confirmation || i.struck == i.limit() || !i.fault.strikes(words) {
			continue
		}
		if i.passed < i.fault.Skip {
			i.passed++
			continue
		}
		if i.struck++; i.struck == 1 {
			close(i.caught)
		}
		return i
	}
	return nil
}

// limit returns after how many calls the fault is used up; -1 for never.
func (i *Injected) limit() int {
	if i.fault.Times == 0 {
		return -1
	}
	return i.fault.Times
}

func (f *Fault) strikes(words []string) bool {
	switch {
	case f.Match != nil:
		return f.Match(words)
	case slices.Contains(upkeep, words[0]):
		return false
	case f.Name == "":
		return true
	}
	// The keys and channels of an object are its name, or contain the name in braces. A name with braces of its own is
	// contained as it is.
	part := f.Name
	if !strings.Contains(part, "{") {
		part = "{" + part + "}"
	}
	return slices.ContainsFunc(words[1:], func(w string) bool {
		return w == f.Name || len(w) <= keyname.MaxLen && strings.Contains(w, part)
	})
}

// strike strikes a call, and reports whether the call is done, so that the server must not run it.
func (i *Injected) strike(c *peer, words []string) (done bool) {
	switch i.fault.Kind {
	case Unavailable:
		c.p.WriteError("LOADING Redis is loading the dataset in memory")
		return true
	case Denied:
		c.p.WriteError("NOPERM this user has no permissions to run the '" + strings.ToLower(words[0]) + "' command")
		return true
	case LostReply:
		if !strings.HasSuffix(words[0], "SUBSCRIBE") { // a subscription ends with its connection
			i.s.tick()
			i.s.runUnheard(c, words)
		}
		fallthrough
	case LostRequest:
		c.cut = true
		c.p.Close() // when this command is done
		return true
	case Slow:
		t := time.NewTimer(i.fault.Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-i.healed:
		}
	case Silent:
		<-i.healed
	}
	return false
}
