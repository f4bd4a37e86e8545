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

// Sharded is a stock whose units lie in several shards, for a sale that one Cluster node cannot serve: one of more than some
// million combined claims a second. Every shard is a Stock. The keys of the shards are spread evenly over the slots, so with
// as many shards as primaries each primary has one. More shards than primaries only cost. Make one value and keep it. It is
// safe for concurrent use.
//
// What it promises:
//
//   - All units together are always exactly the limit. If they are not, because a shard has lost something, the answer is
//     ErrCorrupt.
//   - A claimant claims only at its home, the shard that the hash of its name chooses. So it gets at most one unit, and the
//     same answer whenever it asks, from the same script as in a Stock. If the home has nothing left, units of the fullest
//     other shard move there first.
//   - SoldOut means that there was a moment, during the call, at which no unit was left anywhere.
//   - A shard that is gone is ErrCorrupt for its claimants, and in place of SoldOut. The other shards go on. The lost shard
//     sells nothing again in this opening, even if another process makes it anew.
//
// What it does not:
//
//   - Ordinals are unique, but neither dense nor in the order of claiming: shard i has those from i * 2^40.
//   - SoldOut costs a look at all shards. All claims that need one at the same time, through one value, share it.
//   - There are no reservations, no Resize and no Restore.
//   - Each shard keeps the window by the clock of its own server.
//   - A failover that loses a transfer can change the sum, in either direction, unless Options.MinReplicas prevents it.
//
// The package comment has the protocol.
type Sharded struct {
	c       *Client
	name    string
	refused error // what is wrong with the name or the number
	plan    string
	shards  []*Stock
	sweeps  sweeps
}

// Sharded describes the stock called name in so many shards, 1 to 64. It sends nothing. The number must be the same in all
// processes: if the stock was opened with another, a verb returns ErrInvalidOption and grants nothing. If the name or the
// number cannot be used, every verb returns ErrInvalidName or ErrInvalidOption.
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

// Shards returns the shards in their order, for their Ledger, KeepLedger and Inspect. A shard counts its own ordinals;
// Ordinal turns them into those of the whole stock. Open, Resize and Restore of a shard return ErrInvalidOption, because the
// limit belongs to the whole stock. (A plain stock opened in the place of a lost shard would sell what the shard has sold.)
func (s *Sharded) Shards() []*Stock { return slices.Clone(s.shards) }

// Ordinal returns the ordinal in the whole stock that belongs to a shard's own ordinal.
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

