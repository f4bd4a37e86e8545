package redlatchdebug_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/redlatchdebug"
	"github.com/redlatch/redlatch/redlatchtest"
)

// What limits is on the page as long as it is remembered, with what the server says of it now.
func TestPage_LimitRefused_IsShownWithTheServersAnswer(t *testing.T) {
	t.Parallel()
	srv := redlatchtest.New(t)
	red := srv.Open(redlatch.Options{Limiters: func(o *ratelimit.Options) {
		o.KeyPrefix, o.AllowTimeout = "shop:", patience
	}})
	h := redlatchdebug.Handler(red)
	hourly := ratelimit.LimiterOptions{Rate: 4, Per: time.Hour}
	daily := ratelimit.LimiterOptions{Rate: 2, Algorithm: ratelimit.FixedWindow, Unit: ratelimit.Year}
	api, exports := red.Limiters().Limiter("api", hourly), red.Limiters().Limiter("exports", daily)
	ask := func(l *ratelimit.Limiter, key string, n int64, allowed bool) {
		a := redistest.NoError(l.Allow(t.Context(), key, n))(t)
		require.Equal(t, allowed, a.Allowed)
	}
	ask(api, "bob", 1, true)
	require.Zero(t, read(t, h, "").Limits.Total, "what passes is not remembered")

	ask(api, "a:b", 4, true)
	ask(api, "a:b", 1, false)
	ask(api, "a:{nn}", 3, true)
	ask(api, "a:{nn}", 2, false)
	d := redistest.NoError(red.Limiters().AllowAll(t.Context(), ratelimit.Take{Limiter: api, Key: "bob", N: 1},
		ratelimit.Take{Limiter: api, Key: "eve", N: 1}))(t)
	require.True(t, d.Allowed)
	ask(exports, "", 2, true)
	d = redistest.NoError(red.Limiters().AllowAll(t.Context(), ratelimit.Take{Limiter: api, Key: "bob", N: 1},
		ratelimit.Take{Limiter: exports, N: 1}))(t)
	require.False(t, d.Allowed)

	p := read(t, h, "")
	require.Equal(t, 3, p.Limits.Total)
	require.Equal(t, "a:b", p.Limits.Shown[2].Key)
	exported, ann := p.Limits.Shown[0], p.Limits.Shown[1]
	require.Equal(t, []any{"limiters", "FixedWindow", "exports", "", int64(1), int64(2)},
		[]any{exported.Client, exported.Kind, exported.Name, exported.Key, exported.Units, exported.Burst}, "the last first")
	require.Equal(t, []any{"limiters", "GCRA", "api", "a:{nn}", int64(2), int64(4)},
		[]any{ann.Client, ann.Kind, ann.Name, ann.Key, ann.Units, ann.Burst})
	quarter := float64(time.Hour.Milliseconds() / 4)
	require.InDelta(t, quarter, ann.PassesMs, float64(patience.Milliseconds()),
		"three of four are taken, and two are wanted")
	require.GreaterOrEqual(t, ann.RefusedMs, exported.RefusedMs)

	require.Len(t, p.Server.Objects, 3)
	for i, free := range []int64{0, 1} {
		o := p.Server.Objects[i]
		require.Equal(t, []any{"limiters", p.Limits.Shown[i].Name, p.Limits.Shown[i].Key, "", free, p.Limits.Shown[i].Burst},
			[]any{o.Client, o.Name, o.Key, o.Error, *o.Free, *o.Capacity})
	}
	require.InDelta(t, 3*quarter, *p.Server.Objects[1].LeaseLeftMs, float64(patience.Milliseconds()),
		"until all of them may pass")
	html := get(t, h, "").Body.String()
	require.Contains(t, html, "1 of 4 remaining, full again in ")
	require.Contains(t, html, "<code>a:{nn}</code>")

	require.Equal(t, 1, read(t, h, "name={nn").Limits.Total, "by its key")
	require.Equal(t, 1, read(t, h, "name=expo").Limits.Total, "by its name")
	require.Len(t, read(t, h, "n=1").Limits.Shown, 1)
	require.NoError(t, api.Reset(t.Context(), "a:{nn}"))
	require.Equal(t, 2, read(t, h, "").Limits.Total, "what starts anew refuses nothing")
}

func TestPage_PolicyAnswers_IsShownUntilTheServerDoes(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	srv := redlatchtest.New(t)
	red := srv.Open(redlatch.Options{Limiters: func(o *ratelimit.Options) { o.AllowTimeout = 200 * time.Millisecond }})
	h := redlatchdebug.Handler(red)
	api := red.Limiters().Limiter("api", ratelimit.LimiterOptions{Rate: 10, WhenDown: ratelimit.Open})
	silent := srv.Break(redlatchtest.Fault{Kind: redlatchtest.Silent, Name: "api"})
	a := redistest.NoError(api.Allow(t.Context(), "", 1))(t)
	require.Error(t, a.Down)
	p := read(t, h, "server=no")
	require.Len(t, p.Policies, 1)
	require.Equal(t, "api Open", fmt.Sprint(p.Policies[0].Name, " ", p.Policies[0].Policy))
	require.Contains(t, get(t, h, "server=no").Body.String(), "Its WhenDown policy decides: Open, last ")
	require.Empty(t, read(t, h, "server=no&name=other").Policies)
	silent.Heal()
	require.Eventually(t, func() bool {
		redistest.NoError(api.Allow(t.Context(), "", 1))(t)
		return len(read(t, h, "server=no").Policies) == 0
	}, patience, 10*time.Millisecond)
	require.False(t, strings.Contains(get(t, h, "server=no").Body.String(), "Its WhenDown policy decides"))
}
