package contract_test

import (
	"context"
	"fmt"
	"slices"
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
	"github.com/redlatch/redlatch/rlock"
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
	once := func(opts rlock.OnceOptions) *rlock.Once { return red.Locks().Once("ok", opts) }
	do := func(o *rlock.Once, key, fingerprint string) error {
		return err2(o.Do(ctx, key, fingerprint, func(context.Context, int64) ([]byte, error) {
			t.Error("fn ran")
			return nil, nil
		}))
	}
	tables["once"] = map[error]refusals{errs.ErrInvalidOption: {
		"Keep is 1ns":                   {do(once(rlock.OnceOptions{Keep: 1}), "k", "")},
		"Keep is 876000h0m0.000000001s": {do(once(rlock.OnceOptions{Keep: lifetime + 1}), "k", "")},
		"Stale is -1ns":                 {err1(once(rlock.OnceOptions{Stale: -1}).Inspect(ctx, "k"))},
		"waitTime is -1ns":              {do(once(rlock.OnceOptions{}).WithWait(-1), "k", "")},
		`fingerprint is "xxxxxxxxxxx`:   {do(once(rlock.OnceOptions{}), "k", strings.Repeat("x", 1025))},
	}, errs.ErrInvalidName: {
		"the key of Once \"ok\" is empty": {do(once(rlock.OnceOptions{}), "", "")},
		`"a:b" is the name of a Once`:     {do(red.Locks().Once("a:b", rlock.OnceOptions{}), "k", "")},
		"is not valid UTF-8":              {do(once(rlock.OnceOptions{}), "a\xff", "")},
	}}
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
			`tenant is ""`:               {err1(s.For("").Acquire(ctx, 1))},
			"tenant is":                  {err1(s.For(long).Acquire(ctx, 1)), err1(s.For("\xff").Acquire(ctx, 1))},
			"weight is 0":                {err1(s.For("t").WithWeight(0).Acquire(ctx, 1))},
			"weight is 1001":             {err1(s.For("t").WithWeight(1001).Acquire(ctx, 1))},
			"max is 0":                   {err1(s.For("t").WithMax(0).Acquire(ctx, 1))},
			"n is 3, must be 1 to 2":     {err1(s.For("t").WithMax(2).Acquire(ctx, 3))},
			"priority is 10":             {err1(s.For("t").WithPriority(10).Acquire(ctx, 1))},
			"priority is -1":             {err1(s.For("t").WithPriority(-1).Acquire(ctx, 1))},
			"needs a tenant":             {err1(s.WithMax(2).Acquire(ctx, 1)), err1(s.WithWeight(2).For("t").Inspect(ctx))},
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
		"cannot have a maximum":      err1(sem.For("t").WithMax(2).Shared().Acquire(ctx, 1)),

		"capacity of a Fenced semaphore is 2, must be 1": err1(c.Semaphore("s", 2).Fenced().Acquire(ctx, 1)),
	} {
		permits.add(says, err)
	}
	permits.add("cannot have a maximum", err1(sem.Shared().For("t").WithMax(2).Inspect(ctx)))
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

