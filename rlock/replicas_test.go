package rlock_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	wire "github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/rlock"
)

// rueidis follows a redirection with the script alone, and WAIT is answered by the node that sent it on.
func TestReplicas_SlotMigrated_ConfirmWhereItWasGranted(t *testing.T) {
	t.Parallel()
	s := redistest.ReplicatedCluster(t)
	m := wire.NewMove(t, s.Server, "l")
	var to redistest.Pair
	for _, p := range s.Pairs {
		if p.Primary.Addr() == m.ToAddr {
			to = p
		}
	}
	c := dialled(t, s, rlock.Options{MinReplicas: 1, ReplicaTimeout: 100 * time.Millisecond, CallTimeout: 2 * time.Second})
	granted := func(what string) {
		t.Helper()
		redistest.Eventually(t, 20*time.Second, what, func() bool {
			h, err := c.Reentrant("l").TryLock(within(t), 0, 0)
			return err == nil && h.Unlock(within(t)) == nil
		})
	}
	refused := func(what string) {
		t.Helper()
		_, err := c.Reentrant("l").TryLock(within(t), 0, 0)
		require.ErrorIs(t, err, errs.ErrNotReplicated, what)
		n, err := c.Reentrant("l").IsLocked(within(t))
		require.NoError(t, err)
		require.False(t, n, "taken back")
	}
	granted("granted where it was")
	m.Begin()
	granted("granted where its slot goes to, by ASK")
	to.Replica.Stop(t)
	refused("by ASK, not replicated")
	to.Replica.Resume(t) // Valkey has it confirm who has the slot
	m.End()
	to.Replica.Stop(t)
	refused("by MOVED, not replicated")
	to.Replica.Resume(t)
	granted("granted where its slot is now")

	h := lock(t, c.Reentrant("l"), within(t))
	to.Replica.Stop(t)
	require.ErrorIs(t, h.Extend(within(t), time.Hour), errs.ErrNotReplicated)
	require.Less(t, time.Until(h.Until()), time.Minute)
	to.Replica.Resume(t)
	redistest.Eventually(t, 20*time.Second, "extended", func() bool { return h.Extend(within(t), time.Hour) == nil })
	require.NoError(t, h.Unlock(within(t)))
}

// WAIT speaks of what its own connection wrote: from Redis 7.2 on, after a script that wrote nothing, of nothing.
func TestConfirmation_NothingToRaise_IsAWrite(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	r := newRig(t, s, rlock.Options{WatchdogTimeout: lease})
	changes := func() string {
		info := s.Ask(t, "INFO", "persistence")
		_, rest, _ := strings.Cut(info, "rdb_changes_since_last_save:")
		n, _, _ := strings.Cut(rest, "\r\n")
		return n
	}
	locks := map[string]*rlock.Lock{"Fair": r.locks.Fair("Fair"), "Read": r.locks.ReadWrite("Read").Read(),
		"Write": r.locks.ReadWrite("Write").Write()}
	for name, k := range exclusive {
		locks[name] = k.lock(r.locks, name)
	}
	for name, l := range locks {
		h := lock(t, l, within(t))
		require.NoError(t, h.Extend(within(t), 2*lease))
		before := changes()
		require.NoError(t, h.Extend(within(t), time.Minute)) // there is more already
		require.NotEqual(t, before, changes(), name)
		require.NoError(t, h.Unlock(within(t)))
	}

	// an acquisition that is asked again, and has more already
	g := newScriptRig(t, s)
	src := map[string]string{"acquire": source(t, "acquire"), "fair_acquire": source(t, "fair_acquire"),
		"plain_acquire": source(t, "plain_acquire")}
	for name, keys := range map[string][]string{"acquire": {"a"}, "fair_acquire": {"b", "bq", "bt"},
		"plain_acquire": {"c"}} {
		args := []string{alice, "60000", "0", "PUBLISH", "GRANTS", "", "g:", ""}
		switch name {
		case "acquire":
			args = args[:6]
		case "plain_acquire":
			args = args[:3]
		}
		_, err := eval(t, g.c, src[name], keys, args...)
		require.NoError(t, err, name)
		args[slices.Index(args, "60000")] = "30000"
		before := changes()
		_, err = eval(t, g.c, src[name], keys, args...)
		require.NoError(t, err, name)
		require.NotEqual(t, before, changes(), name)
	}
}
