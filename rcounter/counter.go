package rcounter

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"math/big"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
)

// CounterOptions describe a Counter. They are not stored on the server: all users of a name must pass
// the same ones. The zero value is Redisson's RAtomicLong.
type CounterOptions struct {
	// Initial is the value of a missing key. Reading does not create the key. Defaults to 0.
	Initial int64
	// Min and Max are the values that Add does not go beyond, both inclusive; see Bound. Default to nil: no bound.
	Min, Max *int64
	// TTL is how long a counter lives from its creation. Later writes do not prolong it, and a counter that is found
	// without an expiry gets TTL. At least 1 ms. Defaults to 0: the library sets no expiry, and keeps one that another
	// program set.
	TTL time.Duration
	// Remember is how long AddOnce remembers an id at least, 1 ms to 100 years; at most it is twice as long
	// and a minute. It must be longer than any caller repeats a call. Defaults to an hour.
	Remember time.Duration
}

// Bound is v as a bound: CounterOptions{Max: rcounter.Bound(100)}.
func Bound(v int64) *int64 { return &v }

// Counter is a 64-bit integer under one key, a plain string as INCR and Redisson's RAtomicLong keep it. So Java
// and redis-cli can count on the same key. A Counter is an immutable description, safe for concurrent use, and costs
// nothing until used.
//
// Its key looks like that of a counting.Semaphore or a latch of the same name, which are numbers, too.
// Give them different names, or clients with different KeyPrefixes.
//
// With Max, Incr says which of the first N the caller is: its result is the caller's ordinal, 1 to N, and later
// callers get ErrOutOfRange. With Initial N and Min 0, Decr's result is what is left. Both forget
// everything with their key: a counter that expires, is deleted or evicted starts again at Initial. Where that must
// not happen, use a Stock. Where a retry must not count twice, use AddOnce.
//
// All writing verbs except AddOnce are sent once. If the reply is lost, the error is ErrUnknownOutcome and the value
// may or may not have changed. Only AddOnce can safely be called again then, and CompareAndSet where values do not
// recur.
//
// Every verb may return the errors that say that the request did not run: ErrInvalidName, ErrInvalidOption, ErrClosed,
// ErrUnavailable. The server's refusals are ErrDenied, whichever right is missing, and ErrWrongType: the value is not
// a 64-bit integer by INCR's rules, or the key has another type. The value stays as it is. The verbs name the errors
// that are their own.
type Counter struct {
	c       *Client
	name    string
	key     string
	refused error // what is wrong with name or options

	initial  int64
	min, max *int64
	ttl      string // ms, "0" for none
	plain    bool   // Redis' own INCRBY does all that is asked
	remember time.Duration
	tracked  atomic.Pointer[tracked]
}

// Counter describes the counter called name. It sends nothing. If the name or the options cannot be used, every verb
// of the result fails with ErrInvalidName or ErrInvalidOption.
func (c *Client) Counter(name string, o CounterOptions) *Counter {
	k := &Counter{c: c, name: name, key: c.calls.KeyPrefix + name, initial: o.Initial, ttl: script.Millis(o.TTL),
		remember: o.Remember}
	if k.remember == 0 {
		k.remember = defaultRemember
	}
	// copies: the caller may change what the pointers point to
	if o.Min != nil {
		k.min = Bound(*o.Min)
	}
	if o.Max != nil {
		k.max = Bound(*o.Max)
	}
	k.plain = k.min == nil && k.max == nil && o.Initial == 0 && o.TTL == 0
	k.refused = edged(k.check(name, o.TTL))
	return k
}

func (k *Counter) check(name string, ttl time.Duration) error {
	if name == "" { // a prefix alone is not a name
		return keyname.Check(name)
	}
	if err := keyname.Check(k.key); err != nil {
		return err
	}
	if ttl < 0 || ttl > 0 && ttl < time.Millisecond {
		return errs.InvalidOption("TTL", ttl, "at least 1ms, or 0 for none")
	}
	if k.remember < time.Millisecond || k.remember > maxRemember {
		return errs.InvalidOption("Remember", k.remember,
			fmt.Sprintf("between 1ms and %v, or 0 for the default", maxRemember))
	}
	if k.min != nil && k.max != nil && *k.min > *k.max {
		return errs.InvalidOption("Min", *k.min, fmt.Sprintf("at most Max, which is %d", *k.max))
	}
	if err := k.within(k.initial); err != nil {
		return errs.InvalidOption("Initial", k.initial, "within Min and Max")
	}
	return nil
}

// idParts is the number of parts in which the ids of AddOnce are kept, each of two keys. A server stands still while it
// frees a key that expires: 400 ms where it has a million ids (TestAddOnce_IDs_EndInPartsOneAfterTheOther).
const idParts = 64

