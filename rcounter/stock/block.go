package stock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

const (
	// minBlockTTL is the shortest time for which a block may be handed out.
	minBlockTTL = 10 * time.Millisecond
	// blockMargin of a block's time is what its owner stops early: its clock and the server's may run apart by that.
	blockMargin = 100
)

// What the server answers about blocks.
var (
	// ErrBlockEnded: the block was settled, or closed by its owner; it stands as it was.
	ErrBlockEnded = errors.New("block ended")
	// ErrBlockHeld: its owner may still hand out units of it. Blocks tells for how long.
	ErrBlockHeld = errors.New("block held")
	// ErrNoBlock: there is no such stock, or no such block of it.
	ErrNoBlock = errors.New("no such block")
)

// Block is a number of units, without claimants, that one process may hand out by itself, with no round trip for each:
// for a crowd that asks faster than a server answers. It is safe for concurrent use.
//
// The units are sold from the moment the block is made. Close gives back those not handed out. If the process dies,
// its units stay sold: nothing is handed out twice, and too little is sold by at most what was left of its blocks.
// Stock.Blocks lists such blocks, and once their time is over Stock.SettleBlock closes them in the owner's place, given
// how many units were handed out, which the caller's own records must tell. That is safe because Take stops by itself
// when the block's time is over, by this machine's monotonic clock, a hundredth of the time early, before the server's
// clock has come so far. (Not if that is stepped forward.) Flush prolongs the time.
//
// A unit that was handed out goes back to the stock by ReturnAny: Grant{Outcome: Granted, Request: the block's ID,
// Ordinal, N: 1}.
type Block struct {
	s       *Stock
	id      string
	ttl     time.Duration
	outcome Grant

	mu    sync.Mutex
	taken int64
	until time.Time
	ended error // set by Close, and by the server's word that it is over
}

// Block claims up to n units as a block, for ttl: at least 10 ms, and longer than anything that may keep the process
// from flushing. Fewer are granted if fewer are left; none, and an empty Block whose Grant says why, if the stock does
// not sell. One round trip, repeated until answered.
//
// After an error the caller has no units. What the server may have granted all the same is returned in the background as soon
// as the server can be asked, for as long as five call timeouts; after that it is a block like that of a dead process.
//
// Errors: ErrInvalidOption for n or ttl, ErrNotReplicated, and those of Claim.
func (s *Stock) Block(ctx context.Context, n int64, ttl time.Duration) (_ *Block, err error) {
	defer edge(&err)
	if err := s.c.calls.Usable(s.refused); err != nil {
		return nil, err
	}
	if err := checkN(n); err != nil {
		return nil, err
	}
	if ttl < minBlockTTL || ttl > maxLifetime {
		return nil, errs.InvalidOption("ttl", ttl, fmt.Sprintf("between %v and %v", minBlockTTL, maxLifetime))
	}
	b := &Block{s: s, id: session.RecordID(), ttl: ttl}
	sent := time.Now()
	g, err := s.block(ctx, b.id, n, ttl)
	s.c.claimed(ctx, s.name, sent, g.Outcome, g.N, err)
	if err != nil {
		if errors.Is(err, ErrUnknownOutcome) || errors.Is(err, ErrNotReplicated) {
			ctx := context.WithoutCancel(ctx)
			s.c.calls.Finish(func() {
				_, err := s.endBlock(ctx, session.CallID(), b.id, 0, blockClose, 0)
				if err != nil && !errors.Is(err, ErrBlockEnded) && !errors.Is(err, ErrNoBlock) && !errors.Is(err, ErrNotReplicated) {
					s.c.failed(ctx, notEnded, s.name, err)
				}
			})
		}
		return nil, err
	}
	b.outcome = g
	b.prolong(sent)
	return b, nil
}

// prolong moves the end to ttl after sent, less the margin.
func (b *Block) prolong(sent time.Time) {
	if until := sent.Add(b.ttl - b.ttl/blockMargin); until.After(b.until) {
		b.until = until
	}
}

// ID names the block in Stock.Blocks.
func (b *Block) ID() string { return b.id }

// Grant is the answer to the claim: Ordinal to Ordinal + N - 1 are the block's units, if Won.
func (b *Block) Grant() Grant { return b.outcome }

// Take hands out the next unit. It is false when there is none left, when the block's time is over, and after Close.
// No round trip.
func (b *Block) Take() (ordinal int64, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended != nil || b.taken == b.outcome.N || !time.Now().Before(b.until) {
		return 0, false
	}
	b.taken++
	return b.outcome.Ordinal + b.taken - 1, true
}

