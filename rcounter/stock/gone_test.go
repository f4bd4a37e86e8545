package stock_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
	"github.com/stretchr/testify/require"
)

// shelf is a sale in which something has happened to every id and to every claimant, for calls by these.
type shelf struct {
	sale
	entries []stock.Entry // of the ledger of a
}

// The ids and the claimants of a shelf. Nothing has happened to the last ones.
var (
	shelfIDs       = []string{"sold", "held", "over", "vain", "returned", "cancelled", "forbidden", "never"}
	shelfClaimants = []string{"has", "had", "none"}
)

func shelfSpec() stock.Spec {
	return stock.Spec{Limit: 100, PerUser: 50, OpenFor: time.Hour, Ledger: true}
}

func stockShelf(t *testing.T, c *stock.Client, name string) *shelf {
	t.Helper()
	s := &shelf{sale: saleOf(c, name)}
	var err error
	also := func(e error) { err = errors.Join(err, e) }
	for _, of := range []*stock.Stock{s.a, s.b} {
		_, e := of.Open(ctx, shelfSpec())
		also(e)
	}
	for i, who := range shelfClaimants[:2] {
		g, e := s.a.Claim(ctx, who)
		also(e)
		if i == 1 {
			also(second(s.a.Return(ctx, stock.Units{Claimant: who, Ordinal: g.Ordinal})))
		}
	}
	for _, id := range shelfIDs[:6] {
		ttl := time.Hour
		if id == "over" || id == "vain" {
			ttl = soon
		}
		lines := []stock.Line{{Stock: "a", N: 1}, {Stock: "b", N: 1}}
		also(second(s.a.Reserve(ctx, "bob", stock.Request{ID: id, N: 2}, ttl)))
		also(second(s.g.Reserve(ctx, "bob", stock.CartRequest{ID: "cart " + id, Lines: lines}, ttl)))
		switch id {
		case "sold", "returned":
			also(second(s.a.Confirm(ctx, id)))
			also(second(s.g.Confirm(ctx, "cart "+id, lines...)))
			if id == "returned" {
				also(second(s.a.Return(ctx, stock.Units{Request: id})))
				also(second(s.g.Return(ctx, "cart "+id, "a", "b")))
			}
		case "cancelled":
			also(second(s.a.Cancel(ctx, id)))
			also(second(s.g.Cancel(ctx, "cart "+id, "a", "b")))
		}
	}
	also(second(s.a.Cancel(ctx, "forbidden")))
	also(second(s.g.Cancel(ctx, "cart forbidden", "a", "b")))
	time.Sleep(5 * soon)
	for _, of := range []*stock.Stock{s.a, s.b} {
		also(of.Change(ctx, stock.Change{Pause: true}))
		also(of.Change(ctx, stock.Change{Resume: true, PerUser: 1})) // so that what is paid late is paid in vain
	}
	also(second(s.a.Confirm(ctx, "vain")))
	also(second(s.g.Confirm(ctx, "cart vain", stock.Line{Stock: "a"}, stock.Line{Stock: "b"})))
	for _, of := range []*stock.Stock{s.a, s.b} {
		also(of.Change(ctx, stock.Change{PerUser: 50}))
	}
	_, e := s.a.Ledger(ctx, 1000, func(_ context.Context, l []stock.Entry) error {
		s.entries = append(s.entries, l...)
		return nil
	})
	also(e)
	require.NoError(t, err)
	return s
}

// said is an answer of any verb, without times and openings.
func said(v any, err error) string {
	switch h := v.(type) {
	case stock.Grant:
		v = toldGrant(h, nil).text
	case stock.Cart:
		v = fmt.Sprint(h.Outcome, " ", toldCart(h, nil).text)
	case stock.Holding:
		v = fmt.Sprint(h.Outcome, h.Claimant, h.Ordinal, h.N, h.Asked)
	case map[string]stock.Holding:
		v = said(h["a"], nil) + said(h["b"], nil)
	}
	for _, is := range []error{stock.ErrNotOpen, stock.ErrNotFound, stock.ErrRestoring,
		errs.ErrCorrupt, errs.ErrMismatch} {
		if errors.Is(err, is) {
			return is.Error()
		}
	}
	return fmt.Sprint(v, err)
}

