package stock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

const (
	// maxShards is the largest number of shards of a stock.
	maxShards = 64
	// maxShardedLimit is the largest limit of a sharded stock, so that the ordinals of a shard do not run into those
	// of the next.
	maxShardedLimit = 1<<shardBits - 1

	shardBits = 40
)

// Sharded is a stock whose units lie in several shards, for a sale so hot that one Cluster node cannot serve it:
// past some million combined claims a second, not before. Every shard is a Stock, on keys that are spread evenly over
// the slots, so that with as many shards as primaries each has one; more shards than primaries only cost.
//
// A claimant has one home, by the hash of its name, and claims only there: so it gets one unit at most, and the same
// answer whenever it asks, by the same script as in a Stock. Where a home has nothing left, half of what the fullest
// other shard has is moved there, in three steps that may each be lost, repeated, or left to another process: the
// units are taken out of the one and noted there as on their way, added to the other once, and the note is closed.
//
// SoldOut is answered only when all shards were seen twice with nothing left and nothing on its way, and nothing
// moved in between: then there was a moment, during the call, at which no unit was left anywhere. All units together
// are always exactly the limit; if they are not, because a shard has lost something, that is ErrCorrupt. A shard that is gone is
// ErrCorrupt for its claimants, and for those who would otherwise be told SoldOut; the others go on. It sells nothing again
// in this opening, whoever makes it anew: its server names each shard that it makes, the plan has the names of those that
// may sell, and nothing that another process began before the loss can bring another to sell.
//
// What is given up for that: ordinals are unique but neither dense nor in the order of claiming (shard i has those from
// i * 2^40); a sold-out answer costs a look at all shards, shared by all who claim through one value at the same time;
// reservations, Resize and Restore are not offered; each shard keeps the window by the clock of its own server; and a
// failover that loses a transfer may change the sum, in either direction, unless Options.MinReplicas prevents it. Make one value and keep it.
type Sharded struct {
	c       *Client
	name    string
	refused error // what is wrong with the name or the number
	plan    string
	shards  []*Stock
	sweeps  sweeps
}

// Sharded describes the stock called name in so many shards, 1 to maxShards. Nothing is sent. The number must be the
// same in all processes; one that finds another is told so (ErrInvalidOption) before anything is granted. A name or
// number that cannot be used makes every verb fail.
func (c *Client) Sharded(name string, shards int) *Sharded {
	s := &Sharded{c: c, name: name}
	tag, refused := keyname.Braced(c.calls.KeyPrefix, name, "a stock")
	if s.refused = edged(refused); refused != nil {
		return s
	}
	if shards < 1 || shards > maxShards {
		s.refused = errs.InvalidOption("shards", shards, fmt.Sprintf("between 1 and %d", maxShards))
		return s
	}
	s.plan = tag + ":s"
	for i := range shards {
		st := c.Stock(shardName(c.calls.KeyPrefix, name, i, shards))
		if st.refused != nil {
			s.refused = st.refused
			return s
		}
		st.part = true
		s.shards = append(s.shards, st)
	}
	s.sweeps.sweep = s.sweep
	s.sweeps.spawn = c.calls.Finish
	return s
}

// shardName is the name of a shard, such that its slot lies about i/k of all slots after that of the first: a Cluster
// whose slots are spread evenly, in one piece each, over k nodes then has a shard on every one.
func shardName(prefix, name string, i, k int) string {
	slot := func(name string) int { return int(keyname.Slot(keyname.Prefix("rc", prefix+name))) }
	base := name + "#0/" + strconv.Itoa(k)
	if i == 0 {
		return base
	}
	want := (slot(base) + i*keyname.Slots/k) % keyname.Slots
	plain := name + "#" + strconv.Itoa(i) + "/" + strconv.Itoa(k)
	best, off := plain, keyname.Slots
	for n := range 64 * k { // finds one within an eighth of a k-th, but for one name in some millions
		candidate := plain
		if n > 0 {
			candidate += "." + strconv.Itoa(n)
		}
		d := (slot(candidate) - want + keyname.Slots) % keyname.Slots
		d = min(d, keyname.Slots-d)
		if d < off {
			best, off = candidate, d
		}
		if off <= keyname.Slots/k/8 {
			break
		}
	}
	return best
}

// Shards are the shards, in their order: for their Ledger, KeepLedger and Inspect.
// Ordinals are their own there; Ordinal tells the whole stock's. The limit belongs to the whole: Open, Resize and Restore
// of a shard are ErrInvalidOption. (A plain stock opened in the place of a lost shard would sell what the shard has sold.)
func (s *Sharded) Shards() []*Stock { return slices.Clone(s.shards) }

