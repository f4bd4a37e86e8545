package rlock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
)

// The token of a Quorum of Fenced members is greater than that of every earlier hold, through restarts of servers that
// lose their data. Each member keeps the last token that it knows of, and which run of the server kept it.
//
//  1. The votes say what each member has kept. If a majority of them was kept by the present runs of their servers, the
//     token is one more than the greatest: what an earlier holder had is kept by a majority, which has a member in
//     common with this one. Otherwise too many servers were restarted, or the name is new. Then all members are asked,
//     and all must answer.
//  2. All members that voted are to keep the token. It is the hold's when a majority has. A member keeps it only if its
//     vote lasts, and no token that is as late.
//
// The argument: holders X and Y, in this order, each had its token kept by a majority that voted for it at that time.
// At a member of both, X's vote ended before Y's began, so X's token was kept there before Y asked, and Y heard of it,
// unless that server has forgotten it. Then it was restarted, or the key was removed, after X's token was kept and
// before Y's vote; its record is of no present run, and does not count. If a majority of Y's records counts, one of
// them is of a member that kept X's token, or a later one. If not, Y asks all: any member that remembers X's token will
// do.
//
// What is not closed: all members that kept the last token forget it before a later one is kept. Each token is at least
// the µs of the clocks of the servers that voted, so it grows then, too, unless they were stepped back. A server that
// goes on in the same run without its data (FLUSHALL, DEL, eviction) has no record, and counts as one that was
// restarted. One that goes back to an older record in the same run (RESTORE, by hand) is not noticed.
//
// The obvious ways go wrong, and a search of a model finds how (internal/quorummodel): one server's last token plus
// one, because the next majority may be without that server; the servers' clocks, because they differ; a member that
// was restarted and counts; a token that one server keeps; a request that runs late and takes a member back to an
// earlier token. The last is refused twice, because the owner has to hold the member, and because its token is the
// lesser one; either would do.

var tokenScript = load("keep a token", "vote_token")

// votedTokenKey is where a member of a Quorum keeps the last token.
func votedTokenKey(key string) string { return keyname.Prefix("redlatch_token", key) }

// fenced reports whether the holds have tokens.
func (a *quorumAcquisition) fenced() bool { return a.members[0].kind == votingKinds[fencing] }

// mint has a majority keep the token of the hold.
func (a *quorumAcquisition) mint(ctx context.Context, p *parts) error {
	token, err := a.nextToken(ctx, p)
	for err == nil {
		kept, later, failed := a.keepToken(ctx, p, token)
		switch {
		case kept >= a.q.need:
			p.mu.Lock()
			p.minted = token
			p.mu.Unlock()
			return nil
		case later < token || !time.Now().Before(p.until()):
			err = fmt.Errorf("%w: %q: %d of %d servers have kept the token: %w", errs.ErrUnavailable, a.q.name, kept,
				len(a.members), errors.Join(failed...))
		}
		token = later + 1
	}
	return err
}

// nextToken is greater than each that a hold has had so far.
func (a *quorumAcquisition) nextToken(ctx context.Context, p *parts) (int64, error) {
	holds, counts, token := p.all(), 0, int64(0)
	for _, x := range holds {
		if x == nil {
			continue
		}
		last := ownerOf(x.h).token
		if last > 0 {
			counts++
		}
		token = max(token, last, -last)
	}
	if counts >= a.q.need {
		return token + 1, nil
	}
	lasts, failed := make([]int64, len(a.members)), make([]error, len(a.members))
	var wg sync.WaitGroup
	for i, m := range a.members {
		wg.Go(func() { lasts[i], failed[i] = a.askToken(ctx, m) })
	}
	wg.Wait()
	for _, last := range lasts {
		token = max(token, last)
	}
	if err := errors.Join(failed...); err != nil {
		return 0, fmt.Errorf("%w: %q: no token: %d of %d servers are sure of the last one, which is not a majority "+
			"(they were "+
			"restarted, or the name is new), so all must answer: %w", errs.ErrUnavailable, a.q.name, counts, len(a.members), err)
	}
	return token + 1, nil
}

// askToken asks a member for the last token that it has kept.
func (a *quorumAcquisition) askToken(ctx context.Context, m member) (int64, error) {
	v, err := a.runToken(ctx, m)
	return v[1], err
}

// keepToken has the members that voted keep the token, also those whose votes come meanwhile, until a majority has.
// later is the greatest token that one of them has in its place.
func (a *quorumAcquisition) keepToken(ctx context.Context, p *parts,
	token int64) (kept int, later int64, failed []error) {
	type answer struct {
		v   [2]int64
		err error
	}
	asked, open := make([]bool, len(a.members)), 0
	answers := make(chan answer, len(a.members))
	for {
		for i, x := range p.all() {
			if x == nil || asked[i] {
				continue
			}
			asked[i] = true
			open++
			go func() {
				v, err := a.keepAt(ctx, i, x, token)
				answers <- answer{v, err}
			}()
		}
		if open == 0 || kept >= a.q.need {
			return kept, later, failed
		}
		answer := <-answers
		open--
		switch {
		case answer.err != nil:
			failed = append(failed, answer.err)
		case answer.v[0] == 1:
			kept++
		case answer.v[0] == 2:
			later = max(later, answer.v[1])
		default:
			failed = append(failed, errVoteOver)
		}
	}
}

var errVoteOver = errors.New("its vote is over")

// keepAt has a member keep the token of a hold that it voted for.
func (a *quorumAcquisition) keepAt(ctx context.Context, i int, x *Hold, token int64) ([2]int64, error) {
	own := ownerOf(x.h)
	return a.runToken(ctx, a.members[i], own.Lease.Owner, strconv.FormatInt(token, 10),
		strconv.FormatInt(own.lock.c.run.Load(), 10), script.Millis(own.lock.c.tokenRetention))
}

// joined has a member whose vote has joined the hold keep its token, if there is one already. Without that a server
// that is slower than the others would not count again after a restart. If the call fails it does not count yet.
func (a *quorumAcquisition) joined(ctx context.Context, p *parts, i int, x *Hold) {
	p.mu.Lock()
	token := p.minted
	p.mu.Unlock()
	if token != 0 {
		_, _ = a.keepAt(ctx, i, x, token)
	}
}

// runToken runs vote_token.lua at a member, for as long as a vote may take.
func (a *quorumAcquisition) runToken(ctx context.Context, m member, args ...string) (v [2]int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, a.limit(m))
	defer cancel()
	reply, err := m.c.runner.Do(ctx, script.Call{Script: tokenScript, Keys: []string{m.key, votedTokenKey(m.key)},
		Args: args})
	if err != nil {
		return v, err
	}
	list, err := reply.AsIntSlice()
	if err != nil || len(list) != 2 {
		return v, script.Unexpected("keep a token", list, err)
	}
	return [2]int64{list[0], list[1]}, nil
}