func badOfSales(t *testing.T, red *redlatch.Client) map[string]map[error]refusals {
	ctx, s := t.Context(), red.Sales().Sale("s")
	options, names := refusals{}, refusals{}
	for says, spec := range map[string]stock.Spec{
		`Item "" is {0 1}`:           {OpenFor: time.Hour},
		`Item "" is {-1 1}`:          {Limit: -1, OpenFor: time.Hour},
		`Item "" is {90071992547409`: {Limit: maxInt53 + 1, OpenFor: time.Hour},
		`Item "" is {1 90071992547`:  {Limit: 1, PerUser: maxInt53 + 1, OpenFor: time.Hour},
		`Item "" is {1 -1}`:          {Limit: 1, PerUser: -1, OpenFor: time.Hour},
		`Item "a" is {0 1}`:          {Items: map[string]stock.Item{"a": {}}, OpenFor: time.Hour},
		"Limit is 5, must be 0":      {Limit: 5, Items: map[string]stock.Item{"a": {Limit: 1}}, OpenFor: time.Hour},
		"Items is 1025":              {Items: manyItems(1025), OpenFor: time.Hour},
		"StartIn is -1s":             {Limit: 1, StartIn: -time.Second, OpenFor: time.Hour},
		"StartIn is 2562047h":        {Limit: 1, StartIn: 1<<63 - 1, OpenFor: time.Hour},
		"OpenFor is 0s":              {Limit: 1},
		"OpenFor is -1h0m0s":         {Limit: 1, OpenFor: -time.Hour},
		"OpenFor is 1µs":             {Limit: 1, OpenFor: time.Microsecond},
		"OpenFor is 2562047h":        {Limit: 1, OpenFor: 1<<63 - 1},
		"Retain is -1s":              {Limit: 1, OpenFor: time.Hour, Retain: -time.Second},
		"Retain is 1µs":              {Limit: 1, OpenFor: time.Hour, Retain: time.Microsecond},
		"Retain is 2562047h":         {Limit: 1, OpenFor: time.Hour, Retain: 1<<63 - 1},
		"Remember is 59s":            {Limit: 1, OpenFor: time.Hour, Remember: 59 * time.Second},
		"Remember is 2562047h":       {Limit: 1, OpenFor: time.Hour, Remember: 1<<63 - 1},
		"StartIn + OpenFor + Retain": {Limit: 1, StartIn: lifetime, OpenFor: lifetime},
		"OpenFor + Retain is ":       {Limit: 1, StartIn: lifetime / 2, OpenFor: lifetime / 2},
	} {
		spec.Ledger = true
		options.add(says, s.Open(ctx, spec), err1(s.Restore(ctx, spec)))
	}
	options.add("Ledger is false", err1(s.Restore(ctx, stock.Spec{Limit: 1, OpenFor: time.Hour})))

	order := func(o stock.Order) []error { return []error{err1(s.Buy(ctx, o)), err1(s.Reserve(ctx, o, time.Minute))} }
	byID := func(id string) []error {
		return []error{err1(s.Status(ctx, id)), err1(s.Extend(ctx, id, time.Minute)), err1(s.Pay(ctx, id)),
			err1(s.Cancel(ctx, id)), err1(s.Return(ctx, id))}
	}
	// lines are all that have lines; least is what they may have at least: units that were paid for, or stay, may be none.
	lines := func(least int64, lines ...stock.Line) []error {
		all := order(stock.Order{ID: "id", Lines: lines})
		if least == 0 {
			all = nil
		}
		return append(all, err1(s.Pay(ctx, "id", lines...)), err1(s.Return(ctx, "id", lines...)))
	}
	for says, text := range badTexts {
		if text == "" {
			names.add("has no ID, no User and no Anyone", order(stock.Order{})...)
			names.add("id is empty", byID("")...)
			continue
		}
		names.add(says, slices.Concat(order(stock.Order{ID: text}), order(stock.Order{ID: "id", User: text}), byID(text),
			lines(1, stock.Line{Item: text, N: 1}))...)
		items := map[string]stock.Item{text: {Limit: 1}}
		names.add(says, s.Open(ctx, stock.Spec{Items: items, OpenFor: time.Hour}),
			s.Change(ctx, stock.Change{Items: items}))
	}
	for _, sign := range ",;|+" {
		names.add(fmt.Sprintf("the item \"a%c\"", sign), lines(1, stock.Line{Item: "a" + string(sign), N: 1})...)
	}
	names.add(`the id "~x" begins with "~"`, order(stock.Order{ID: "~x"})...)
	names.add(`the id "~x.1.0" is not an id of Anyone`, byID("~x.1.0")...)
	names.add("an order of Anyone has an ID or a User", err1(s.Buy(ctx, stock.Order{Anyone: true, User: "ann"})))

	options.add("Lines is 0", order(stock.Order{ID: "id", Lines: []stock.Line{}})...)
	options.add("Lines is 17", lines(1, manyLines(17)...)...)
	options.add(`Lines is "a" twice`, lines(1, stock.Line{Item: "a", N: 1}, stock.Line{Item: "b", N: 1},
		stock.Line{Item: "a", N: 1})...)
	options.add("Lines is 2, must be one for Anyone", err1(s.Buy(ctx, stock.Order{Anyone: true, Lines: manyLines(2)})))
	options.add("Anyone is true", err1(s.Reserve(ctx, stock.Order{Anyone: true}, time.Minute)))
	options.add("Line.N is 0", order(stock.Order{ID: "id", Lines: []stock.Line{{}}})...)
	options.add("keep is ", err1(s.Return(ctx, "~x.1.1", manyLines(2)...)))
	for _, n := range []int64{-1, maxInt53 + 1} {
		is := fmt.Sprintf(" is %d", n)
		options.add("Line.N"+is, lines(1, stock.Line{N: n})...)
		options.add(`Items["a"].Limit`+is, s.Change(ctx, stock.Change{Items: map[string]stock.Item{"a": {Limit: n}}}))
		options.add(`Items["a"].PerUser`+is, s.Change(ctx, stock.Change{Items: map[string]stock.Item{"a": {PerUser: n}}}))
	}
	for _, ttl := range []time.Duration{0, -time.Second, time.Microsecond, lifetime + 1} {
		options.add("ttl is "+ttl.String(), err1(s.Reserve(ctx, stock.Order{User: "ann"}, ttl)),
			err1(s.Extend(ctx, "id", ttl)))
	}
	options.add("change is empty", s.Change(ctx, stock.Change{}))
	for _, in := range []time.Duration{-1, lifetime + 1} {
		options.add("EndIn is "+in.String(), s.Change(ctx, stock.Change{EndIn: &in}))
		options.add("StartIn is "+in.String(), s.Change(ctx, stock.Change{StartIn: &in}))
	}
	none := func(context.Context, []stock.Entry) error { return nil }
	for _, n := range []int{0, -1, 10_000 + 1} {
		options.add(fmt.Sprint("n is ", n), err1(s.Ledger(ctx, n, none)), s.KeepLedger(ctx, time.Second, n, none))
	}
	options.add("fn is nil", err1(s.Ledger(ctx, 1, nil)), s.KeepLedger(ctx, time.Second, 1, nil))
	options.add("every is 0s", s.KeepLedger(ctx, 0, 1, none))
	for says, trust := range map[string]time.Duration{"SoldOutTrust is 1ms": time.Millisecond,
		"SoldOutTrust is 884760h": 101 * 365 * 24 * time.Hour} {
		options.add(says, err1(stock.New(red.Hub(), stock.Options{SoldOutTrust: trust})))
	}
	return map[string]map[error]refusals{"sale": {errs.ErrInvalidOption: options, errs.ErrInvalidName: names}}
}