// Ordinal is the ordinal in the whole stock of a shard's own.
func (s *Sharded) Ordinal(shard int, own int64) int64 { return int64(shard)<<shardBits + own }

// home is the shard at which claimant claims.
func (s *Sharded) home(claimant string) int {
	h := fnv.New64a()
	h.Write([]byte(claimant))
	v := h.Sum64()
	v ^= v >> 32 // the low bits alone are the weakest
	v *= 0x9e3779b97f4a7c15
	return int((v >> 33) % uint64(len(s.shards)))
}

// usable is the reason if no verb of s can run.
func (s *Sharded) usable() error { return s.c.calls.Usable(s.refused) }

// Open opens the stock, its units spread evenly over the shards, and returns the epoch of all of them. As
// Stock.Open, it never overwrites, and while the plan is there it sells no lost shard's units a second time: where one was
// lost while several opened, it is ErrCorrupt. Spec.Limit is at most maxShardedLimit, and Suspended is refused.
//
// It writes down what is to be opened, makes all shards, and only then lets them sell. If it is broken off in between,
// nothing is granted or, later, some shards sell already; another Open, whatever its spec, brings the first one to
// its end and answers ErrAlreadyOpen. Six round trips, each repeated until answered.
func (s *Sharded) Open(ctx context.Context, o Spec) (epoch int64, err error) {
	defer edge(&err)
	if err := s.usable(); err != nil {
		return 0, err
	}
	if o.Limit > maxShardedLimit {
		return 0, errs.InvalidOption("Limit", o.Limit, fmt.Sprintf("between 1 and %d", int64(maxShardedLimit)))
	}
	if o.Suspended {
		return 0, errs.InvalidOption("Suspended", true, "false: a sharded stock is not restored")
	}
	if err := o.check(); err != nil {
		return 0, err
	}
	p, err := s.begin(ctx, session.CallID(), o)
	if err != nil {
		return 0, err
	}
	t := s
	if p.shards != len(s.shards) { // somebody else's
		t = s.c.Sharded(s.name, p.shards)
		if t.refused != nil {
			return 0, t.refused
		}
	}
	if err := t.complete(ctx, p); err != nil {
		return 0, err
	}
	if !p.mine {
		return p.epoch, fmt.Errorf("%w: %q, epoch %d", ErrAlreadyOpen, s.name, p.epoch)
	}
	for _, shard := range t.shards {
		shard.removeAfter(o)
	}
	return p.epoch, nil
}

// complete brings an opening to its end, from whatever phase it is in.
func (s *Sharded) complete(ctx context.Context, p plan) error {
	if p.phase < phaseReady {
		incs, sells := make([]string, len(s.shards)), make([]bool, len(s.shards))
		err := s.each(func(i int) (err error) {
			incs[i], sells[i], err = s.prepare(ctx, i, p)
			return err
		})
		if err != nil {
			return err
		}
		// From here on it is what the plan says that may sell, not what this call has just made or found.
		if p, err = s.fix(ctx, p.epoch, incs, slices.Contains(sells, true)); err != nil {
			return err
		}
		for i, inc := range incs {
			if inc != p.inc(i) {
				return s.anew(i)
			}
		}
	}
	if p.phase < phaseLive {
		if err := s.each(func(i int) error { return s.enliven(ctx, i, p) }); err != nil {
			return err
		}
		_, err := s.advance(ctx, p.epoch, phaseLive, nil, false)
		return err
	}
	return nil
}

// each runs fn for every shard at the same time, and returns the first error by number.
func (s *Sharded) each(fn func(i int) error) error {
	failed := make([]error, len(s.shards))
	var wg sync.WaitGroup
	for i := range s.shards {
		wg.Go(func() { failed[i] = fn(i) })
	}
	wg.Wait()
	for _, err := range failed {
		if err != nil {
			return err
		}
	}
	return nil
}

// Claim is Stock.Claim, with Remaining the home's. One round trip while the home has units.
func (s *Sharded) Claim(ctx context.Context, claimant string) (_ Grant, err error) {
	defer edge(&err)
	if err := cmp.Or(s.usable(), keyname.Required("claimant", claimant)); err != nil {
		return Grant{}, err
	}
	home := s.home(claimant)
	return s.obtain(ctx, home, func(ctx context.Context) (Grant, error) {
		// past what this process remembers of the home's being sold out: that may be a moment old
		return s.shards[home].shared().claims.Do(ctx, claimant)
	})
}