// Left is how many units Take may still hand out.
func (b *Block) Left() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended != nil || !time.Now().Before(b.until) {
		return 0
	}
	return b.outcome.N - b.taken
}

// Until is when Take stops, on this machine's monotonic clock, unless Flush moves it.
func (b *Block) Until() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.until
}

// Flush tells the server how many units have been handed out, so that after a crash no fewer are settled, and
// prolongs the block's time: it has ttl left from before this call, also if it was over. One round trip, repeated until
// answered. ErrBlockEnded if it was settled meanwhile: Take stops; ErrNoBlock if the stock is gone.
func (b *Block) Flush(ctx context.Context) (err error) {
	defer edge(&err)
	if err := b.s.c.calls.Usable(b.s.refused); err != nil {
		return err
	}
	b.mu.Lock()
	taken, ended := b.taken, b.ended
	b.mu.Unlock()
	if ended != nil || !b.outcome.Won() {
		return ended
	}
	sent := time.Now()
	_, err = b.s.endBlock(ctx, session.CallID(), b.id, taken, blockFlush, b.ttl)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case err == nil:
		b.prolong(sent)
	case errors.Is(err, ErrBlockEnded) && b.ended == nil, errors.Is(err, ErrNoBlock) && b.ended == nil:
		b.ended = err
	}
	return err
}

// Close ends the handing out, at once, and gives back what is left. It may be called again after an error, until it
// returns nil or ErrBlockEnded (it was settled meanwhile); until then, and if it never does, what is left stays sold. One
// round trip, repeated until answered.
func (b *Block) Close(ctx context.Context) (err error) {
	defer edge(&err)
	b.mu.Lock()
	if b.ended == nil {
		b.ended = fmt.Errorf("%w: %q, closed", ErrBlockEnded, b.id)
	}
	taken := b.taken
	b.mu.Unlock()
	if err := b.s.c.calls.Usable(b.s.refused); err != nil {
		return err
	}
	if !b.outcome.Won() {
		return nil
	}
	_, err = b.s.endBlock(ctx, "close-"+b.id, b.id, taken, blockClose, 0)
	return err
}

// BlockStatus is a block as the server has it.
type BlockStatus struct {
	ID string
	// Owner is the machine and the process that made it, as that machine calls itself, until it has ended.
	Owner string
	// Ordinal to Ordinal + N - 1 are its units. The first Taken of them were handed out, as the owner said last, or
	// who settled it.
	Ordinal, N, Taken int64
	// Ended reports that the rest was given back, by the owner or by SettleBlock.
	Ended bool
	// Left is for how long the owner may hand out units: 0 or less if the block can be settled.
	Left time.Duration
}

// Blocks lists the stock's blocks, those ended included, by their units. A round trip for about 500.
func (s *Stock) Blocks(ctx context.Context) (_ []BlockStatus, err error) {
	defer edge(&err)
	if err := s.c.calls.Usable(s.refused); err != nil {
		return nil, err
	}
	return s.blocks(ctx, blocksPage)
}

// SettleBlock ends a block whose owner is gone, in its place: the first taken of its units were handed out, the rest goes
// back to the stock, and how many those were is returned. Ordinals are handed out in their order; so taken is the
// highest one that the caller's own records know, minus the block's Ordinal, plus 1, or 0 if they know none. They must be asked
// after the block's time is over and whatever the owner had begun is done, or a unit that was handed out goes out twice.
// One round trip, repeated until answered.
//
// ErrBlockHeld before its time is over. ErrBlockEnded: it has been closed or settled. ErrInvalidOption: taken is less
// than what the owner said, or more than there were. ErrNoBlock. Nothing is changed then.
func (s *Stock) SettleBlock(ctx context.Context, id string, taken int64) (returned int64, err error) {
	defer edge(&err)
	if err := s.c.calls.Usable(s.refused); err != nil {
		return 0, err
	}
	if err := keyname.Required("id", id); err != nil {
		return 0, err
	}
	if taken < 0 || taken > maxLimit {
		return 0, errs.InvalidOption("taken", taken, fmt.Sprintf("between 0 and %d", int64(maxLimit)))
	}
	return s.endBlock(ctx, session.CallID(), id, taken, blockSettle, 0)
}

