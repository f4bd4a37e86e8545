package contract_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/ratelimit"
	"github.com/redlatch/redlatch/rcounter/redpacket"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/redlatch/redlatch/rlock/election"
	"github.com/redlatch/redlatch/rsemaphore"
	"github.com/redlatch/redlatch/rsemaphore/counting"
)

const (
	lifetime = 100 * 365 * 24 * time.Hour // the longest of all
	maxInt53 = 1<<53 - 1
)

// badTexts are texts of at most 1024 bytes that nothing is called, by what the error says.
var badTexts = map[string]string{"empty": "", "1025": strings.Repeat("x", 1024+1), "UTF-8": "a\xff",
	`"a\x00b" has a NUL`: "a\x00b"}

// add adds errors that say the same.
func (r refusals) add(says string, all ...error) { r[says] = append(r[says], all...) }

// calls adds the errors of acts.
func (r refusals) calls(t *testing.T, says string, acts []act) {
	for _, a := range acts {
		r.add(says, a.do(t.Context()))
	}
}

func badOfLocks(t *testing.T, red *redlatch.Client) map[string]map[error]refusals {
	ctx, e, jobs := t.Context(), red.Elections(), red.Elections().Shards("jobs", 4)
	tables, long := map[string]map[error]refusals{}, strings.Repeat("x", 257)
	for kind, of := range lockKinds {
		l, bad := of(red.Locks(), "ok"), refusals{}
		for _, d := range []time.Duration{-1, time.Nanosecond, 10*time.Millisecond - 1, lifetime + 1} {
			bad.add("leaseTime is "+d.String(), err1(l.TryLock(ctx, 0, d)), err1(l.WithLease(d).Lock(ctx)))
		}
		bad.add("waitTime is -1ns", err1(l.TryLock(ctx, -1, 0)), l.WithWait(-1).Do(ctx, nothing))
		bad.add("label is", err1(l.WithLabel(long).Lock(ctx)), err1(l.WithLabel(long).IsLocked(ctx)))
		tables[columnOf(kind)] = map[error]refusals{errs.ErrInvalidOption: bad}
	}
	spin := tables["spin"][errs.ErrInvalidOption]
	for says, bounds := range map[string][2]time.Duration{
		"shortest sleep is 1µs": {time.Microsecond, 0}, "longest sleep is 1ms": {time.Second, time.Millisecond},
		"longest sleep is -1ns":  {0, -1},
		"shortest sleep is -1ns": {-1, 0}, "longest sleep is 1752000h": {0, 2 * lifetime},
	} {
		spin.add(says, err1(red.Locks().Spin("l", bounds[0], bounds[1]).TryLock(ctx, 0, 0)))
	}
	tables["election"] = map[error]refusals{errs.ErrInvalidOption: {
		"Heartbeat is": {err1(election.New(red.Hub(), election.Options{Heartbeat: time.Millisecond})),
			err1(election.New(red.Hub(), election.Options{Heartbeat: time.Minute}))},
		"Process is": {err1(election.New(red.Hub(), election.Options{Process: "\xff"}))},
		"value is":   {err1(e.Election("boss").Campaign(ctx, long)), e.Election("boss").Run(ctx, "\xff", nil)},
	}}
	tables["shards"] = map[error]refusals{errs.ErrInvalidOption: {
		"n is 0":    {err1(e.Shards("jobs", 0).Workers(ctx))},
		"n is 4097": {err1(e.Shards("jobs", 4097).Workers(ctx))},
		"xxx":       {jobs.Run(ctx, long, nil), jobs.Drain(ctx, long, time.Hour), err1(jobs.Slot(ctx, long))},
		"is 1s":     {jobs.Drain(ctx, "ann", time.Second)},
	}, errs.ErrInvalidName: {"empty": {err1(e.Shards("", 4).Slot(ctx, ""))}}}
	return tables
}