// ClaimOnce is Stock.ClaimOnce, at claimant's home. It may be granted fewer units than are left elsewhere, but none
// only if none are left at all.
func (s *Sharded) ClaimOnce(ctx context.Context, request, claimant string, n int64) (_ Grant, err error) {
	defer edge(&err)
	if err := cmp.Or(s.usable(), checkRequest(request, claimant, n)); err != nil {
		return Grant{}, err
	}
	home, id := s.home(claimant), session.CallID()
	return s.obtain(ctx, home, func(ctx context.Context) (Grant, error) {
		return s.shards[home].once(ctx, id, request, claimant, n)
	})
}

// ClaimAny is Stock.ClaimAny, at a shard picked at random. It may be granted fewer units than are left elsewhere, but
// none only if none are left at all.
func (s *Sharded) ClaimAny(ctx context.Context, n int64) (_ Grant, err error) {
	defer edge(&err)
	if err := cmp.Or(s.usable(), checkN(n)); err != nil {
		return Grant{}, err
	}
	home := rand.IntN(len(s.shards))
	return s.obtain(ctx, home, func(ctx context.Context) (Grant, error) {
		return s.shards[home].shared().anys.Do(ctx, n)
	})
}

// obtain asks the home, and as long as that has nothing, sees to it that it gets something or that there is nothing.
func (s *Sharded) obtain(ctx context.Context, home int, ask func(ctx context.Context) (Grant, error)) (Grant, error) {
	began := s.c.began()
	g, err := s.search(ctx, home, ask)
	s.c.claimed(ctx, s.name, began, g, err)
	return g, err
}

func (s *Sharded) search(ctx context.Context, home int, ask func(ctx context.Context) (Grant, error)) (Grant, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.c.calls.Bound(), session.ErrPatience)
		defer cancel()
	}
	for n := 0; ; n++ {
		g, err := ask(ctx)
		if err != nil {
			return Grant{}, err
		}
		switch g.Outcome {
		case SoldOut, Ended, NotOpen:
		default:
			return s.whole(home, g)
		}
		// What others brought here may be gone before it is asked for, and so may what this call brings: after a few
		// rounds, everybody waits for a random while, so that two homes do not pass the last unit back and forth.
		if n > 2 && !script.Pause(ctx, script.Backoff(min(n-3, 4))) {
			return Grant{}, unswept{fmt.Sprintf("%v: looking for units of %q: %v", ErrUnavailable, s.name, errs.Ended(ctx)), errs.Ended(ctx)}
		}
		v, lost := s.sweeps.join(ctx, home)
		if script.Retryable(lost) { // the home has answered: nothing was granted, whatever became of the sweep
			ended := errs.Ended(ctx)
			if ended == nil && errors.Is(lost, context.DeadlineExceeded) { // the sweep has the same deadline
				ended = context.DeadlineExceeded
			}
			return Grant{}, unswept{fmt.Sprintf("%v: looking for units of %q: %v", ErrUnavailable, s.name, lost), ended}
		}
		if lost != nil {
			return Grant{}, lost
		}
		if v.outcomes[home] != 0 {
			return Grant{Outcome: v.outcomes[home], Epoch: v.epoch}, nil
		}
	}
}

// unswept is the ErrUnavailable of a claim whose home has nothing, and of the other shards it is not known.
type unswept struct {
	text string
	ctx  error // its end, if that was it
}

func (e unswept) Error() string { return e.text }

func (e unswept) Unwrap() []error {
	if e.ctx == nil {
		return []error{ErrUnavailable}
	}
	return []error{ErrUnavailable, e.ctx}
}

// whole is a shard's grant as one of the whole stock.
func (s *Sharded) whole(shard int, g Grant) (Grant, error) {
	if g.Ordinal == 0 {
		return g, nil
	}
	if g.Ordinal+g.N > 1<<shardBits {
		return Grant{}, fmt.Errorf("%w: %q has given out ordinal %d", ErrOverflow, s.shards[shard].keys[0], int64(maxShardedLimit))
	}
	g.Ordinal = s.Ordinal(shard, g.Ordinal)
	return g, nil
}

