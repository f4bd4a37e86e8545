//go:build unix

package main

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// probe is a command that some servers, proxies and users' rights refuse, with the finding where the server has no such
// command.
type probe struct {
	finding
	send  func(ctx context.Context, x *checkup) error
	right string // what gives it to a user
	safe  bool   // the safe profile needs it
}

// lacking is the finding about a command without which the clients of the library go on, which know what they miss.
func lacking(k errs.Lack, level, do string) finding {
	command, effect := k.About()
	return finding{Level: level, What: command, Means: effect, Do: do}
}

// probes are the commands that a program may have to do without. The others are tried with what needs them.
func (x *checkup) probes() []probe {
	const without = "nothing; clients work without it"
	resp3 := lacking(errs.LackTracking, "warning", without)
	resp3.What = "RESP3"
	all := []probe{
		{resp3, on("HELLO 3"), "", false},
		{lacking(errs.LackTracking, "warning", without), on("CLIENT TRACKING ON OPTIN NOLOOP", "CLIENT CACHING YES"),
			"+client|tracking +client|caching", false},
		{finding{Level: "note", What: "MULTI", Means: "counters with a TTL and sold-out sales are not cached",
			Do: "nothing, if that is fast enough"}, on("MULTI", "EXEC"), "+multi +exec +pttl", false},
		{lacking(errs.LackEvalsha, "warning", without), evalsha, "+evalsha", false},
		{lacking(errs.LackNumsub, "warning", "nothing; set a short WatchdogTimeout if waiters often die"), numsub,
			"+pubsub|numsub +pubsub|shardnumsub", false},
		{lacking(errs.LackWait, "note", "leave MinReplicas at 0, and have resources check tokens (Fenced)"),
			on("WAIT 0 1"), "+wait", true},
		{lacking(errs.LackInfo, "warning", "check in the provider's console that maxmemory-policy is noeviction"),
			func(context.Context, *checkup) error { return x.nodes[0].noInfo }, "+info", true},
		{finding{Level: "note", What: "CONFIG GET", Do: "read them in the provider's console",
			Means: "appendfsync, and other settings that INFO does not have, are not known"},
			func(context.Context, *checkup) error { return x.nodes[0].noConfig },
			"+config|get, which programs do not need", false},
	}
	if x.client.Mode() != rueidis.ClientModeCluster { // whose clients know that they may not
		all = append(all, probe{lacking(errs.LackSlots, "note", "nothing, if that is fast enough; otherwise connect to "+
			"the Cluster itself, by a second address (?addr=)"), slots, "", false})
	}
	return all
}

// on sends commands, one after the other, to a server: all are of one kind.
func on(lines ...string) func(context.Context, *checkup) error {
	return func(ctx context.Context, x *checkup) error {
		nodes := slices.Collect(maps.Values(x.client.Nodes()))
		return x.send(ctx, nodes[0], lines...).Error()
	}
}

// evalsha asks for a script that no server has: what does it says NOSCRIPT. A user without the right to it is denied by
// all that is tried later.
func evalsha(ctx context.Context, x *checkup) error {
	const none = "0000000000000000000000000000000000000000"
	err := x.client.Do(ctx,
		x.client.B().Evalsha().Sha1(none).Numkeys(1).Key(x.server.prefix+x.name+":none").Build()).Error()
	if err != nil && (strings.HasPrefix(err.Error(), "NOSCRIPT") || strings.HasPrefix(err.Error(), "NOPERM")) {
		return nil
	}
	return err
}

// slots has a script run that has keys of two slots.
func slots(ctx context.Context, x *checkup) error {
	one := x.server.prefix + x.name
	two := one + ":two"
	for keyname.Slot(two) == keyname.Slot(one) {
		two += "o"
	}
	return x.client.Do(ctx, x.client.B().Eval().Script("return #KEYS").Numkeys(2).Key(one, two).Build()).Error()
}