func badOfPermits(t *testing.T, red *redlatch.Client) map[string]map[error]refusals {
	ctx, c := t.Context(), red.Semaphores()
	sem, weighted, counting, latch := c.Semaphore("s", 5), c.WeightedSemaphore("w", 10), counting.New(c, "c"),
		c.CountDownLatch("l")
	id, long := strings.Repeat("00", 16), strings.Repeat("x", 257)
	both := func(s *rsemaphore.Semaphore) refusals { // of both kinds
		return refusals{
			"n is 0":                     {err1(s.Acquire(ctx, 0))},
			"n is -1":                    {err1(s.TryAcquire(ctx, -1, 0, 0))},
			"waitTime is -1s":            {err1(s.TryAcquire(ctx, 1, -time.Second, 0))},
			"leaseTime is 1ms":           {err1(s.TryAcquire(ctx, 1, 0, time.Millisecond))},
			"label is":                   {err1(s.WithLabel(long).Acquire(ctx, 1)), err1(s.WithLabel(long).Inspect(ctx))},
			"d is 1ms":                   {s.ExtendIDs(ctx, time.Millisecond, id)},
			"d is 0s":                    {s.ExtendIDs(ctx, 0, id)},
			"number of ids is 0":         {s.ReleaseIDs(ctx), s.ExtendIDs(ctx, time.Second)},
			"number of different ids is": {s.ReleaseIDs(ctx, id, id), err1(s.InspectIDs(ctx, id, id))},
			`id is "x"`:                  {s.ReleaseIDs(ctx, "x"), err1(s.InspectIDs(ctx, "x"))},
			"must be 32 hex":             {s.ReleaseIDs(ctx, strings.Repeat("0g", 16))},
			"capacity is -1":             {err1(s.Resize(ctx, -1))},
		}
	}
	permits, weights := both(sem), both(weighted)
	for says, err := range map[string]error{
		"n is 1001":                  err1(c.Semaphore("s", 5000).Acquire(ctx, 1001)),
		"capacity is 0":              err1(c.Semaphore("s", 0).Acquire(ctx, 1)),
		"capacity is 2147483648":     err1(c.Semaphore("s", 1<<31).Acquire(ctx, 1)),
		"revision is 0":              err1(sem.WithRevision(0).Acquire(ctx, 1)),
		"revision is -1":             err1(sem.WithRevision(-1).Acquire(ctx, 1)),
		"revision is 90071992547409": err1(sem.WithRevision(1<<53).Acquire(ctx, 1)),
		"must be 1 to 2147483647":    err1(sem.Resize(ctx, -3)),

		"capacity of a Fenced semaphore is 2, must be 1": err1(c.Semaphore("s", 2).Fenced().Acquire(ctx, 1)),
	} {
		permits.add(says, err)
	}
	permits.add("Heartbeat is ", err1(rsemaphore.New(red.Hub(), rsemaphore.Options{Heartbeat: 49 * time.Millisecond})))
	weights.add("capacity is 0", err1(c.WeightedSemaphore("w", 0).Acquire(ctx, 1)))
	weights.add("capacity is 9007199254740992", err1(c.WeightedSemaphore("w", 1<<53).Available(ctx)))
	weights.add("n is 9007199254740992", err1(weighted.TryAcquire(ctx, 1<<53, 0, 0)))
	return map[string]map[error]refusals{
		"semaphore": {errs.ErrInvalidOption: permits},
		"weighted":  {errs.ErrInvalidOption: weights},
		"counting": {errs.ErrInvalidOption: {
			"permits is 0":           {counting.Acquire(ctx, 0)},
			"permits is -1":          {counting.TryAcquire(ctx, -1, 0)},
			"permits is 2147483648":  {counting.Release(ctx, 1<<31)},
			"permits is -2147483649": {err1(counting.AddPermits(ctx, -1<<31-1))},
			"permits is 2147483649":  {err1(counting.AddPermits(ctx, 1<<31+1))},
			"permits is -7":          {counting.Release(ctx, -7)},
			"permits is -8":          {err1(counting.TrySetPermits(ctx, -8, 0))},
			"waitTime is -1s":        {counting.TryAcquire(ctx, 1, -time.Second)},
			"ttl is 1µs":             {err1(counting.TrySetPermits(ctx, 1, time.Microsecond))},
			"ttl is -1s":             {err1(counting.TrySetPermits(ctx, 1, -time.Second))},
			"permits is -2147483648": {counting.Release(ctx, -1<<31)},
		}},
		"latch": {errs.ErrInvalidOption: {
			"count is 0":                {err1(latch.TrySetCount(ctx, 0, 0))},
			"count is -1":               {err1(latch.TrySetCount(ctx, -1, 0))},
			"count is 9007199254740993": {err1(latch.TrySetCount(ctx, 1<<53+1, 0))},
			"ttl is 1µs":                {err1(latch.TrySetCount(ctx, 1, time.Microsecond))},
			"ttl is -1s":                {err1(latch.TrySetCount(ctx, 1, -time.Second))},
			`participant is ""`:         {err1(latch.CountDownBy(ctx, ""))},
			`participant is "\xff"`:     {err1(latch.CountDownBy(ctx, "\xff"))},
			`participant is "xxxxx`:     {err1(latch.CountDownBy(ctx, strings.Repeat("x", 1025)))},
		}},
		"barrier": {errs.ErrInvalidOption: {
			"parties is 0":     {err1(c.CyclicBarrier("b", 0).Await(ctx))},
			"parties is -1":    {err1(c.CyclicBarrier("b", -1).Await(ctx))},
			"parties is 10001": {err1(c.CyclicBarrier("b", 10_001).Await(ctx))},
		}},
	}
}