// byID are all verbs that name an id or a claimant.
var byID = map[string]func(s *shelf, id string) string{
	"Claim": func(s *shelf, id string) string { return said(s.a.Claim(ctx, "bob", stock.Request{ID: id, N: 2})) },
	"Reserve": func(s *shelf, id string) string {
		return said(s.a.Reserve(ctx, "bob", stock.Request{ID: id, N: 2}, time.Hour))
	},
	"Confirm": func(s *shelf, id string) string { return said(s.a.Confirm(ctx, id)) },
	"Extend":  func(s *shelf, id string) string { return said(s.a.Extend(ctx, id, 2*time.Hour)) },
	"Cancel":  func(s *shelf, id string) string { return said(s.a.Cancel(ctx, id)) },
	"Return":  func(s *shelf, id string) string { return said(s.a.Return(ctx, stock.Units{Request: id})) },
	"Return of a part": func(s *shelf, id string) string {
		return said(s.a.Return(ctx, stock.Units{Request: id, Keep: 1}))
	},
	"Return of any": func(s *shelf, id string) string {
		return said(s.a.Return(ctx, stock.Units{Request: id, Ordinal: 1, N: 1}))
	},
	"Lookup": func(s *shelf, id string) string { return said(s.a.Lookup(ctx, stock.Units{Request: id})) },
	"cart Reserve": func(s *shelf, id string) string {
		return said(s.g.Reserve(ctx, "bob", stock.CartRequest{ID: "cart " + id,
			Lines: []stock.Line{{Stock: "a", N: 1}, {Stock: "b", N: 1}}}, time.Hour))
	},
	"cart Confirm": func(s *shelf, id string) string {
		return said(s.g.Confirm(ctx, "cart "+id, stock.Line{Stock: "a"}, stock.Line{Stock: "b"}))
	},
	"cart Extend": func(s *shelf, id string) string { return said(s.g.Extend(ctx, "cart "+id, 2*time.Hour, "a", "b")) },
	"cart Cancel": func(s *shelf, id string) string { return said(s.g.Cancel(ctx, "cart "+id, "a", "b")) },
	"cart Return": func(s *shelf, id string) string { return said(s.g.Return(ctx, "cart "+id, "a", "b")) },
	"cart Lookup": func(s *shelf, id string) string { return said(s.g.Lookup(ctx, "cart "+id, "a", "b")) },
}

var byClaimant = map[string]func(s *shelf, who string) string{
	"Claim":  func(s *shelf, who string) string { return said(s.a.Claim(ctx, who)) },
	"Lookup": func(s *shelf, who string) string { return said(s.a.Lookup(ctx, stock.Units{Claimant: who})) },
	"Return": func(s *shelf, who string) string {
		return said(s.a.Return(ctx, stock.Units{Claimant: who, Ordinal: 1}))
	},
}

// sayings are the answers of all verbs about everything on a shelf.
func sayings(s *shelf) map[string]string {
	all := map[string]string{}
	for verb, call := range byID {
		for _, id := range shelfIDs {
			all[verb+" "+id] = call(s, id)
		}
	}
	for verb, call := range byClaimant {
		for _, who := range shelfClaimants {
			all[verb+" by "+who] = call(s, who)
		}
	}
	return all
}

// healthy are all answers that a stock gives which is well, of each verb: those about everything, each first on a shelf
// of its own.
func healthy(t *testing.T, c *stock.Client) map[string][]string {
	answers := map[string][]string{}
	n := 0
	fresh := func() *shelf { n++; return stockShelf(t, c, fmt.Sprint("well", n)) }
	for verb, call := range byID {
		for _, id := range shelfIDs {
			answers[verb] = append(answers[verb], call(fresh(), id))
		}
	}
	for verb, call := range byClaimant {
		for _, who := range shelfClaimants {
			answers[verb+" by"] = append(answers[verb+" by"], call(fresh(), who))
		}
	}
	return answers
}

// lose removes the keys of both stocks, or their hashes alone.
func (s *shelf) lose(t *testing.T, srv *redistest.Server, name string, hashes bool) {
	raw := srv.Client(t)
	for _, key := range keys(t, raw) {
		if of := "rc:{" + name + "}{"; strings.HasPrefix(key, of) && (!hashes || len(key) == len(of)+2) {
			must(t, raw, "DEL", key)
		}
	}
}

func (s *shelf) suspend(t *testing.T) {
	for _, of := range []*stock.Stock{s.a, s.b} {
		o := shelfSpec()
		o.Suspended = true
		_, err := of.Open(ctx, o)
		require.NoError(t, err)
	}
}

