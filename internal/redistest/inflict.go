package redistest

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"
)

// Inflict plays the network and the server until ctx ends, heals everything, and returns how many faults there were.
// Most last some milliseconds; long is how long some do.
func Inflict(t testing.TB, ctx context.Context, s *Server, proxies []*Proxy, rnd *rand.Rand,
	long time.Duration) (n int) {
	direct := s.Client(t)
	for rest := (time.Duration)(0); ; rest = time.Duration(5+rnd.IntN(60)) * time.Millisecond {
		if !Pause(ctx, rest) {
			return n
		}
		n++
		p := proxies[rnd.IntN(len(proxies))]
		d := Direction(rnd.IntN(2))
		lasts := time.Duration(rnd.IntN(80)) * time.Millisecond
		switch kind := rnd.IntN(10); kind {
		case 0, 1:
			p.Cut()
			lasts = 0
		case 2:
			p.Delay(time.Duration(rnd.IntN(10))*time.Millisecond, time.Duration(rnd.IntN(10))*time.Millisecond)
		case 3:
			p.Hold(d)
		case 4:
			p.BlackHole(d)
			if rnd.IntN(4) == 0 {
				lasts = long
			}
		case 5:
			p.Trap(&Trap{Match: IsScript, Fate: LoseReply})
		case 6:
			p.Trap(&Trap{Match: IsScript, Fate: LoseRequestSilently})
		case 7:
			p.SwallowPushes()
		case 8:
			direct.Do(ctx, direct.B().ScriptFlush().Build())
			lasts = 0
		case 9:
			s.Stop(t)
			Pause(ctx, lasts)
			s.Resume(t)
			lasts = 0
		}
		Pause(ctx, lasts)
		p.Heal()
	}
}

// IsScript matches calls of scripts.
func IsScript(words []string) bool { return words[0] == "EVALSHA" || words[0] == "EVAL" }

// Pause waits, and reports whether ctx lasted that long.
func Pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