// idPart is the part in which an id is.
func idPart(id string) int { return int(crc32.ChecksumIEEE([]byte(id)) % idParts) }

// idKeys are the keys of AddOnce for an id, all in the counter's slot.
func (k *Counter) idKeys(id string) []string {
	ids, part := keyname.Prefix("rc", k.key), strconv.Itoa(idPart(id))
	return []string{k.key, ids + ":i0." + part, ids + ":i1." + part}
}

// within reports, as ErrOutOfRange, that v is beyond a bound.
func (k *Counter) within(v int64) error {
	switch {
	case k.min != nil && v < *k.min:
		return fmt.Errorf("%w: %d on %q, Min is %d", errs.ErrOutOfRange, v, k.key, *k.min)
	case k.max != nil && v > *k.max:
		return fmt.Errorf("%w: %d on %q, Max is %d", errs.ErrOutOfRange, v, k.key, *k.max)
	}
	return nil
}

// Incr adds 1 and returns the new value: it is Add(ctx, 1), with its errors.
func (k *Counter) Incr(ctx context.Context) (int64, error) { return k.Add(ctx, 1) }

// Decr takes 1 off and returns the new value: it is Add(ctx, -1), with its errors.
func (k *Counter) Decr(ctx context.Context) (int64, error) { return k.Add(ctx, -1) }

// Add adds d, any 64-bit integer, and returns the new value. One round trip, which calls on the counters of this client
// share once four are under way: see "Cost" in the package comment.
//
// If the sum would rise above Max or fall below Min, nothing is written: the error is ErrOutOfRange, and the value
// returned with it is where the counter stands. A counter that is already beyond a bound (set by another program, or
// under other options) can always move back towards it. If the sum does not fit into 64 bits, nothing is written, and
// the error is ErrOverflow.
//
// Add is sent once: after ErrUnknownOutcome, d may have been added or may still be added. It creates a missing key,
// with TTL.
func (k *Counter) Add(ctx context.Context, d int64) (v int64, err error) {
	defer edge(&err)
	if err := k.c.calls.Usable(k.refused); err != nil {
		return 0, err
	}
	adds := k.c.adds.Of(k.key)
	if k.c.calls.Observer == nil { // no closure is made without an observer
		return adds.Do(ctx, addition{k, d})
	}
	var sum int64
	err = k.write(ctx, func() (err error) {
		sum, err = adds.Do(ctx, addition{k, d})
		return err
	})
	return sum, err
}

// addAlone is Add in a call of its own.
func (k *Counter) addAlone(ctx context.Context, d int64) (int64, error) {
	if k.plain {
		return k.incrby(ctx, d)
	}
	r, err := k.add(ctx, d)
	if err != nil {
		return 0, err
	}
	return k.added(d, r)
}

// added is what add.lua's reply says of adding d.
func (k *Counter) added(d int64, r addReply) (int64, error) {
	switch bound := k.ahead(d); {
	case r.code == addOK:
		return r.value, nil
	case r.code == addBeyond && bound != nil:
		return r.value, fmt.Errorf("%w: %q stands at %d, adding %d would pass %d", errs.ErrOutOfRange, k.name, r.value, d,
			*bound)
	case r.code == addBeyond:
		return 0, fmt.Errorf("%w: %q stands at %d, adding %d", errs.ErrOverflow, k.key, r.value, d)
	}
	return 0, notInteger(k.key, r.raw)
}

// ahead is the bound that adding d moves towards, nil if there is none.
func (k *Counter) ahead(d int64) *int64 {
	switch {
	case d > 0:
		return k.max
	case d < 0:
		return k.min
	}
	return nil
}

// limit is the furthest value to which d may be added, in decimal: Max - d for a rise, Min - d for a fall, where no
// bound means the bound of 64 bits. It is computed here, in as many bits as it needs, because Lua's numbers are
// doubles, exact to 2^53 and printed as 1e+15 from there on: the script compares decimal text
// (TestAdd_RandomNumbers_AgreesWithBigIntegers).
func (k *Counter) limit(d int64) string {
	bound := k.ahead(d)
	switch {
	case d == 0:
		return ""
	case bound == nil && d > 0:
		return strconv.FormatInt(math.MaxInt64-d, 10)
	case bound == nil:
		return strconv.FormatInt(math.MinInt64-d, 10)
	}
	return new(big.Int).Sub(big.NewInt(*bound), big.NewInt(d)).String()
}