var errBrokenOff = errors.New("the database went away")

// No verb by an id or a claimant answers, of a stock that has lost its records, what it might answer of one that is
// well: its caller would take it for a decision, and pay money back or keep it. And nothing is decided meanwhile:
// once the stock is restored, the answers are those from before.
func TestGone_EveryVerbByID_AnswersUnlikeAHealthyStock(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	c := on(t, srv.Client(t), exact)
	well := healthy(t, c)
	winners := func(s *shelf, then func() error) func(yield func(stock.Entry, error) bool) {
		return func(yield func(stock.Entry, error) bool) {
			epoch := int64(0)
			for _, e := range s.entries {
				e.Epoch, e.Serial = epoch, 0
				if (e.Kind == stock.KindGrant || e.Kind == stock.KindReturn) && e.Claimant == "" {
					continue
				}
				if e.Kind == stock.KindGrant && returnedOf(s.entries, e) {
					continue
				}
				if !yield(e, nil) {
					return
				}
			}
			if err := then(); err != nil {
				yield(stock.Entry{}, err)
			}
		}
	}
	fine := func() error { return nil }
	states := map[string]func(t *testing.T, s *shelf, name string, look func()){
		"lost": func(t *testing.T, s *shelf, name string, look func()) { s.lose(t, srv, name, false); look() },
		"hash lost": func(t *testing.T, s *shelf, name string, look func()) {
			s.lose(t, srv, name, true)
			look()
			s.lose(t, srv, name, false)
		},
		"suspended": func(t *testing.T, s *shelf, name string, look func()) {
			s.lose(t, srv, name, false)
			s.suspend(t)
			look()
		},
		"suspended and paused": func(t *testing.T, s *shelf, name string, look func()) {
			s.lose(t, srv, name, false)
			s.suspend(t)
			pause := stock.Change{Pause: true}
			require.NoError(t, errors.Join(s.a.Change(ctx, pause), s.b.Change(ctx, pause)))
			look()
		},
		"restoring": func(t *testing.T, s *shelf, name string, look func()) {
			s.lose(t, srv, name, false)
			s.suspend(t)
			for _, of := range []*stock.Stock{s.b, s.a} {
				_, err := of.Restore(ctx, winners(s, func() error {
					if of == s.a {
						look()
					}
					return errBrokenOff
				}))
				require.ErrorIs(t, err, errBrokenOff)
			}
			look()
		},
	}
	asked := 0
	for _, state := range slices.Sorted(maps.Keys(states)) {
		t.Run(state, func(t *testing.T) {
			name := strings.ReplaceAll(state, " ", "")
			s := stockShelf(t, c, name)
			states[state](t, s, name, func() {
				for call, answer := range sayings(s) {
					asked++
					verb := call[:strings.LastIndexByte(call, ' ')]
					if slices.Contains(well[verb], answer) {
						t.Errorf("%s: %s", call, answer)
					}
				}
			})
			for _, of := range []*stock.Stock{s.a, s.b} {
				o := shelfSpec()
				o.Suspended = true
				_, err := of.OpenOrJoin(ctx, o)
				require.NoError(t, err)
			}
			_, err := s.a.Restore(ctx, winners(s, fine))
			require.NoError(t, err)
			fresh := stockShelf(t, c, name+"fresh")
			for _, id := range []string{"sold", "vain", "returned", "forbidden"} {
				is, was := byID["Confirm"](s, id), byID["Confirm"](fresh, id)
				if id == "returned" && strings.HasPrefix(is, "cancelled") {
					continue // of what came back the server has forgotten the id, and sells nothing under it
				}
				require.Equal(t, was, is, id)
			}
			for _, verb := range slices.Sorted(maps.Keys(byClaimant)) {
				require.Equal(t, byClaimant[verb](fresh, "has"), byClaimant[verb](s, "has"), verb)
			}
		})
	}
	t.Logf("%d calls about lost stocks, %d answers of healthy ones", asked, len(well))
}

// returnedOf reports whether a grant came back as a whole.
func returnedOf(entries []stock.Entry, grant stock.Entry) bool {
	return slices.ContainsFunc(entries, func(e stock.Entry) bool {
		return e.Kind == stock.KindReturn && e.Ordinal == grant.Ordinal && e.N == grant.N
	})
}