func badOfStocks(t *testing.T, red *redlatch.Client) map[string]map[error]refusals {
	ctx, s, g := t.Context(), red.Stocks().Stock("s"), red.Stocks().Group("sale")
	options, names := refusals{}, refusals{}
	line := func(n int64, name string) stock.Line { return stock.Line{Stock: name, N: n} }
	cart := func(lines ...stock.Line) error {
		return err1(g.Reserve(ctx, "u", stock.CartRequest{ID: "id", Lines: lines}, time.Minute))
	}
	nothing := func(context.Context, []stock.Entry) error { return nil }
	for says, spec := range map[string]stock.Spec{
		"Limit is 0":                          {},
		"Limit is -1":                         {Limit: -1, OpenFor: time.Hour},
		"must be between 1 and 9007199254740": {Limit: 1 << 53, OpenFor: time.Hour},
		"Limit is 9007199254740992":           {Limit: 1 << 53, OpenFor: time.Hour},
		"PerUser is 9007199254740992":         {Limit: 1, PerUser: 1 << 53, OpenFor: time.Hour},
		"PerUser is -1":                       {Limit: 1, PerUser: -1, OpenFor: time.Hour},
		"StartIn is -1s":                      {Limit: 1, StartIn: -time.Second, OpenFor: time.Hour},
		"OpenFor is 0s":                       {Limit: 1},
		"OpenFor is -1h0m0s":                  {Limit: 1, OpenFor: -time.Hour},
		"OpenFor is 1µs":                      {Limit: 1, OpenFor: time.Microsecond},
		"Retain is -1s":                       {Limit: 1, OpenFor: time.Hour, Retain: -time.Second},
		"Retain is 1µs":                       {Limit: 1, OpenFor: time.Hour, Retain: time.Microsecond},
		"StartIn is 2562047h":                 {Limit: 1, StartIn: 1<<63 - 1, OpenFor: time.Hour},
		"OpenFor is 2562047h":                 {Limit: 1, OpenFor: 1<<63 - 1},
		"Retain is 2562047h":                  {Limit: 1, OpenFor: time.Hour, Retain: 1<<63 - 1},
		"StartIn + OpenFor + Retain":          {Limit: 1, StartIn: lifetime, OpenFor: lifetime},
		"OpenFor + Retain is ":                {Limit: 1, StartIn: lifetime / 2, OpenFor: lifetime / 2},
	} {
		options.add(says, err1(s.Open(ctx, spec)), err1(s.OpenOrJoin(ctx, spec)))
	}
	var many []stock.Line
	for i := range 17 {
		many = append(many, line(1, strconv.Itoa(i)))
	}
	options.calls(t, "is 17, must be 1 to 16", cartActs(g, "id", many))
	options.calls(t, "each of another stock", cartActs(g, "id", []stock.Line{line(1, "b"), line(1, "a"), line(1, "b")}))
	options.add(`line "a": invalid option: N is 0`, cart(line(0, "a")))
	options.add("lines is 0", cart())
	for says, text := range badTexts {
		if text == "" {
			names.calls(t, "id is empty", cartActs(g, text, []stock.Line{line(1, "a")}))
			names.add("claimant is empty", err1(g.Reserve(ctx, "",
				stock.CartRequest{ID: "id", Lines: []stock.Line{line(1, "a")}}, time.Minute)))
		} else { // as a claimant or request, none is the other
			names.add(says, err1(s.Lookup(ctx, stock.Units{Claimant: text})), err1(s.Lookup(ctx, stock.Units{Request: text})),
				err1(s.Return(ctx, stock.Units{Claimant: text, Ordinal: 1})), err1(s.Return(ctx, stock.Units{Request: text})),
				err1(s.Return(ctx, stock.Units{Request: text, Keep: 1})))
		}
		for _, upTo := range []bool{false, true} {
			names.add(says, err1(s.Claim(ctx, "u", stock.Request{ID: text, N: 1, UpTo: upTo})),
				err1(s.Reserve(ctx, "u", stock.Request{ID: text, N: 1, UpTo: upTo}, time.Minute)))
		}
		names.add(says, err1(s.Claim(ctx, text)), err1(s.Claim(ctx, text, stock.Request{ID: "r", N: 1})),
			err1(s.Reserve(ctx, text, stock.Request{ID: "h", N: 1}, time.Minute)), errOf(s.Holders(ctx, text)),
			err1(s.Confirm(ctx, text)), err1(s.Confirm(ctx, text, stock.Paid(1))), err1(s.Extend(ctx, text, time.Minute)),
			err1(s.Cancel(ctx, text)))
	}
	names.add("claimant", err1(s.Return(ctx, stock.Units{})))
	for _, n := range []int64{0, -1, maxInt53 + 1} {
		is := fmt.Sprintf(" is %d", n)
		options.add("n"+is, err1(s.ClaimAny(ctx, n)))
		for _, upTo := range []bool{false, true} {
			options.add("N"+is, err1(s.Claim(ctx, "u", stock.Request{ID: "r", N: n, UpTo: upTo})),
				err1(s.Reserve(ctx, "u", stock.Request{ID: "h", N: n, UpTo: upTo}, time.Minute)))
		}
		options.add("paid"+is, err1(s.Confirm(ctx, "h", stock.Paid(n))))
		options.add("N"+is, err1(s.Return(ctx, stock.Units{Request: "a", Ordinal: 5, N: n})))
		options.add("Ordinal"+is, err1(s.Return(ctx, stock.Units{Claimant: "u", Ordinal: n})))
		if n != 0 {
			options.add("Ordinal"+is, err1(s.Return(ctx, stock.Units{Request: "a", Ordinal: n, N: 1})))
			options.add("Keep"+is, err1(s.Return(ctx, stock.Units{Request: "h", Keep: n})))
			options.add("Limit"+is, s.Change(ctx, stock.Change{Limit: n}))
			options.add("PerUser"+is, s.Change(ctx, stock.Change{PerUser: n}))
		}
	}
	for says, u := range map[string]stock.Units{
		"Claimant": {Claimant: "u", Request: "r"},
		"Keep is ": {Claimant: "u", Ordinal: 1, Keep: 1},
		"Keep":     {Request: "a", Ordinal: 1, N: 1, Keep: 1},
		"N is 2":   {Claimant: "u", Ordinal: 1, N: 2},
		"Ordinal":  {Request: "a", Ordinal: 0, N: 1},
	} {
		options.add(says, err1(s.Return(ctx, u)))
	}
	for _, u := range []stock.Units{{Claimant: "u", Ordinal: 1}, {Request: "r", Keep: 1}, {Request: "r", N: 1}} {
		options.add("units", err1(s.Lookup(ctx, u)))
	}
	options.add("request is 2", err1(s.Claim(ctx, "u", stock.Request{ID: "r", N: 1}, stock.Request{ID: "q", N: 1})))
	options.add("paid is 2", err1(s.Confirm(ctx, "h", 1, 2)))
	options.add("change", s.Change(ctx, stock.Change{}))
	options.add("Resume", s.Change(ctx, stock.Change{Pause: true, Resume: true}))
	for _, ttl := range []time.Duration{0, -time.Second, time.Microsecond, lifetime + 1} {
		options.add("ttl is "+ttl.String(), err1(s.Reserve(ctx, "u", stock.Request{ID: "h", N: 1}, ttl)),
			err1(s.Reserve(ctx, "u", stock.Request{ID: "h", N: 1, UpTo: true}, ttl)), err1(s.Extend(ctx, "h", ttl)),
			err1(g.Reserve(ctx, "u", stock.CartRequest{ID: "id", Lines: []stock.Line{line(1, "a")}}, ttl)))
	}
	for _, in := range []time.Duration{-1, lifetime + 1} {
		options.add("EndIn is "+in.String(), s.Change(ctx, stock.Change{EndIn: stock.In(in)}))
		options.add("StartIn is "+in.String(), s.Change(ctx, stock.Change{StartIn: stock.In(in)}))
	}
	for _, n := range []int{0, -1, 10_000 + 1} {
		options.add(fmt.Sprint("n is ", n), err1(s.Ledger(ctx, n, nothing)))
	}
	options.add("fn", err1(s.Ledger(ctx, 1, nil)), s.KeepLedger(ctx, time.Second, 1, nil))
	options.add("every is 0s", s.KeepLedger(ctx, 0, 1, nothing), firstError(s.Events(ctx, 0)))
	options.add("every is 1µs", s.KeepReaped(ctx, time.Microsecond))
	options.add("winners", err1(s.Restore(ctx, nil)))
	entry := stock.Entry{Epoch: 1, Serial: 1, Kind: stock.KindGrant}
	for field, e := range map[string]stock.Entry{
		"Serial is 0":   {Epoch: 1, Kind: stock.KindGrant},
		"Epoch is -1":   {Epoch: -1, Serial: 1, Kind: stock.KindGrant},
		`Kind is ""`:    {Epoch: 1, Serial: 1},
		`Kind is "odd"`: {Epoch: 1, Serial: 1, Kind: "odd"},
	} {
		err := s.Publish(ctx, []stock.Entry{entry, e})
		options.add(field, err)
		options.add("entry 1", err)
	}
	options.add("entries is 10001", s.Publish(ctx, make([]stock.Entry, 10_001)))
	entry.Claimant = "\xff"
	names.add("claimant", s.Publish(ctx, []stock.Entry{entry}))
	entry.Claimant, entry.Request = "", "\x00"
	names.add("request", s.Publish(ctx, []stock.Entry{entry}))
	for says, o := range map[string]stock.Options{
		"MaxCalls is -1":          {MaxCalls: -1},
		"BatchWindow is -1s":      {BatchWindow: -time.Second},
		"SoldOutTrust is 1ms":     {SoldOutTrust: time.Millisecond},
		"SoldOutTrust is 884760h": {SoldOutTrust: 101 * 365 * 24 * time.Hour},
	} {
		options.add(says, err1(stock.New(red.Hub(), o)))
	}
	return map[string]map[error]refusals{"stock": {errs.ErrInvalidOption: options, errs.ErrInvalidName: names}}
}