func manyItems(n int) map[string]stock.Item {
	all := map[string]stock.Item{}
	for i := range n {
		all[strconv.Itoa(i)] = stock.Item{Limit: 1}
	}
	return all
}

func manyLines(n int) (all []stock.Line) {
	for i := range n {
		all = append(all, stock.Line{Item: strconv.Itoa(i), N: 1})
	}
	return all
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
		`WhenDown is "Fail", must be Open`:  {Rate: 1, Shadow: true, WhenDown: ratelimit.Fail},
		"Burst is 1250999896491":            {Rate: 1, Per: time.Hour, Burst: 1_250_999_896_491},
		"Burst is 9223372036854775807":      {Rate: 1, Per: time.Hour, Burst: 1<<63 - 1},
	} {
		l := c.Limiter("l", o)
		bad.calls(t, says, append(limiterActs(c, l), reserveAct(l),
			does("Limiter.Reset", func(ctx context.Context) error { return l.Reset(ctx, "k") })))
	}
	l := c.Limiter("l", ratelimit.LimiterOptions{Rate: 1, Burst: 3})
	for _, n := range []int64{-1, 0, 4} {
		bad.add(fmt.Sprint("n is ", n), err1(l.Allow(ctx, "k", n)), err1(l.Wait(ctx, "k", n)), err2(l.Charge(ctx, "k", n)),
			err2(c.ChargeAll(ctx, ratelimit.Take{Limiter: l, Key: "k", N: n})))
	}
	shadow := c.Limiter("l", ratelimit.LimiterOptions{Rate: 1, Shadow: true})
	bad.add("Shadow is true", err1(shadow.Wait(ctx, "k", 1)), err1(shadow.Reserve(ctx, "k", 1)))
	charge := ratelimit.Charge{}
	bad.add("the number of used is 1", charge.Settle(ctx, 1))
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
