//go:build unix

package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

func TestInspect_ManyOtherKeys_FindsEveryHold(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := s.Client(t)
	ctx := context.Background()
	for i := range 300 {
		require.NoError(t, c.Do(ctx, c.B().Set().Key(fmt.Sprintf("app:text:%d", i)).Value("7").Build()).Error())
		require.NoError(t, c.Do(ctx,
			c.B().Hset().Key(fmt.Sprintf("app:hash:%d", i)).FieldValue().FieldValue("field", "1").Build()).Error())
	}
	s.Ask(t, "SET", "{app:slots}", "7") // is no Semaphore: Redisson's permits of one would be those of app:slots
	red := open(t, s)
	h1, err := red.Locks().Fenced("app:job").WithLabel("one\x1b[31m").Lock(ctx)
	keep(t, err, h1.Unlock)
	h2, err := red.Locks().ReadWrite("app:files").Write().WithLabel("writer").Lock(ctx)
	keep(t, err, h2.Unlock)
	h3, err := red.Locks().Plain("app:plain").Lock(ctx)
	keep(t, err, h3.Unlock)
	h4, err := red.Semaphores().Semaphore("app:slots", 3).WithLabel("two").Acquire(ctx, 1)
	keep(t, err, h4.Release)
	h5, err := red.Locks().Reentrant("other").Lock(ctx)
	keep(t, err, h5.Unlock)

	args := []string{"inspect", "--call-timeout=5s"}
	all := statuses(t, run(t, urlOf(s), append(args, "--json")...))
	var names []string
	for _, x := range all {
		names = append(names, x.Name)
		require.True(t, x.Held, x.Name)
	}
	require.Equal(t, []string{"app:files", "app:job", "app:plain", "app:slots", "other"}, names)
	require.Equal(t, "write", all[0].Mode)
	require.NotZero(t, all[1].Token)
	require.Equal(t, "semaphore", all[3].Kind)
	require.Equal(t, 2, *all[3].Available)
	require.Equal(t, "two", all[3].Holders[0].Who)

	all = statuses(t, run(t, urlOf(s), append(args, "--json", "--prefix", "app:", "--match", "j*")...))
	require.Len(t, all, 1)
	require.Equal(t, "job", all[0].Name)

	r := run(t, urlOf(s), "inspect", "app:job", "nobody", "--call-timeout=5s")
	require.Zero(t, r.code, r.err)
	lines := strings.Split(strings.TrimSpace(r.out), "\n")
	require.Len(t, lines, 3)
	require.Contains(t, lines[1], "one?[31m") // a label cannot write to the terminal
	require.Contains(t, lines[2], "free")
}

// A program that sets no label is shown by its process.
func TestInspect_HolderWithoutALabel_NamesItsProcess(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	red, err := redlatch.Open(t.Context(), s.Option(), redlatch.Options{Process: "web-7", CallTimeout: 5 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { red.Close(context.Background()) })
	h, err := red.Locks().Reentrant("job").Lock(t.Context())
	keep(t, err, h.Unlock)
	p, err := red.Semaphores().Semaphore("slots", 1).Acquire(t.Context(), 1)
	keep(t, err, p.Release)
	for _, args := range [][]string{{"inspect", "job", "slots"}, {"inspect"}} {
		redistest.Eventually(t, patience, "both are named", func() bool {
			return strings.Count(here(s, "", args...).out, "web-7") == 2
		})
	}
	r := here(s, "", "unlock", "--force", "--yes", "job")
	require.Contains(t, r.err, "held by web-7")
	for _, of := range [][]string{{"--lock", "job"}, {"--semaphore", "slots", "-c", "1"}} {
		if of[0] == "--lock" {
			h, err = red.Locks().Reentrant("job").Lock(t.Context())
			keep(t, err, h.Unlock)
		}
		r = run(t, urlOf(s), append(append([]string{"run", "-n"}, of...), "--", "true")...)
		require.Equal(t, exitConflict, r.code)
		require.Contains(t, r.err, "held by web-7")
	}
}

func TestUnlock_ForcedTwice_TakesTheLockOnce(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	h6, err := open(t, s).Locks().Reentrant("a").Lock(context.Background())
	keep(t, err, h6.Unlock)
	for _, code := range []int{0, 1} {
		r := run(t, urlOf(s), "unlock", "--force", "--yes", "a", "--call-timeout=5s")
		require.Equal(t, code, r.code, r.err)
		require.Empty(t, r.out)
	}
}