// numsub asks for the listeners of a channel as the library's hub does, and as scripts do.
func numsub(ctx context.Context, x *checkup) error {
	ask := "NUMSUB"
	if x.client.Mode() == rueidis.ClientModeCluster {
		ask = "SHARDNUMSUB"
	}
	if err := on("PUBSUB "+ask)(ctx, x); err != nil {
		return err
	}
	return x.client.Do(ctx, x.client.B().Eval().Script("return redis.call('PUBSUB', '"+ask+"', ARGV[1])").Numkeys(1).
		Key(x.server.prefix+x.name+":listeners").Arg(x.name).Build()).Error()
}

// commands tries what some servers refuse.
func (x *checkup) commands(ctx context.Context) {
	var work []string
	for _, p := range x.probes() {
		if command, _ := errs.LackTracking.About(); p.What == command && !slices.Contains(work, "RESP3") {
			continue // which it needs
		}
		bounded, cancel := context.WithTimeout(ctx, x.bound) // a proxy may keep silent at a command that it does not know
		err := p.send(bounded, x)
		cancel()
		switch {
		case err == nil:
			work = append(work, p.What)
			continue
		case unanswered(err):
			x.add(finding{Level: p.Level, What: p.What, Says: "%v"}, err)
			continue
		case p.right != "" && errors.Is(script.Refused(err), redlatch.ErrDenied):
			p.Do = "give the user " + p.right
		}
		if p.safe {
			x.unmet = append(x.unmet, p.What)
		}
		p.Says, _, _ = strings.Cut(err.Error(), ", with args") // it repeats them
		x.add(p.finding)
	}
	x.ok("commands", "%s work", strings.Join(work, ", "))
}

// rights are tried, not read: what a user may do is what it can do. All at once, since where one is not answered the
// others are not, either.
func (x *checkup) rights(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*x.server.timeout)
	defer cancel()
	tries := []struct {
		what, feature string // of internal/acl
		try           func(context.Context) error
		err           error
	}{
		{what: "locks", feature: "locks", try: x.tryLock},
		{what: "read-write locks", feature: "locks", try: func(ctx context.Context) error {
			l := x.red.Locks().ReadWrite(x.name + ":rw")
			return errors.Join(l.Read().Do(ctx, nothing), l.Write().Do(ctx, nothing))
		}},
		{what: "semaphores", feature: "semaphores", try: func(ctx context.Context) error {
			return x.red.Semaphores().Semaphore(x.name+":semaphore", 2).Do(ctx, 1, nothing)
		}},
		{what: "counters", feature: "counters", try: func(ctx context.Context) error {
			return errOf(x.red.Counters().Counter(x.name+":counter", rcounter.CounterOptions{TTL: time.Minute}).Incr(ctx))
		}},
		{what: "rate limits", feature: "limits", try: func(ctx context.Context) error {
			return errOf(x.red.Limiters().Limiter(x.name+":limit", ratelimit.LimiterOptions{Rate: 100}).Allow(ctx, "", 1))
		}},
		{what: "sales", feature: "sales", try: x.trySale},
		{what: "red packets", feature: "packets", try: x.tryPacket},
		{what: "elections", feature: "elections", try: x.tryElection},
	}
	var all sync.WaitGroup
	for i := range tries {
		all.Go(func() { tries[i].err = tries[i].try(ctx) })
	}
	all.Wait()
	for _, t := range tries {
		f := finding{Level: "problem", What: t.what, Says: "%v", Do: "docs/troubleshooting.md says what the error means"}
		if errors.Is(t.err, redlatch.ErrDenied) {
			f.Do = "give the user the rights of redlatch acl --only " + t.feature + ", if programs use them"
		}
		if t.err == nil {
			x.ok(t.what, "work")
		} else {
			x.add(f, t.err)
		}
	}
}

