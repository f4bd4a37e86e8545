//go:build unix

package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

func blockers(t *testing.T, r result) (all []blocker) {
	t.Helper()
	require.Zero(t, r.code, r.err)
	require.NoError(t, json.Unmarshal([]byte(r.out), &all), r.out)
	return all
}

func TestInspect_Blocking_HasTheHolderOfTheLongestWaitFirst(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	holder, second, third := open(t, s), open(t, s), open(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	locks := holder.Locks()
	files, err := locks.ReadWrite("files").Read().WithLabel("reader").Lock(ctx)
	keep(t, err, files.Unlock)
	order, err := locks.Reentrant("order").WithLabel("payment").Lock(ctx)
	keep(t, err, order.Unlock)
	stock, err := locks.Fair("stock").WithLabel("payment").Lock(ctx)
	keep(t, err, stock.Unlock)
	free, err := locks.Reentrant("nobody waits").WithLabel("alone").Lock(ctx)
	keep(t, err, free.Unlock)
	permit, err := holder.Semaphores().Semaphore("slots", 1).WithLabel("batch").Acquire(ctx, 1)
	keep(t, err, permit.Release)
	waits := func(n int, wait func(context.Context)) {
		go wait(ctx)
		redistest.Eventually(t, patience, "the waiter is queued", func() bool {
			waiters := 0
			for _, b := range blockers(t, here(s, "", "inspect", "--blocking", "--json", "--call-timeout=5s")) {
				waiters += b.Waiters
			}
			return waiters == n
		})
	}
	waits(1, func(ctx context.Context) { _, _ = second.Locks().ReadWrite("files").Write().Lock(ctx) })
	waits(2, func(ctx context.Context) { _, _ = second.Locks().Reentrant("order").Lock(ctx) })
	waits(3, func(ctx context.Context) { _, _ = third.Locks().Reentrant("order").Lock(ctx) })
	waits(4, func(ctx context.Context) { _, _ = third.Locks().Fair("stock").Lock(ctx) })
	waits(5, func(ctx context.Context) { _, _ = third.Semaphores().Semaphore("slots", 1).Acquire(ctx, 1) })

	all := blockers(t, here(s, "", "inspect", "--blocking", "--json", "--call-timeout=5s"))
	require.Len(t, all, 3)
	require.Equal(t, []string{"reader", "payment", "batch"}, []string{all[0].Who, all[1].Who, all[2].Who})
	require.Equal(t, []int{1, 3, 1}, []int{all[0].Waiters, all[1].Waiters, all[2].Waiters})
	require.Equal(t, []string{"order", "stock"}, all[1].Names)
	for _, b := range all {
		require.Positive(t, *b.Longest)
		require.GreaterOrEqual(t, b.Total, *b.Longest)
	}
	require.Greater(t, *all[0].Longest, *all[1].Longest)
	require.Greater(t, all[1].Total, *all[1].Longest, "of two that wait for order")

	r := here(s, "", "inspect", "--blocking", "order", "nobody waits", "--call-timeout=5s")
	require.Zero(t, r.code, r.err)
	lines := strings.Split(strings.TrimSpace(r.out), "\n")
	require.Len(t, lines, 2)
	require.Regexp(t, `^WHO +WAITERS +LONGEST +TOTAL +HOLDS$`, lines[0])
	require.Regexp(t, `^payment +2 .* order$`, lines[1])
	require.Equal(t, "[]\n", here(s, "", "inspect", "--blocking", "nobody waits", "--json", "--call-timeout=5s").out)
	require.Equal(t, exitUsage, here(s, "", "inspect", "--blocking", "--wide").code)
}

func TestBlockers_SeveralHoldersAndNames_AreOneRowForEachHolder(t *testing.T) {
	t.Parallel()
	ms := func(n int64) *int64 { return &n }
	byWho := map[string]*blocker{}
	for _, s := range []status{
		{Name: "a", Holders: []holder{{Who: "r1"}, {Who: "r2"}, {Who: "r2"}},
			Waiters: []holder{{WaitingMS: ms(40)}, {WaitingMS: ms(60)}}},
		{Name: "b", Holders: []holder{{Who: "r2"}}, Waiters: []holder{{WaitingMS: ms(0)}}},
		{Name: "c", Holders: []holder{{Who: "fair"}}, Waiters: []holder{{WaitingMS: ms(0)}}},
	} {
		block(byWho, s)
	}
	require.Equal(t, map[string]*blocker{
		"r1":   {Who: "r1", Waiters: 2, Longest: ms(60), Total: 100, Names: []string{"a"}},
		"r2":   {Who: "r2", Waiters: 3, Longest: ms(60), Total: 100, Names: []string{"a", "b"}},
		"fair": {Who: "fair", Waiters: 1, Names: []string{"c"}},
	}, byWho)
	require.Equal(t, row{"x", 9, "1m0s", "2m0s", "a, b, c, 2 more"},
		blockerRows([]blocker{{Who: "x", Waiters: 9, Longest: ms(60_000), Total: 120_000,
			Names: []string{"a", "b", "c", "d", "e"}}})[1])
}
