//go:build unix

package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redlatch/redlatch"
)

// profile tries Options{Safety: SurviveFailover}: whether Open takes the server, and whether replicas confirm a lock.
// What would have to be set is what the looks before have found.
func (x *checkup) profile(ctx context.Context) {
	level := "note"
	if x.safe {
		level = "problem"
	}
	do := "see docs/safety.md, A safe profile in one word"
	if len(x.unmet) > 0 {
		do = "it needs " + strings.Join(x.unmet, ", ")
	}
	const means = "programs with Safety: SurviveFailover do not run here; others may lose what they hold in a failover"
	red, err := x.server.open(x.option, func(o *redlatch.Options) {
		o.Safety, o.RetryTimeout = redlatch.SurviveFailover, x.server.timeout
	})
	if err != nil {
		x.add(finding{level, "safe profile", "Open refuses: %v", means, do}, errors.Unwrap(err)) // without the address
		return
	}
	defer red.Close(context.WithoutCancel(ctx))
	name := x.name + ":safe"
	defer x.removeToken(ctx, name)
	began := time.Now()
	h, err := red.Locks().Fenced(name).TryLock(ctx, 0, 0)
	took := time.Since(began)
	if err != nil {
		x.add(finding{level, "safe profile", "Open accepts the server, and grants nothing: %v", means, do}, err)
		return
	}
	if err := h.Unlock(ctx); err != nil {
		x.add(finding{level, "safe profile", "a lock is not released: %v", means, do}, err)
		return
	}
	x.ok("safe profile", "Safety: SurviveFailover works: a replica confirmed a lock within %v",
		took.Round(10*time.Microsecond))
}
