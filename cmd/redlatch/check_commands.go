//go:build unix

package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/script"
)

// probe is a command that some servers and some users' rights refuse, and what is missing without it.
type probe struct {
	what  string
	level string // of the finding, if it is refused
	send  func(ctx context.Context, x *checkup) error
	means string
	right string // what gives it to a user
	do    string // where the server has no such command
	safe  bool   // the safe profile needs it
}

// probes are the commands that a program may have to do without. The others are tried with what needs them.
var probes = []probe{
	{
		what: "RESP3", level: "warning", send: on("HELLO 3"),
		means: "no keys are tracked: a lock whose key was deleted is lost at its next renewal only",
		do:    "add ?client_cache=0 to --redis; in programs DisableCache: true",
	},
	{
		what: "CLIENT TRACKING", level: "warning", send: on("CLIENT TRACKING ON OPTIN NOLOOP", "CLIENT CACHING YES"),
		right: "+client|tracking +client|caching",
		means: "no keys are tracked: a lock whose key was deleted is lost at its next renewal only",
		do:    "add ?client_cache=0 to --redis; in programs DisableCache: true",
	},
	{
		what: "MULTI", level: "note", send: on("MULTI", "EXEC"), right: "+multi +exec +pttl",
		means: "nothing is cached: Counter.Cached, stored limits and claims on a sold-out stock ask the server every time",
		do:    "nothing, if that is fast enough",
	},
	{
		what: "PUBSUB NUMSUB", level: "warning", send: by((*checkup).numsub), right: "+pubsub|numsub +pubsub|shardnumsub",
		means: "a dead waiter may be given a lock for its first lease; waiters of Redisson come last",
		do:    "nothing; keep WatchdogTimeout short if waiters often die",
	},
	{
		what: "WAIT", level: "note", send: on("WAIT 0 1"), right: "+wait",
		means: "with MinReplicas, and so with Safety: SurviveFailover, nothing is granted",
		do:    "leave MinReplicas at 0, and have resources check tokens (Fenced)", safe: true,
	},
	{
		what: "INFO", level: "warning", send: by((*checkup).said), right: "+info",
		means: "no warning of eviction, no vote for a Quorum; Strict sees nothing, and Durable refuses the server",
		do:    "see in the provider's console that maxmemory-policy is noeviction", safe: true,
	},
	{
		what: "CONFIG GET", level: "note", send: by((*checkup).configured), right: "+config|get, which programs do not need",
		means: "check does not see appendfsync and the other settings that INFO leaves out",
		do:    "look for them in the provider's console",
	},
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

// by is a probe that is a method.
func by(ask func(*checkup, context.Context) error) func(context.Context, *checkup) error {
	return func(ctx context.Context, x *checkup) error { return ask(x, ctx) }
}

// numsub asks for the listeners of a channel as scripts do.
func (x *checkup) numsub(ctx context.Context) error {
	ask := "NUMSUB"
	if x.client.Mode() == rueidis.ClientModeCluster {
		ask = "SHARDNUMSUB"
	}
	return x.client.Do(ctx, x.client.B().Eval().Script("return redis.call('PUBSUB', '"+ask+"', KEYS[1])").Numkeys(1).
		Key(x.server.prefix+x.name+":listeners").Build()).Error()
}

func (x *checkup) said(context.Context) error { return x.nodes[0].noInfo }

func (x *checkup) configured(context.Context) error { return x.nodes[0].noConfig }

// commands tries what some servers refuse.
func (x *checkup) commands(ctx context.Context) {
	var work []string
	for _, p := range probes {
		if p.what == "CLIENT TRACKING" && !slices.Contains(work, "RESP3") {
			continue // which it needs
		}
		err := p.send(ctx, x)
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
	x.ok("commands", "%s work", strings.Join(work, ", "))
}

// lack notes what the safe profile needs and does not have.
func (x *checkup) lack(what string) { x.unmet = append(x.unmet, what) }
