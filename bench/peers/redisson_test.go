package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"

	"github.com/redlatch/redlatch/internal/interop"
)

// needJava fails on an error of package interop. Without a JDK and Maven it skips, unless these are required.
func needJava(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, interop.ErrNoJava) && os.Getenv(interop.RequireEnv) != "1" {
		t.Skip(err)
	}
	require.NoError(t, err)
}

func TestRedissonTakesPartWhenAsked(t *testing.T) {
	redistest.NeedServer(t)
	build, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	defer stop()
	_, err := interop.Build(build)
	needJava(t, err)
	b, ctx := brief(t)
	b.cfg.Peers = []string{redlatchPeer.Name, redissonPeer.Name, redissonDriver.Name}
	b.cfg.Workloads = []string{uncontended, contended, handingOver, permits, sharing, inOrder}
	b.cfg.Crowd, b.cfg.Away, b.cfg.Queued = 1, []time.Duration{0}, 100*time.Millisecond
	for _, p := range peers { // each is used once when it is opened
		if p.Queue != "" && p.Optional {
			b.cfg.Peers = append(b.cfg.Peers, p.Name)
		}
	}
	b.cfg.Duration, b.cfg.Handover, b.cfg.WarmUp = 300*time.Millisecond, 400*time.Millisecond, 20*time.Millisecond
	var shown bytes.Buffer
	rows, err := b.run(ctx, &progress{w: &shown})
	t.Logf("%s", &shown)
	require.NoError(t, err)
	require.Len(t, rows, len(b.plan()))
	var acquired int64
	for _, r := range rows {
		require.Zero(t, r.Overlaps, "%+v", r)
		require.Zero(t, r.Errors, "%+v", r)
		if r.Peer == redissonPeer.Name && r.Workload == contended {
			acquired += r.Ops
		}
		require.False(t, r.Peer == redissonDriver.Name && r.Workload != uncontended, "%+v", r)
	}
	require.Positive(t, acquired)
	version, err := redissonVersion(ctx)
	require.NoError(t, err)
	require.NotEmpty(t, version)
}