// Open opens the stock, spreads its units evenly over the shards, and returns the epoch of all of them. Like Stock.Open it
// never overwrites. While the plan is there, it sells no unit of a lost shard a second time: if a shard was lost while
// several processes opened, the answer is ErrCorrupt. Spec.Limit is at most 2^40-1, and Suspended is ErrInvalidOption.
//
// If Open is broken off, either no shard sells yet or some do. The next Open, whatever its spec, completes the first one and
// returns ErrAlreadyOpen. Once all shards are there, a claim completes it too. Six round trips, each repeated until answered.
//
// With Options.MinReplicas no shard sells before so many replicas have the plan: ErrNotReplicated then, and it is safe to call
// Open again.
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
	if p.shards != len(s.shards) { // another opening, in another number of shards
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
	if p.phase == phaseLive {
		return nil
	}
	incs, sells := p.incs, make([]bool, len(s.shards))
	if p.phase < phaseReady {
		incs = make([]string, len(s.shards))
		err := s.each(func(i int) (err error) {
			incs[i], sells[i], err = s.prepare(ctx, i, p)
			return err
		})
		if err != nil {
			return err
		}
	}
	// From here on only what the plan names may sell, not what this call has just made or found. B's request that makes
	// shard 0 is held back. A opens the stock and sells all of it. Shard 0 loses its data. B's request arrives and makes
	// it again: if B let it sell, its units would be sold twice (TestAShardThatWasLostWhileOthersOpenIsNotSoldTwice).
	//
	// Names that another process wrote are fixed once more, so that replicas confirm them before a shard sells
	// (TestNoShardSellsBeforeReplicasHaveThePlansNames).
	p, err := s.fix(ctx, p.epoch, incs, slices.Contains(sells, true))
	if err != nil {
		return err
	}
	for i, inc := range incs {
		if inc != p.inc(i) {
			return s.anew(i)
		}
	}
	if p.phase == phaseLive {
		return nil
	}
	if err := s.each(func(i int) error { return s.enliven(ctx, i, p) }); err != nil {
		return err
	}
	_, err = s.advance(ctx, false, p.epoch, phaseLive, nil, false)
	return err
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

// Claim is Stock.Claim at the claimant's home. Grant.Remaining is what that shard has left. One round trip while the home has
// units.
func (s *Sharded) Claim(ctx context.Context, claimant string) (_ Grant, err error) {
	defer edge(&err)
	if err := cmp.Or(s.usable(), keyname.Required("claimant", claimant)); err != nil {
		return Grant{}, err
	}
	home := s.home(claimant)
	return s.obtain(ctx, home, func(ctx context.Context) (Grant, error) {
		// This passes by what the process knows of a sold-out home: that may be a moment old, and SoldOut of a Sharded says
		// that nothing was left at a moment during the call.
		return s.shards[home].shared().claims.Do(ctx, claimant)
	})
}

// ClaimUpTo is Stock.ClaimUpTo at the claimant's home. It may grant fewer units than are left elsewhere. It grants none only
// if none are left at all.
func (s *Sharded) ClaimUpTo(ctx context.Context, request, claimant string, n int64) (_ Grant, err error) {
	defer edge(&err)
	if err := cmp.Or(s.usable(), checkRequest(request, claimant, n)); err != nil {
		return Grant{}, err
	}
	home := s.home(claimant)
	return s.obtain(ctx, home, func(ctx context.Context) (Grant, error) {
		return s.shards[home].granted(ctx, act{verb: actOnceUpTo, id: request, claimant: claimant, n: n})
	})
}

// ClaimAny is Stock.ClaimAny at a shard that it picks at random. It may grant fewer units than are left elsewhere. It grants
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

// obtain asks the home. As long as the home has nothing, sweeps move units there, or find that there are none.
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
		// Other claims may take what a sweep brought here before this one asks again. Claims at two homes could so pass the
		// last unit back and forth; from the fourth round on each claim pauses for a random while.
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

// unswept is the ErrUnavailable of a claim whose home has nothing, when it is not known what the other shards have.
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

// whole turns a shard's grant into one of the whole stock.
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

// Lookup is Stock.Lookup at the claimant's home. Grant.Remaining is what that shard has left. One round trip if claimant has a
// unit.
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
		// A home that is lost knows no claimants, as one that never was. The plan tells which of the two it is.
		shot, err := s.look(ctx)
		if err == nil {
			err = s.sound(shot)
		}
		return Grant{}, false, err
	}
	g, err = s.whole(home, g)
	return g, g.Won(), err
}

// Return is Stock.Return. A unit that is returned can be claimed at any home.
func (s *Sharded) Return(ctx context.Context, claimant string, ordinal int64) (_ bool, err error) {
	defer edge(&err)
	if err := cmp.Or(s.usable(), checkUnit(claimant, ordinal)); err != nil {
		return false, err
	}
	home, own := s.home(claimant), ordinal&(1<<shardBits-1)
	if int64(home) != ordinal>>shardBits || own == 0 {
		return false, nil // it is of another shard, so it is not that claimant's
	}
	return s.shards[home].Return(ctx, claimant, own)
}

// ReturnOnce is Stock.ReturnOnce for a request of claimant.
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

// Close closes every shard for good. It asks all shards at the same time, but they do not close in one moment: until all
// have, one shard may grant a claim while another answers Ended. After an error some may be closed; call Close again.
func (s *Sharded) Close(ctx context.Context) (err error) {
	defer edge(&err)
	if err := s.usable(); err != nil {
		return err
	}
	return s.each(func(i int) error { return s.shards[i].Close(ctx) })
}

// Inspect reads all shards, in one round trip to each. Limit, Sold, Held and Remaining are those of the whole stock, with what
// is on its way between shards; Seq is the number of units that were ever granted. While units are sold or move, the numbers
// of the shards are of slightly different moments, and Remaining is what Sold and Held leave of the limit. If there is no
// stock, or none that sells yet, the Status is zero: StateAbsent. If nothing moves and the units do not add up, the error is
// ErrCorrupt.
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
		life := StateOpen // a shard that does not sell yet does as soon as a claim comes
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