func (x *checkup) tryLock(ctx context.Context) error {
	l := x.red.Locks().Fenced(x.name + ":lock")
	h, err := l.TryLock(ctx, 0, 0)
	if err != nil {
		return err
	}
	if _, err = l.TryLock(ctx, 0, 0); errors.Is(err, redlatch.ErrNotAcquired) {
		err = nil
	}
	_, asked := l.Inspect(ctx)
	return errors.Join(err, asked, h.Extend(ctx, time.Minute), h.Unlock(ctx))
}

func nothing(context.Context) error { return nil }

// errOf is the error of a call that also returns a value.
func errOf[T any](_ T, err error) error { return err }

func (x *checkup) trySale(ctx context.Context) error {
	s := x.red.Sales().Sale(x.name + ":sale")
	return cmp.Or(s.Open(ctx, stock.Spec{Limit: 1, OpenFor: time.Minute, Retain: time.Second, Ledger: true}),
		errOf(s.Buy(ctx, stock.Order{User: "one"})), s.EndSale(ctx))
}

func (x *checkup) tryPacket(ctx context.Context) error {
	p := x.red.RedPackets().Packet(x.name + ":packet")
	return cmp.Or(errOf(p.Send(ctx, redpacket.Spec{Total: 2, Shares: 2, OpenFor: time.Minute, Retain: time.Second})),
		errOf(p.Grab(ctx, "one")))
}

func (x *checkup) tryElection(ctx context.Context) error {
	l, err := x.red.Elections().Election(x.name+":election").Campaign(ctx, "check")
	if err != nil {
		return err
	}
	return l.Resign(ctx)
}

// messages tries a channel of a lock, whose name has the form of all of them.
func (x *checkup) messages(ctx context.Context) {
	_, polls := errs.LackSubscribe.About()
	ctx, cancel := context.WithTimeout(ctx, 5*x.server.timeout)
	defer cancel()
	f := finding{"warning", "Pub/Sub", "%v", polls, "allow the user the channels of redlatch acl"}
	channel := keyname.Prefix("redisson_lock__channel", x.server.prefix+x.name)
	sub, err := x.red.Hub().Subscribe(ctx, channel)
	if err != nil {
		x.add(f, err)
		return
	}
	defer sub.Close()
	began := time.Now()
	if _, err = x.red.Hub().Publish(ctx, channel, "0"); err == nil {
		if _, err = sub.Next(ctx); err != nil {
			f.Says, f.Do = "a message did not arrive: %v", "look for a proxy that drops messages"
		}
	}
	if err != nil {
		x.add(f, err)
		return
	}
	x.ok("Pub/Sub", "a message takes %v", time.Since(began).Round(10*time.Microsecond))
}

// profile tries Options{SurviveFailover: true}: whether Open takes the server, and whether replicas confirm a lock.
// What would have to be set is what the looks before have found.
func (x *checkup) profile(ctx context.Context) {
	f := finding{"note", "safe profile", "Open refuses: %v",
		"programs with SurviveFailover do not run here; others may lose locks in a failover",
		"docs/guarantees.md, A safe profile in one word"}
	if x.safe {
		f.Level = "problem"
	}
	if len(x.unmet) > 0 {
		f.Do = "it needs " + strings.Join(x.unmet, ", ")
	}
	red, err := x.server.open(x.option, func(o *redlatch.Options) {
		o.SurviveFailover, o.RetryTimeout = true, x.server.timeout
	})
	if err != nil {
		x.add(f, errors.Unwrap(err)) // without the address
		return
	}
	defer red.Close(context.WithoutCancel(ctx))
	began := time.Now()
	h, err := red.Locks().Fenced(x.name+":safe").TryLock(ctx, 0, 0)
	took := time.Since(began)
	f.Says = "Open accepts the server, and grants nothing: %v"
	if err == nil {
		err = h.Unlock(ctx)
		f.Says = "a lock is not released: %v"
	}
	if err != nil {
		x.add(f, err)
		return
	}
	x.ok("safe profile", "SurviveFailover works: a replica confirmed a lock within %v",
		took.Round(10*time.Microsecond))
}
