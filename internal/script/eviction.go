package script

import (
	"context"
	"strings"
)

// EvictionAsked reports whether it was called before. So one caller in a runner's life asks whether the servers may
// evict keys, with its first success; to the others it costs the read of a bool.
func (r *Runner) EvictionAsked() bool { return r.evictionAsked.Load() || r.evictionAsked.Swap(true) }

// EvictionPolicy returns the first policy other than noeviction among the nodes, and "" if there is none or none of
// them says so before ctx ends. It asks by INFO, which is allowed where CONFIG is forbidden. It asks on connections of
// its own: two calls at a time make rueidis pipeline on that connection from then on, which is slower for a single
// caller.
func (r *Runner) EvictionPolicy(ctx context.Context) string {
	for _, node := range r.client.Nodes() {
		if ctx.Err() != nil {
			return ""
		}
		conn, release := node.Dedicate()
		text, err := conn.Do(ctx, conn.B().Info().Section("memory").Build()).ToString()
		conn.Close()
		release()
		if err != nil {
			continue
		}
		for line := range strings.Lines(text) {
			if policy, ok := strings.CutPrefix(strings.TrimSpace(line), "maxmemory_policy:"); ok && policy != "noeviction" {
				return policy
			}
		}
	}
	return ""
}
