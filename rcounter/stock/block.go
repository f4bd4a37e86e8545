package stock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/session"
)

const (
	// minBlockTTL is the shortest time for which a block may be handed out.
	minBlockTTL = 10 * time.Millisecond
	// blockMargin: an owner stops a hundredth of the block's time early. That is how far its clock and the server's may drift
	// apart (TestTakeStopsBeforeTheServerSaysThatTheBlocksTimeIsOver).
	blockMargin = 100
)

// Block is a number of units, without claimants, that one process hands out by itself, without a round trip for each: for a crowd
// that asks faster than a server answers. It is safe for concurrent use.
//
// The units are sold from the moment the block is made. Close gives back those that were not handed out. If the process dies, its
// units stay sold: none is handed out twice, and at most those that were left in its blocks go unsold. Stock.Blocks lists such
// blocks. Once the time of a block is over, Stock.SettleBlock ends it in the owner's place; the caller's own records must tell how
// many units were handed out. That is safe because Take stops before the block's time is over on the server: it goes by this
// machine's monotonic clock and stops a hundredth of the time early. (It is not safe if the server's clock is stepped forward.)
// Flush prolongs the time.
//
// To return a unit that was handed out, call ReturnAny with the block's Grant, Ordinal set to the unit and N set to 1.
type Block struct {
	s   *Stock
	id  string
	ttl time.Duration

	mu    sync.Mutex
	grant Grant // only Until changes
	taken int64
	ended error // set by Close, and when the server says that the block is over
}

// Block claims up to n units as a block, for ttl: at least 10 ms, and longer than any pause that may keep the process from
// flushing. If fewer are left, it grants fewer. If the stock does not sell, it returns an empty Block whose Grant says why. One
// round trip, repeated until answered.
//
// After an error the caller has no units. The server may have granted units all the same; the process returns them in the
// background. If the server cannot be asked within five call timeouts, they are a block like that of a dead process.
//
// Errors: ErrInvalidOption for n or ttl, ErrNotReplicated, and those of Claim.
func (s *Stock) Block(ctx context.Context, n int64, ttl time.Duration) (_ *Block, err error) {
	defer edge(&err)
	if err := cmp.Or(s.usable(), checkN(n), checkTTL(ttl, minBlockTTL)); err != nil {
		return nil, err
	}
	b := &Block{s: s, id: session.RecordID(), ttl: ttl}
	sent := time.Now()
	b.grant, err = s.obtain(ctx, nil, func() (Grant, error) { return s.block(ctx, b.id, n, ttl) })
	switch {
	case err == nil:
		b.prolong(sent)
		return b, nil
	case errors.Is(err, ErrUnknownOutcome), errors.Is(err, ErrNotReplicated):
		ctx := context.WithoutCancel(ctx)
		s.c.calls.Finish(func() {
			_, err := s.endBlock(ctx, session.CallID(), b.id, 0, blockClose, 0)
			if err != nil && !errors.Is(err, ErrBlockEnded) && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrNotReplicated) {
				s.c.failed(ctx, notEnded, s.name, err)
			}
		})
	}
	return nil, err
}

// prolong moves the end to ttl after sent, less the margin. It never moves the end back: of two Flushes the one that was sent first
// may be answered last.
func (b *Block) prolong(sent time.Time) {
	if until := sent.Add(b.ttl - b.ttl/blockMargin); b.grant.Won() && until.After(b.grant.Until) {
		b.grant.Until = until
	}
}

// Grant is the answer to the claim. If Won, Ordinal to Ordinal + N - 1 are the block's units, Request is the id by which
// Stock.Blocks and SettleBlock know it, and Until is when Take stops unless Flush prolongs the block.
func (b *Block) Grant() Grant {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.grant
}

// Take hands out the next unit. It is false if none is left, once the block's time is over, and after Close. No round trip.
func (b *Block) Take() (ordinal int64, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left() == 0 {
		return 0, false
	}
	b.taken++
	return b.grant.Ordinal + b.taken - 1, true
}

// Left is how many units Take may still hand out: none once the block's time is over, and none after Close.
func (b *Block) Left() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.left()
}

func (b *Block) left() int64 {
	if b.ended != nil || !time.Now().Before(b.grant.Until) {
		return 0
	}
	return b.grant.N - b.taken
}

// Flush tells the server how many units have been handed out, so that SettleBlock accepts no fewer after a crash. It also
// prolongs the block, even one whose time was over: from before this call it has ttl left. One round trip, repeated until
// answered.
//
// Errors: ErrBlockEnded if the block was settled or closed since, and ErrNotFound if the stock is gone; then Take stops.
func (b *Block) Flush(ctx context.Context) (err error) {
	defer edge(&err)
	if err := b.s.usable(); err != nil {
		return err
	}
	b.mu.Lock()
	taken, ended, won := b.taken, b.ended, b.grant.Won()
	b.mu.Unlock()
	if ended != nil || !won {
		return ended
	}
	sent := time.Now()
	_, err = b.s.endBlock(ctx, session.CallID(), b.id, taken, blockFlush, b.ttl)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case err == nil:
		b.prolong(sent)
	case b.ended == nil && (errors.Is(err, ErrBlockEnded) || errors.Is(err, ErrNotFound)):
		b.ended = err
	}
	return err
}

// Close makes Take stop at once, and gives back what is left. After an error call it again, until it returns nil or ErrBlockEnded
// (the block was settled since). Until then what is left stays sold. One round trip, repeated until answered.
func (b *Block) Close(ctx context.Context) (err error) {
	defer edge(&err)
	b.mu.Lock()
	if b.ended == nil {
		b.ended = fmt.Errorf("%w: %q, closed", ErrBlockEnded, b.id)
	}
	taken, won := b.taken, b.grant.Won()
	b.mu.Unlock()
	if err := b.s.usable(); err != nil || !won {
		return err
	}
	_, err = b.s.endBlock(ctx, "close-"+b.id, b.id, taken, blockClose, 0)
	return err
}

var blockScript = script.Load("block", files, "block")

// block runs block.lua.
func (s *Stock) block(ctx context.Context, id string, n int64, ttl time.Duration) (Grant, error) {
	host, _ := os.Hostname() // or nothing
	return s.grant(ctx, blockScript, id, id, decimal(n), script.Millis(ttl), host+":"+strconv.Itoa(os.Getpid()))
}

var blockEndScript = script.Load("block_end", files, "block_end")

type blockAct string

const (
	blockFlush  blockAct = "flush"
	blockClose  blockAct = "close"
	blockSettle blockAct = "settle"
)

// endBlock runs block_end.lua.
func (s *Stock) endBlock(ctx context.Context, call, id string, taken int64, act blockAct, ttl time.Duration) (returned int64, err error) {
	v, err := s.confirmed(ctx, 3, blockEndScript, call, s.c.calls.Mark(), id, decimal(taken), string(act), script.Millis(ttl))
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
		return 0, fmt.Errorf("%w: block %q of %q", ErrNotFound, id, s.keys[0])
	}
	return v[2], s.verdict(v)
}
