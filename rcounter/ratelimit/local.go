package ratelimit

import (
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// localLimits are the limits of this process while the server is away: a token bucket for each key, at
// LimiterOptions.Share of the rate.
type localLimits struct {
	mu      sync.Mutex
	buckets map[string]*rate.Limiter // by the key of Redis
	tidyAt  int                      // so many buckets are looked through for full ones
}

// leastTidy is the least number of buckets that is looked through.
const leastTidy = 1024

// take takes units of several limits, all or none, or as many of one as there are. Limits under Open pass.
func (l *localLimits) take(r *request) []reply {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	buckets, all, passes := make([]*rate.Limiter, len(r.parts)), make([]reply, len(r.parts)), true
	for i, p := range r.parts {
		if p.l.o.WhenDown != Local {
			all[i] = reply{taken: p.n, free: p.t.burst}
			continue
		}
		buckets[i] = l.bucket(&p, now)
		all[i] = offer(buckets[i], &p, r.upTo, now)
		passes = passes && all[i].taken >= 0
	}
	for i, bucket := range buckets {
		if bucket != nil && passes {
			drain(bucket, all[i].taken, now)
			all[i].free, all[i].empty = state(bucket, now)
		}
	}
	return all
}

// bucket is the bucket of a key. If the terms have changed, its tokens stay.
func (l *localLimits) bucket(p *part, now time.Time) *rate.Limiter {
	share := p.l.o.Share
	speed := rate.Limit(share * float64(p.t.rate) / (float64(p.t.per) / 1e6))
	burst := int(min(max(1, int64(share*float64(p.t.burst))), math.MaxInt))
	bucket := l.buckets[p.key]
	if bucket == nil {
		l.tidy(now)
		bucket = rate.NewLimiter(speed, burst)
		l.buckets[p.key] = bucket
	}
	bucket.SetLimitAt(now, speed)
	bucket.SetBurstAt(now, burst)
	return bucket
}

// tidy forgets the buckets that are full: a new one would be the same.
func (l *localLimits) tidy(now time.Time) {
	if len(l.buckets) < max(leastTidy, l.tidyAt) {
		return
	}
	for key, bucket := range l.buckets {
		if bucket.TokensAt(now) >= float64(bucket.Burst()) {
			delete(l.buckets, key)
		}
	}
	l.tidyAt = 2 * len(l.buckets)
}

// offer says how many units a bucket lets pass, and takes none. More units than its burst pass when it is full, and
// only then: their limit lets them pass, and the share is of one process.
func offer(bucket *rate.Limiter, p *part, upTo bool, now time.Time) reply {
	tokens, needed := bucket.TokensAt(now), min(float64(p.n), float64(bucket.Burst()))
	a := reply{taken: p.n}
	a.free, a.empty = state(bucket, now)
	switch {
	case upTo:
		a.taken, a.wait = min(p.n, a.free), refill(bucket, 1-tokens)
	case p.n > p.t.burst || p.n > 0 && tokens < needed:
		a.taken, a.wait = tookNone, p.patience(refill(bucket, needed-tokens))
	}
	return a
}

// drain takes n units, for which drain's caller has found the bucket full enough. All of them count: of more than the
// burst the bucket is in debt, and the next request waits for n / rate. To count fewer would let large requests pass at
// any rate. package rate refuses them, unless its burst is raised meanwhile.
func drain(bucket *rate.Limiter, n int64, now time.Time) {
	units, burst := int(min(n, math.MaxInt)), bucket.Burst()
	bucket.SetBurstAt(now, max(burst, units))
	bucket.ReserveN(now, units)
	bucket.SetBurstAt(now, burst)
}

// state is how many units a bucket lets pass, and the time until it is full.
func state(bucket *rate.Limiter, now time.Time) (free int64, empty time.Duration) {
	tokens := bucket.TokensAt(now)
	return max(0, int64(tokens)), refill(bucket, float64(bucket.Burst())-tokens)
}

// refill is the time in which a bucket gets so many tokens: in whole microseconds and one more, because package rate
// counts in floating point, and the caller is to find the tokens when it comes.
func refill(bucket *rate.Limiter, tokens float64) time.Duration {
	if tokens <= 0 {
		return 0
	}
	us := tokens / float64(bucket.Limit()) * 1e6
	return time.Duration(min(math.Ceil(us)+1, math.MaxInt64/2e3)) * time.Microsecond
}
