package history_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
)

// inflict plays the network and the server until ctx ends, heals everything, and returns how many faults there were.
// Most last some milliseconds, times pace; long is how long some do.
func inflict(t testing.TB, ctx context.Context, s *redistest.Server, proxies []*redistest.Proxy, rnd *rand.Rand,
	pace, long time.Duration) (n int) {
	direct := s.Client(t)
	for rest := (time.Duration)(0); ; rest = time.Duration(5+rnd.IntN(60)) * pace * time.Millisecond {
		if !script.Pause(ctx, rest) {
			return n
		}
		n++
		p := proxies[rnd.IntN(len(proxies))]
		d := redistest.Direction(rnd.IntN(2))
		lasts := time.Duration(rnd.IntN(80)) * pace * time.Millisecond
		switch kind := rnd.IntN(10); kind {
		case 0, 1:
			p.Cut()
			lasts = 0
		case 2:
			p.Delay(time.Duration(rnd.IntN(10))*pace*time.Millisecond, time.Duration(rnd.IntN(10))*pace*time.Millisecond)
		case 3:
			p.Hold(d)
		case 4:
			p.BlackHole(d)
			if rnd.IntN(4) == 0 {
				lasts = long
			}
		case 5:
			p.Trap(&redistest.Trap{Match: redistest.IsScript, Fate: redistest.LoseReply})
		case 6:
			p.Trap(&redistest.Trap{Match: redistest.IsScript, Fate: redistest.LoseRequestSilently})
		case 7:
			p.SwallowPushes()
		case 8:
			direct.Do(ctx, direct.B().ScriptFlush().Build())
			lasts = 0
		case 9:
			s.Stop(t)
			script.Pause(ctx, lasts)
			s.Resume(t)
			lasts = 0
		}
		script.Pause(ctx, lasts)
		p.Heal()
	}
}