// Lookup is Stock.Lookup, with Remaining the home's. One round trip if claimant has a unit.
func (s *Sharded) Lookup(ctx context.Context, claimant string) (_ Grant, _ bool, err error) {
	defer edge(&err)
	if err := cmp.Or(s.usable(), keyname.Required("claimant", claimant)); err != nil {
		return Grant{}, false, err
	}
	home := s.home(claimant)
	g, err := s.shards[home].lookup(ctx, claimant)
	if err != nil {
		return Grant{}, false, err
	}
	if !g.Won() {
		// A home that is gone has no claimants either; but there was one, if the plan says so.
		shot, err := s.look(ctx)
		if err == nil {
			err = s.sound(shot)
		}
		return Grant{}, false, err
	}
	g, err = s.whole(home, g)
	return g, g.Won(), err
}

// Return is Stock.Return: what is returned can be claimed at any home.
func (s *Sharded) Return(ctx context.Context, claimant string, ordinal int64) (_ bool, err error) {
	defer edge(&err)
	if err := cmp.Or(s.usable(), checkUnit(claimant, ordinal)); err != nil {
		return false, err
	}
	home, own := s.home(claimant), ordinal&(1<<shardBits-1)
	if int64(home) != ordinal>>shardBits || own == 0 {
		return false, nil // not that claimant's, whatever it is
	}
	return s.shards[home].Return(ctx, claimant, own)
}

// ReturnOnce is Stock.ReturnOnce, for a request that claimant made.
func (s *Sharded) ReturnOnce(ctx context.Context, request, claimant string) (_ bool, err error) {
	defer edge(&err)
	if err := cmp.Or(s.usable(), keyname.Required("claimant", claimant)); err != nil {
		return false, err
	}
	return s.shards[s.home(claimant)].ReturnOnce(ctx, request)
}

// ReturnAny is Stock.ReturnAny.
func (s *Sharded) ReturnAny(ctx context.Context, g Grant) (_ bool, err error) {
	defer edge(&err)
	if err := s.usable(); err != nil {
		return false, err
	}
	shard := g.Ordinal >> shardBits
	if g.Ordinal < 1 || shard >= int64(len(s.shards)) {
		return false, errs.InvalidOption("Ordinal", g.Ordinal, "that of ClaimAny's grant")
	}
	g.Ordinal &= 1<<shardBits - 1
	return s.shards[shard].ReturnAny(ctx, g)
}

// Close closes every shard for good, all of them at the same time but not in one moment: a claim that comes in
// between may be granted at one and Ended at another. After an error some may be closed: Close again.
func (s *Sharded) Close(ctx context.Context) (err error) {
	defer edge(&err)
	if err := s.usable(); err != nil {
		return err
	}
	return s.each(func(i int) error { return s.shards[i].Close(ctx) })
}

// Inspect reads all shards, in one round trip to each: Limit, Sold, Held and Remaining are of the whole stock, what is on
// its way between shards included, and Seq is the number of units ever granted. While units are sold or moved they are of
// slightly different moments, and Remaining is then what Sold and Held leave of the limit. All zero, StateAbsent, if there is none,
// or none that sells yet. Units that do not add up at rest are ErrCorrupt.
func (s *Sharded) Inspect(ctx context.Context) (_ Status, err error) {
	defer edge(&err)
	if err := s.usable(); err != nil {
		return Status{}, err
	}
	shot, err := s.look(ctx)
	if err != nil {
		return Status{}, err
	}
	if err := s.sound(shot); err != nil || shot.plan.phase < phaseReady {
		return Status{}, err
	}
	p := shot.plan
	st := Status{Limit: p.total, Epoch: p.epoch, UntilStart: script.Duration(max(0, p.start)), UntilEnd: script.Duration(max(0, p.end)), UntilGone: script.Duration(max(0, p.gone))}
	for _, sh := range shot.shards {
		st.Sold += sh.sold
		st.Held += sh.held
		st.Seq += sh.seq
		life := StateOpen // or will be, as soon as somebody claims
		switch {
		case sh.state == shardClosed || sh.state == shardShut:
			life = StateClosed
		case sh.end <= 0:
			life = StateEnded
		case sh.start > 0:
			life = StatePending
		}
		if st.State == StateAbsent || openness[life] > openness[st.State] {
			st.State = life
		}
	}
	st.Remaining = max(0, st.Limit-st.Sold-st.Held)
	if shot.units() != p.total { // moved while it was looked at, or lost
		again, err := s.look(ctx)
		if err != nil {
			return Status{}, err
		}
		if again.same(shot) {
			return st, s.wrongSum(shot)
		}
	}
	return st, nil
}