var (
	blockScript    = script.Load("block", files, "block")
	blockEndScript = script.Load("block_end", files, "block_end")
	blocksScript   = script.Load("blocks", files, "blocks")
)

// block runs block.lua.
func (s *Stock) block(ctx context.Context, id string, n int64, ttl time.Duration) (Grant, error) {
	host, _ := os.Hostname() // or nothing
	v, unconfirmed := s.sure(ctx, 3, blockScript, id, s.c.calls.Mark(), strconv.FormatInt(n, 10), script.Millis(ttl), host+":"+strconv.Itoa(os.Getpid()))
	return s.granted("block", id, v, unconfirmed)
}

type blockAct string

const (
	blockFlush  blockAct = "flush"
	blockClose  blockAct = "close"
	blockSettle blockAct = "settle"
)

// endBlock runs block_end.lua.
func (s *Stock) endBlock(ctx context.Context, call, id string, taken int64, act blockAct, ttl time.Duration) (returned int64, err error) {
	v, err := s.sure(ctx, 3, blockEndScript, call, s.c.calls.Mark(), id, strconv.FormatInt(taken, 10), string(act), script.Millis(ttl))
	if err != nil {
		return 0, err
	}
	switch v[0] {
	case 1:
		return 0, fmt.Errorf("%w: %q of %q, with %d handed out", ErrBlockEnded, id, s.keys[0], v[1])
	case 2:
		return 0, fmt.Errorf("%w: %q of %q, for another %v", ErrBlockHeld, id, s.name, script.Duration(v[1]))
	case 3:
		return 0, errs.InvalidOption("taken", taken, fmt.Sprintf("at least %d, which its owner has handed out, and at most its units", v[1]))
	case stockNone:
		return 0, fmt.Errorf("%w: %q of %q", ErrNoBlock, id, s.keys[0])
	}
	return v[2], s.verdict(v)
}

// blocks runs blocks.lua for all pages.
func (s *Stock) blocks(ctx context.Context, size int) ([]BlockStatus, error) {
	bad := malformed("blocks", s.keys[0])
	byID := map[string]BlockStatus{} // a scan may show an entry twice
	for cursor := "0"; ; {
		m, err := s.c.calls.Do(ctx, s.call(blocksScript, cursor, strconv.Itoa(size)))
		if err != nil {
			return nil, err
		}
		parts, err := m.ToArray()
		if err != nil || len(parts) != 3 {
			return nil, bad
		}
		v, err1 := parts[0].AsIntSlice()
		next, err2 := parts[1].ToString()
		entries, err3 := parts[2].AsStrSlice()
		if errors.Join(err1, err2, err3) != nil || len(v) < 2 || len(entries)%3 != 0 {
			return nil, bad
		}
		if v[0] == stockNone {
			return nil, nil
		}
		if err := s.verdict(v); err != nil {
			return nil, err
		}
		for i := 0; i < len(entries); i += 3 {
			b, ok := parseBlock(entries[i], entries[i+1], entries[i+2], v[1])
			if !ok {
				return nil, corrupt(s.keys[0], -1, 0)
			}
			byID[b.ID] = b
		}
		if cursor = next; cursor == "0" {
			break
		}
	}
	var all []BlockStatus
	for _, b := range byID {
		all = append(all, b)
	}
	slices.SortFunc(all, func(a, b BlockStatus) int { return cmp.Compare(a.Ordinal, b.Ordinal) })
	return all, nil
}

// parseBlock decodes 'state;taken;deadline;owner' and 'ordinal;n;…'.
func parseBlock(id, block, units string, now int64) (BlockStatus, bool) {
	f, u := strings.SplitN(block, ";", 4), strings.SplitN(units, ";", 3)
	if len(f) != 4 || len(u) < 2 {
		return BlockStatus{}, false
	}
	b := BlockStatus{ID: id, Ended: f[0] != "O"}
	var errs [4]error
	var deadline int64
	b.Taken, errs[0] = strconv.ParseInt(f[1], 10, 64)
	deadline, errs[1] = strconv.ParseInt(f[2], 10, 64)
	b.Ordinal, errs[2] = strconv.ParseInt(u[0], 10, 64)
	b.N, errs[3] = strconv.ParseInt(u[1], 10, 64)
	if !b.Ended {
		b.Owner, b.Left = f[3], script.Duration(deadline-now)
	}
	return b, errors.Join(errs[:]...) == nil
}

// blocksPage is about how many records one call of Blocks reads.
const blocksPage = 500