// incrby is Add by Redis' own commands, those that RAtomicLong sends.
func (k *Counter) incrby(ctx context.Context, d int64) (int64, error) {
	call := script.Call{Keys: []string{k.key}, Once: true}
	switch d {
	case 1:
		call.Script = incrScript
	case -1:
		call.Script = decrScript
	default:
		call.Script, call.Args = incrbyScript, []string{strconv.FormatInt(d, 10)}
	}
	m, err := k.c.calls.Do(ctx, call)
	if err != nil {
		return 0, numeric(err)
	}
	n, err := m.AsInt64()
	if err != nil {
		return 0, malformed("add", k.key)
	}
	return n, nil
}

var (
	incrScript   = script.Plain("incr")
	decrScript   = script.Plain("decr")
	incrbyScript = script.Plain("incrby")
	getScript    = script.Plain("get")
)

// numeric gives INCR's two refusals their types.
func numeric(err error) error {
	var re *rueidis.RedisError
	if !errors.As(err, &re) {
		return err
	}
	switch msg := re.Error(); {
	case strings.Contains(msg, "would overflow"):
		return fmt.Errorf("%w: %w", errs.ErrOverflow, err)
	case strings.Contains(msg, "not an integer"):
		return fmt.Errorf("%w: %w", errs.ErrWrongType, err)
	}
	return err
}

// Get returns the value, or Initial if the key is missing, which it does not create. One round trip, repeated until
// answered. If the rueidis client sends reads to replicas, it is a replica's value.
//
// It is the value at an instant of the call. Others may change it before the caller looks: to write what depends on it,
// use CompareAndSet.
func (k *Counter) Get(ctx context.Context) (value int64, err error) {
	defer edge(&err)
	if err := k.c.calls.Usable(k.refused); err != nil {
		return 0, err
	}
	m, err := k.c.calls.Do(ctx,
		script.Call{Script: getScript, Keys: []string{k.key}, Command: func(b rueidis.Builder) rueidis.Completed {
			return b.Get().Key(k.key).Build()
		}})
	if errors.Is(err, rueidis.Nil) {
		return k.initial, nil
	}
	if err != nil {
		return 0, err
	}
	s, err := m.ToString()
	if err != nil {
		return 0, malformed("get", k.key)
	}
	v, ok := integer(s)
	if !ok {
		return 0, notInteger(k.key, s)
	}
	return v, nil
}

// integer parses s by INCR's rules: the one way to write a 64-bit integer, no sign for plus, no leading zeros.
func integer(s string) (int64, bool) {
	v, err := strconv.ParseInt(s, 10, 64)
	return v, err == nil && strconv.FormatInt(v, 10) == s
}

// Set makes v the value, whatever the value was, even if it was a string that is not a number. It keeps the expiry of
// an existing key, and gives one without an expiry TTL. If v is beyond Min or Max, nothing is sent, and the error is
// ErrOutOfRange. One round trip.
//
// Set is sent once: after ErrUnknownOutcome it may have run or may still run, even after a later Set. Ids that AddOnce
// remembers stay.
func (k *Counter) Set(ctx context.Context, v int64) (err error) {
	defer edge(&err)
	if err := k.c.calls.Usable(k.refused, k.within(v)); err != nil {
		return err
	}
	return k.write(ctx, func() error { return k.c.set(ctx, k.key, v, k.ttl) })
}

// CompareAndSet makes next the value if the value is old, and reports whether it did. A missing key counts as Initial:
// if that is old, the key is created. It keeps the expiry of an existing key, and gives one without an expiry TTL. If
// next is beyond Min or Max, nothing is sent, and the error is ErrOutOfRange; old may be beyond them. One round trip.
//
//   - true, nil: the value was old and was made next, in one step.
//   - false, nil: the value was another, and nothing was written.
//   - false and ErrWrongType: the value is not an integer, and nothing was written.
//   - false and ErrUnknownOutcome: it may have run or may still run. CompareAndSet is sent once, because a second run
//     would answer false after the first had answered true. If each value comes only once, as a version does, call Get:
//     next or a later value says that it ran, and while it is old the same call may be made again.
//
// It compares values, and does not detect writes in between: a value that went away and came back is the same.
func (k *Counter) CompareAndSet(ctx context.Context, old, next int64) (set bool, err error) {
	defer edge(&err)
	if err := k.c.calls.Usable(k.refused, k.within(next)); err != nil {
		return false, err
	}
	err = k.write(ctx, func() error {
		r, err := k.c.cas(ctx, k.key, casArgs{old: old, next: next, initial: k.initial, ttl: k.ttl})
		if _, ok := integer(r.raw); err == nil && !ok {
			err = notInteger(k.key, r.raw)
		}
		set = err == nil && r.set
		return err
	})
	return set, err
}