func badOfCounts(t *testing.T, red, other *redlatch.Client) map[string]map[error]refusals {
	ctx := t.Context()
	counters, counterNames, packets, packetNames := refusals{}, refusals{}, refusals{}, refusals{}
	counter := func(o rcounter.CounterOptions) *rcounter.Counter { return red.Counters().Counter("k", o) }
	bound := rcounter.Bound
	for says, o := range map[string]rcounter.CounterOptions{
		"TTL is -1s": {TTL: -time.Second}, "TTL is 1µs": {TTL: time.Microsecond},
		"Remember is -1s": {Remember: -time.Second}, "Remember is 1µs": {Remember: time.Microsecond},
		"Remember is 876000h0m0.000000001s": {Remember: lifetime + 1},
		"Min is 3":                          {Min: bound(3), Max: bound(2)}, "Initial is 0": {Min: bound(3)},
		"Initial is 8": {Initial: 8, Max: bound(7)},
	} {
		counters.calls(t, says, counterActs(counter(o)))
	}
	k := counter(rcounter.CounterOptions{Min: bound(0), Max: bound(9)})
	for _, age := range []time.Duration{0, -time.Second, time.Microsecond} {
		counters.add("maxStale is "+age.String(), err1(k.Cached(ctx, age)))
	}
	p, none := red.RedPackets().Packet("p"), func(context.Context, []redpacket.Entry) error { return nil }
	for says, text := range badTexts {
		counterNames.add(says, err2(k.AddOnce(ctx, text, 1)))
		packetNames.add(says, err1(p.Grab(ctx, text)))
	}
	for says, spec := range map[string]redpacket.Spec{
		"Total is 0":      {},
		"Shares is 0":     {Total: 5, OpenFor: time.Hour},
		"Total is 5":      {Total: 5, Shares: 6, OpenFor: time.Hour},
		"6 * 1":           {Total: 5, Shares: 6, OpenFor: time.Hour},
		"10 * 50":         {Total: 20, Shares: 10, Min: 50, OpenFor: time.Hour},
		"Max is 4":        {Total: 20, Shares: 2, Min: 5, Max: 4, OpenFor: time.Hour},
		"at least Min, w": {Total: 20, Shares: 2, Min: 5, Max: 4, OpenFor: time.Hour},
		"Min is -1":       {Total: 5, Shares: 2, Min: -1, OpenFor: time.Hour},
		"Shares * Max":    {Total: 5, Shares: 2, Max: 2, OpenFor: time.Hour},
		`Method is "fair`: {Total: 5, Shares: 2, Method: "fair", OpenFor: time.Hour},
		"OpenFor is 0s":   {Total: 5, Shares: 2},
		"OpenFor is 1µs":  {Total: 5, Shares: 2, OpenFor: time.Microsecond},
		"Retain is -1ns":  {Total: 5, Shares: 2, OpenFor: time.Hour, Retain: -1},
		"Retain is 1µs":   {Total: 5, Shares: 2, OpenFor: time.Hour, Retain: time.Microsecond},
		"OpenFor + Retai": {Total: 5, Shares: 2, OpenFor: lifetime, Retain: lifetime},
	} {
		packets.add(says, err1(p.Send(ctx, spec)))
	}
	for _, n := range []int{-1, 0, 10_001} {
		packets.add(fmt.Sprintf("n is %d, must be between 1 and 10000", n), err1(p.Ledger(ctx, n, none)))
	}
	packets.add("fn is nil, must be a function", err1(p.Ledger(ctx, 1, nil)), p.KeepLedger(ctx, time.Second, 1, nil))
	packets.add("every is 0s", p.KeepLedger(ctx, 0, 1, none))
	return map[string]map[error]refusals{
		"counter": {errs.ErrInvalidOption: counters, errs.ErrInvalidName: counterNames, errs.ErrOutOfRange: {
			`"k"`: {k.Set(ctx, 10), err1(k.CompareAndSet(ctx, 1, -1))},
			"10":  {k.Set(ctx, 10)}, "9": {k.Set(ctx, 10)}, "-1": {err1(k.CompareAndSet(ctx, 1, -1))},
		}},
		"packet":  {errs.ErrInvalidOption: packets, errs.ErrInvalidName: packetNames},
		"limiter": badOfLimits(t, red.Limiters(), other.Limiters()),
	}
}

