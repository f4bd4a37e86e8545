package script

import (
	"cmp"
	"context"
	"strings"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
)

// EvictionAsked reports whether it was called before. So one caller in a runner's life asks whether the servers may
// evict keys, with its first success; to the others it costs the read of a bool.
func (r *Runner) EvictionAsked() bool { return r.evictionAsked.Load() || r.evictionAsked.Swap(true) }

// EvictionPolicy is EvictionPolicy of the runner's client.
func (r *Runner) EvictionPolicy(ctx context.Context) string {
	policy, err := EvictionPolicy(ctx, r.client)
	if Unsupported(err) {
		r.Lacks.Add(errs.LackInfo, err)
	}
	return policy
}

// EvictionPolicy returns the first policy other than noeviction among the nodes. It is "" if all nodes have noeviction,
// or no node says its policy before ctx ends. err is a refusal to say it, or the reason why no node answered.
func EvictionPolicy(ctx context.Context, client rueidis.Client) (policy string, err error) {
	silent := eachInfo(ctx, client, []string{"memory"}, func(info map[string]string, refusal error) bool {
		if value := info["maxmemory_policy"]; refusal == nil && value != "noeviction" {
			policy = value
		} else if refusal != nil {
			err = refusal
		}
		return policy == ""
	})
	return policy, cmp.Or(err, silent)
}

// Setting is a setting of a server that lets it forget what it has confirmed.
type Setting struct {
	Name, Value string
	Must        string // the value that it needs
}

// Forgetful returns the first setting among the nodes by which a server may forget what it has confirmed, or nil. A
// node that refuses to say its settings counts as one, because a promise depends on it. A node that cannot be reached
// is passed over, because a node of a Cluster may be down at any time. err is the reason why no node answered.
//
// A server without an append-only file begins with its last snapshot, or with nothing, when it is started again; and
// its replicas begin likewise, if that is done before one of them was promoted. A primary that does not need its
// replicas to be there goes on when it was cut off from them, and grants again what the promoted replica has granted.
func Forgetful(ctx context.Context, client rueidis.Client) (found *Setting, err error) {
	err = eachInfo(ctx, client, []string{"persistence", "replication"}, func(info map[string]string, err error) bool {
		switch {
		case err != nil:
			found = &Setting{"INFO", err.Error(), "allowed, to see the server's settings"}
		case info["aof_enabled"] != "1":
			found = &Setting{"appendonly", "no", "yes"}
		case info["role"] == "master" && info["min_slaves_good_slaves"] == "": // the field is there if replicas are needed
			found = &Setting{"min-replicas-to-write", "0", "1 or more"}
		}
		return found == nil
	})
	return found, err
}

// eachInfo calls f with the INFO of each node that answers, or with its refusal, until f returns false or ctx ends.
// silent is the last error if no node answered. INFO is allowed where CONFIG is forbidden. Each node is asked on a
// connection of its own: two calls at a time make rueidis pipeline on a connection from then on, which is slower for a
// single caller.
func eachInfo(ctx context.Context, client rueidis.Client, sections []string,
	visit func(info map[string]string, refusal error) bool) (silent error) {
	answered := false
	for _, node := range client.Nodes() {
		if ctx.Err() != nil {
			break
		}
		conn, release := node.Dedicate()
		text, err := conn.Do(ctx, conn.B().Info().Section(sections...).Build()).ToString()
		conn.Close()
		release()
		if _, refused := rueidis.IsRedisErr(err); err != nil && !refused {
			silent = err
			continue
		}
		answered = true
		info := map[string]string{}
		for line := range strings.Lines(text) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
				info[name] = value
			}
		}
		if !visit(info, err) {
			break
		}
	}
	if answered {
		return nil
	}
	return silent
}
