//go:build unix

package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
)

// probe is a command that some servers, proxies and users' rights refuse, and what is missing without it.
type probe struct {
	what  string
	level string // of the finding, if it is refused
	send  func(ctx context.Context, x *checkup) error
	means string
	right string // what gives it to a user
	do    string // where the server has no such command
	safe  bool   // the safe profile needs it
}

// lacking is a probe of a command without which the clients of the library go on, which know what they miss.
func lacking(k errs.Lack, level string, send func(ctx context.Context, x *checkup) error, right, do string) probe {
	command, effect := k.About()
	return probe{what: command, level: level, send: send, means: effect, right: right, do: do,
		safe: k == errs.LackWait || k == errs.LackInfo}
}

// probes are the commands that a program may have to do without. The others are tried with what needs them.
func (x *checkup) probes() []probe {
	_, untracked := errs.LackTracking.About()
	all := []probe{
		{what: "RESP3", level: "warning", send: on("HELLO 3"), means: untracked, do: "nothing; clients do without"},
		lacking(errs.LackTracking, "warning", on("CLIENT TRACKING ON OPTIN NOLOOP", "CLIENT CACHING YES"),
			"+client|tracking +client|caching", "nothing; clients do without"),
		{
			what: "MULTI", level: "note", send: on("MULTI", "EXEC"), right: "+multi +exec +pttl",
			means: "counters, stored limits and sold-out stocks are not cached",
			do:    "nothing, if that is fast enough",
		},
		lacking(errs.LackEvalsha, "warning", evalsha, "+evalsha", "nothing; clients do without"),
		lacking(errs.LackNumsub, "warning", numsub, "+pubsub|numsub +pubsub|shardnumsub",
			"nothing; keep WatchdogTimeout short if waiters often die"),
		lacking(errs.LackWait, "note", on("WAIT 0 1"), "+wait",
			"leave MinReplicas at 0, and have resources check tokens (Fenced)"),
		lacking(errs.LackInfo, "warning", said, "+info",
			"see in the provider's console that maxmemory-policy is noeviction"),
		{
			what: "CONFIG GET", level: "note", send: settings, right: "+config|get, which programs do not need",
			means: "check does not see appendfsync and the other settings that INFO leaves out",
			do:    "look for them in the provider's console",
		},
	}
	if x.client.Mode() != rueidis.ClientModeCluster { // whose clients know that they may not
		all = append(all, lacking(errs.LackSlots, "note", slots, "", "nothing, if that is fast enough; "+
			"or be a client of the Cluster itself, by a second address (?addr=)"))
	}
	return all
}

// on sends commands, one after the other, on a connection that is closed afterwards.
func on(lines ...string) func(context.Context, *checkup) error {
	return func(ctx context.Context, x *checkup) error {
		for _, client := range x.client.Nodes() {
			conn, release := client.Dedicate()
			defer release()
			defer conn.Close()
			for _, line := range lines {
				if err := conn.Do(ctx, conn.B().Arbitrary(strings.Fields(line)...).Build()).Error(); err != nil {
					return err
				}
			}
			break // all are of one kind
		}
		return nil
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

func said(_ context.Context, x *checkup) error { return x.nodes[0].noInfo }

func settings(_ context.Context, x *checkup) error { return x.nodes[0].noConfig }

// commands tries what some servers refuse.
func (x *checkup) commands(ctx context.Context) {
	var work []string
	for _, p := range x.probes() {
		if command, _ := errs.LackTracking.About(); p.what == command && !slices.Contains(work, "RESP3") {
			continue // which it needs
		}
		err := x.asked(ctx, p)
		if err == nil {
			work = append(work, p.what)
			continue
		}
		f := finding{p.level, p.what, "", p.means, p.do}
		if p.right != "" && errors.Is(script.Refused(err), redlatch.ErrDenied) {
			f.Do = "give the user " + p.right
		}
		if p.safe {
			x.lack(p.what)
		}
		f.Says, _, _ = strings.Cut(words(err), ", with args") // it repeats them
		x.add(f)
	}
	x.tracks = slices.Contains(work, "CLIENT TRACKING") && !x.option.DisableCache
	x.ok("commands", "%s work", strings.Join(work, ", "))
}

// asked sends what p sends. A proxy may keep silent at a command that it does not know.
func (x *checkup) asked(ctx context.Context, p probe) error {
	ctx, cancel := context.WithTimeout(ctx, x.server.timeout)
	defer cancel()
	return p.send(ctx, x)
}

// lack notes what the safe profile needs and does not have.
func (x *checkup) lack(what string) { x.unmet = append(x.unmet, what) }