func badOfLimits(t *testing.T, c, other *ratelimit.Client) map[error]refusals {
	ctx, bad, names := t.Context(), refusals{}, refusals{}
	for says, o := range map[string]ratelimit.LimiterOptions{
		"Rate is 0":                         {},
		"Rate is -1":                        {Rate: -1},
		"Rate is 1000000001":                {Rate: 1_000_000_001},
		"Per is -1s":                        {Rate: 1, Per: -time.Second},
		"Per is 1.5µs":                      {Rate: 1, Per: 1500},
		"Per is 8808h0m0s":                  {Rate: 1, Per: 367 * 24 * time.Hour},
		"Burst is -1":                       {Rate: 1, Burst: -1},
		"0, must be at most 1250999":        {Rate: 1_000_000_000, Per: time.Hour},
		`Algorithm is "gcra"`:               {Rate: 1, Algorithm: "gcra"},
		"must be 0 with SlidingWindow":      {Rate: 1, Algorithm: ratelimit.SlidingWindow, Burst: 2},
		`Unit is ""`:                        {Rate: 1, Algorithm: ratelimit.FixedWindow},
		"Per is 1h0m0s":                     {Rate: 1, Algorithm: ratelimit.FixedWindow, Unit: ratelimit.Day, Per: time.Hour},
		`Unit is "Day"`:                     {Rate: 1, Unit: ratelimit.Day},
		"Zone is UTC":                       {Rate: 1, Zone: time.UTC},
		`WhenDown is "open"`:                {Rate: 1, WhenDown: "open"},
		"Share is 0":                        {Rate: 1, WhenDown: ratelimit.Local},
		"Share is 1.5":                      {Rate: 1, WhenDown: ratelimit.Local, Share: 1.5},
		"Share is 0.5, must be 0 with Fail": {Rate: 1, Share: .5},
		"Burst is 1250999896491":            {Rate: 1, Per: time.Hour, Burst: 1_250_999_896_491},
		"Burst is 9223372036854775807":      {Rate: 1, Per: time.Hour, Burst: 1<<63 - 1},
	} {
		l := c.Limiter("l", o)
		bad.calls(t, says, append(limiterActs(c, l), reserveAct(l),
			does("Limiter.Reset", func(ctx context.Context) error { return l.Reset(ctx, "k") })))
	}
	l := c.Limiter("l", ratelimit.LimiterOptions{Rate: 1, Burst: 3})
	for _, n := range []int64{-1, 0, 4} {
		bad.add(fmt.Sprint("n is ", n), err1(l.Allow(ctx, "k", n)), err1(l.Wait(ctx, "k", n)))
	}
	names.add("1025", err1(l.Wait(ctx, badTexts["1025"], 1)))
	day := func(zone *time.Location) error {
		return c.Limiter("l", ratelimit.LimiterOptions{Rate: 1, Algorithm: ratelimit.FixedWindow, Unit: ratelimit.Day,
			Zone: zone}).Set(ctx, "")
	}
	bad.add(`Zone is "here"`, day(time.FixedZone("here", 3600)))
	bad.add(`Zone is "Local"`, day(time.Local)) // each process would read its own
	bad.add("by is ", c.Limiter("l", ratelimit.LimiterOptions{Rate: 1}).Set(ctx, string(make([]byte, 257))))
	a := c.Limiter("a", ratelimit.LimiterOptions{Rate: 10})
	for says, takes := range map[string][]ratelimit.Take{
		"the number of limits is 0":  nil,
		"the number of limits is 17": make([]ratelimit.Take, 17),
		"Limiter is nil":             {{Key: "x", N: 1}},
		"of another client":          {{Limiter: other.Limiter("a", ratelimit.LimiterOptions{Rate: 10}), N: 1}},
		`"x" of "a", twice`:          {{Limiter: a, Key: "x", N: 1}, {Limiter: a, Key: "x", N: 1}},
		`limit 1, "b": invalid option: n is 11`: {{Limiter: a, Key: "x", N: 1},
			{Limiter: c.Limiter("b", ratelimit.LimiterOptions{Rate: 10}), Key: "x", N: 11}},
	} {
		bad.add(says, err1(c.AllowAll(ctx, takes...)))
	}
	return map[error]refusals{errs.ErrInvalidOption: bad, errs.ErrInvalidName: names}
}
