package redlatchledger_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	redlatchledger "github.com/redlatch/redlatch/contrib/ledger"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// A sale of many reservations, in several processes, while everything fails: processes are killed, connections cut,
// replies lost, the server paused and its scripts flushed, and the primary killed for a replica to take its place.
//
// Of ten reservations, eight are confirmed, one is cancelled, and one is paid when its time is over. Nine want a unit,
// and there is one for eight and a half. Blocks of ids are dealt to processes; a block whose process was killed is
// dealt again, and so is now and then one that was answered: the answers must be the same.
//
//	REDLATCH_LONG=1 go test -run TestASaleOfMany -v -timeout 60m     # 1,000,000
const (
	saleBlock     = 500
	saleProcesses = 4
	saleCallers   = 64
)

var saleOptions = stock.Options{CallTimeout: 2 * time.Second, MinReplicas: 1, ReplicaTimeout: 200 * time.Millisecond}

var roles = map[string]func() error{"seller": beSeller}

type saleFate int

const (
	salePaid saleFate = iota
	saleLate
	saleCancelled
)

func fateOf(i int) saleFate {
	switch i % 10 {
	case 3:
		return saleLate
	case 7:
		return saleCancelled
	}
	return salePaid
}

func orderID(i int) string  { return "order-" + strconv.Itoa(i) }
func customer(i int) string { return "customer-" + strconv.Itoa(i) }

func dialSale(addr string) (*stock.Client, error) {
	hub, err := pubsub.Dial(rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true}, pubsub.Options{})
	if err != nil {
		return nil, err
	}
	return stock.New(hub, saleOptions)
}

// insist repeats what has no answer yet.
func insist[T any](ctx context.Context, ask func() (T, error)) (T, error) {
	for {
		v, err := ask()
		if err == nil || ctx.Err() != nil || errors.Is(err, redlatch.ErrCorrupt) || errors.Is(err, stock.ErrNotFound) ||
			errors.Is(err, redlatch.ErrMismatch) {
			return v, err
		}
		redistest.Pause(ctx, 20*time.Millisecond)
	}
}

// beSeller serves the blocks that it is told, and prints for each what its customers got: ordinals, 0 for none.
func beSeller() error {
	var c *stock.Client
	for begun := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		var err error
		if c, err = dialSale(os.Args[1]); err == nil {
			break
		}
		if time.Since(begun) > 2*time.Minute {
			return err
		}
	}
	s := c.Stock("sale")
	for orders := bufio.NewScanner(os.Stdin); orders.Scan(); {
		block, err := strconv.Atoi(orders.Text())
		if err != nil {
			return err
		}
		got := make([]int64, saleBlock)
		errs := make([]error, saleCallers)
		var wg sync.WaitGroup
		for caller := range saleCallers {
			wg.Go(func() {
				for k := caller; k < saleBlock; k += saleCallers {
					n, err := order(context.Background(), s, block*saleBlock+k)
					if err != nil {
						errs[caller] = fmt.Errorf("%s: %w", orderID(block*saleBlock+k), err)
						return
					}
					got[k] = n
				}
			})
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
		fmt.Println(block, strings.Trim(fmt.Sprint(got), "[]"))
	}
	return nil
}

// order is one order from its reservation to its end; the unit's ordinal, or 0 if the customer got none. To repeat it,
// in any process, gives the same answer.
func order(ctx context.Context, s *stock.Stock, i int) (int64, error) {
	id, ttl := orderID(i), time.Hour
	if fateOf(i) == saleLate {
		ttl = 150 * time.Millisecond
	}
	g, err := insist(ctx, func() (stock.Grant, error) {
		return s.Reserve(ctx, customer(i), stock.Request{ID: id, N: 1}, ttl)
	})
	if err != nil {
		return 0, err
	}
	switch g.Outcome {
	case stock.SoldOut:
		if fateOf(i) == saleCancelled { // so that it will never be held, whatever is still under way
			_, err = insist(ctx, func() (bool, error) { return s.Cancel(ctx, id) })
		}
		return 0, err
	case stock.Cancelled:
		return 0, nil
	case stock.Granted, stock.Replayed, stock.Expired:
	default:
		return 0, fmt.Errorf("reserve: %v", g.Outcome)
	}
	if fateOf(i) == saleCancelled {
		_, err = insist(ctx, func() (bool, error) { return s.Cancel(ctx, id) })
		return 0, err
	}
	if fateOf(i) == saleLate {
		if g.Outcome != stock.Expired {
			redistest.Pause(ctx, time.Until(g.Until)+5*time.Millisecond)
		}
	}
	g, err = insist(ctx, func() (stock.Grant, error) { return s.Confirm(ctx, id) })
	switch {
	case err != nil:
		return 0, err
	case g.Won():
		return g.Ordinal, nil
	case g.Outcome == stock.Expired && fateOf(i) == saleLate:
		return 0, nil
	}
	return 0, fmt.Errorf("confirm: %v", g.Outcome)
}

// sale is the rig.
type sale struct {
	t       *testing.T
	front   *redistest.Wire // leads to the primary
	proxies []*redistest.Proxy

	mu               sync.Mutex
	primary, replica *redistest.Server
	children         [saleProcesses]*redistest.Child
	kills            [saleProcesses]int // in the block that the process serves
}

func (x *sale) inStep(t *testing.T, replica *redistest.Server) {
	redistest.Eventually(t, 10*time.Minute, "the replica is in step", func() bool {
		return strings.Contains(replica.Ask(t, "INFO", "replication"), "master_link_status:up")
	})
}

func (x *sale) replicaOf(t *testing.T, of *redistest.Server) *redistest.Server {
	host, port, err := net.SplitHostPort(of.Addr())
	require.NoError(t, err)
	return redistest.Start(t, "--save", "", "--replicaof", host, port)
}

// failover kills the primary and has the replica take its place. What was answered is on the replica.
func (x *sale) failover() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.inStep(x.t, x.replica)
	require.NoError(x.t, x.primary.Process.Kill())
	x.replica.Ask(x.t, "REPLICAOF", "NO", "ONE")
	x.primary = x.replica
	x.front.Lead(x.primary.Addr())
	x.replica = x.replicaOf(x.t, x.primary)
}

// seller deals blocks to one process, and to another in its place when it is killed.
func (x *sale) seller(n int, blocks <-chan int, told func(block int, got []int64)) {
	for block := range blocks {
		x.mu.Lock()
		x.kills[n] = 0
		x.mu.Unlock()
		for {
			x.mu.Lock()
			if x.children[n] == nil {
				x.children[n] = redistest.Spawn(x.t, "seller", x.proxies[n%len(x.proxies)].Server())
				x.children[n].Out.Buffer(nil, 1<<20)
			}
			child := x.children[n]
			x.mu.Unlock()
			fmt.Fprintln(child.In, block)
			if child.Out.Scan() {
				fields := strings.Fields(child.Out.Text())
				if len(fields) != saleBlock+1 || fields[0] != strconv.Itoa(block) {
					x.t.Errorf("a seller says %.100q of block %d", child.Out.Text(), block)
					return
				}
				got := make([]int64, saleBlock)
				for i := range got {
					got[i], _ = strconv.ParseInt(fields[i+1], 10, 64)
				}
				told(block, got)
				break
			}
			child.Cmd.Wait()
			x.mu.Lock()
			x.children[n] = nil
			x.mu.Unlock()
			if child.Cmd.ProcessState.Exited() { // by itself, and not by a signal
				x.t.Errorf("a seller ended: %v", child.Cmd.ProcessState)
				return
			}
		}
	}
}

// inflict does harm until ctx ends, and says how often of each kind.
func (x *sale) inflict(ctx context.Context, rnd *rand.Rand) map[string]int {
	n := map[string]int{}
	for redistest.Pause(ctx, time.Duration(10+rnd.IntN(100))*time.Millisecond) {
		p := x.proxies[rnd.IntN(len(x.proxies))]
		brief := time.Duration(rnd.IntN(60)) * time.Millisecond
		x.mu.Lock()
		primary := x.primary
		x.mu.Unlock()
		kind := [...]string{"connections cut", "reply lost", "request lost", "black hole", "delay", "SCRIPT FLUSH",
			"server paused", "process killed"}[rnd.IntN(8)]
		switch kind {
		case "connections cut":
			p.Cut()
		case "reply lost":
			p.Trap(&redistest.Trap{Match: redistest.IsScript, Fate: redistest.LoseReply})
		case "request lost":
			p.Trap(&redistest.Trap{Match: redistest.IsScript, Fate: redistest.LoseRequest})
		case "black hole":
			p.BlackHole(redistest.Direction(rnd.IntN(2)))
			redistest.Pause(ctx, brief)
			p.Heal()
		case "delay":
			p.Delay(brief/10, brief/10)
			redistest.Pause(ctx, brief)
			p.Heal()
		case "SCRIPT FLUSH":
			x.mu.Lock() // no failover meanwhile
			x.primary.Ask(x.t, "SCRIPT", "FLUSH")
			x.mu.Unlock()
		case "server paused":
			primary.Stop(x.t)
			redistest.Pause(ctx, brief)
			primary.Resume(x.t)
		case "process killed":
			x.mu.Lock()
			// On a busy machine a block takes longer than the time between two kills: without a bound it would never be served.
			i := rnd.IntN(saleProcesses)
			killed := x.children[i] != nil && x.kills[i] < 5
			if killed {
				x.kills[i]++
				x.children[i].Cmd.Process.Kill()
			}
			x.mu.Unlock()
			if !killed {
				continue
			}
		}
		n[kind]++
	}
	return n
}

func TestASaleOfManyReservationsIsExactInTheDatabaseWhateverFails(t *testing.T) {
	redistest.NeedServer(t)
	blocks := redistest.Sized(4, 8, 2000)
	ids := blocks * saleBlock
	limit := int64(ids) * 17 / 20
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	x := &sale{t: t, primary: redistest.Start(t, "--save", "", "--repl-diskless-sync-delay", "0", "--repl-backlog-size",
		"64mb", "--client-output-buffer-limit", "replica 0 0 0")}
	x.replica = x.replicaOf(t, x.primary)
	x.inStep(t, x.replica)
	x.front = redistest.NewWire(t, x.primary.Addr())
	for range saleProcesses {
		x.proxies = append(x.proxies, redistest.NewProxy(t, &redistest.Server{Addrs: []string{x.front.Addr()}}))
	}
	client, err := dialSale(x.front.Addr())
	require.NoError(t, err)
	s := client.Stock("sale")
	_, err = insist(ctx, func() (int64, error) {
		n, err := s.Open(ctx, stock.Spec{Limit: limit, OpenFor: 12 * time.Hour, Remember: 6 * time.Hour, Ledger: true})
		if errors.Is(err, redlatch.ErrAlreadyOpen) {
			err = nil
		}
		return n, err
	})
	require.NoError(t, err)
	st, err := s.Inspect(ctx)
	require.NoError(t, err)
	epoch := st.Epoch
	// Open is confirmed by no replica, and a fresh replica may hear of the first writes a second late.
	redistest.Eventually(t, time.Minute, "the replica has the stock", func() bool {
		return x.replica.Ask(t, "EXISTS", "rc:{sale}") == "1"
	})

	db := freshSQLite(t)()
	require.NoError(t, redlatchledger.SQLite.Create(ctx, db))
	mover := &redlatchledger.Mover{DB: db, Dialect: redlatchledger.SQLite, Stock: "sale"}
	require.NoError(t, mover.Announce(ctx, epoch))
	moving, stopMoving := context.WithCancel(ctx)
	defer stopMoving()
	var movers sync.WaitGroup
	for n := range 2 {
		c, err := dialSale(x.proxies[n].Server().Addr())
		require.NoError(t, err)
		movers.Go(func() {
			if err := mover.Keep(moving, c.Stock("sale"), 20*time.Millisecond); moving.Err() == nil {
				t.Errorf("a mover ended: %v", err)
			}
		})
	}

	receipts := make([]int64, ids)
	var mu sync.Mutex
	var done, again atomic.Int64
	told := func(block int, got []int64) {
		mu.Lock()
		defer mu.Unlock()
		for k, ordinal := range got {
			i := block*saleBlock + k
			if was := receipts[i]; was > 0 && was != ordinal {
				t.Errorf("%s got unit %d first, and then %d", orderID(i), was, ordinal)
			}
			receipts[i] = ordinal
		}
		if n := done.Add(1); n%max(int64(blocks)/20, 1) == 0 {
			t.Logf("%d of %d orders", n*saleBlock, ids)
		}
	}
	deal := make(chan int)
	var sellers sync.WaitGroup
	for n := range saleProcesses {
		sellers.Go(func() { x.seller(n, deal, told) })
	}
	harming, enough := context.WithCancel(ctx)
	defer enough()
	harm := make(chan map[string]int)
	go func() { harm <- x.inflict(harming, rand.New(rand.NewPCG(1, 2))) }()
	began := time.Now()
	gone := make(chan struct{}) // nobody is left to sell: a seller that finds something wrong ends
	go func() { sellers.Wait(); close(gone) }()
	give := func(block int) {
		select {
		case deal <- block:
		case <-gone:
			t.FailNow()
		}
	}
	for b := range blocks {
		give(b)
		if b%7 == 6 { // a customer who asks again
			again.Add(1)
			give(b - 1)
		}
		if b == blocks/3 || b == blocks*2/3 {
			x.failover()
		}
	}
	close(deal)
	sellers.Wait()
	took := time.Since(began)
	enough()
	t.Logf("%d orders in %v, %d blocks asked twice, 2 failovers, %v", ids, took.Round(time.Second), again.Load(), <-harm)
	for _, p := range x.proxies {
		p.Heal()
	}

	// A customer who was told "sold out" has nothing, though a copy of the reservation was perhaps granted later.
	for h, err := range s.Holders(ctx) {
		require.NoError(t, err)
		if h.Ordinal == 0 {
			_, err = insist(ctx, func() (bool, error) { return s.Cancel(ctx, h.Request) })
			require.NoError(t, err)
		}
	}
	_, err = s.Reap(ctx)
	require.NoError(t, err)
	stopMoving()
	movers.Wait()
	for {
		n, err := s.Ledger(ctx, 1000, mover.Move)
		require.NoError(t, err)
		if n == 0 {
			break
		}
	}

	var won int64
	units := map[int64]int{}
	for i, ordinal := range receipts {
		if ordinal == 0 {
			continue
		}
		won++
		if other, ok := units[ordinal]; ok {
			t.Fatalf("unit %d is that of %s and of %s", ordinal, orderID(other), orderID(i))
		}
		units[ordinal] = i
		require.NotEqual(t, saleCancelled, fateOf(i))
	}
	st, err = s.Inspect(ctx)
	require.NoError(t, err)
	require.Equal(t, won, st.Sold)
	require.Zero(t, st.Held)
	require.Equal(t, limit-won, st.Remaining)
	booked := 0
	for e, err := range mover.Units(ctx, epoch) {
		require.NoError(t, err)
		booked++
		i, known := units[e.Ordinal]
		require.True(t, known, "the database has unit %d, of which no customer knows: %+v", e.Ordinal, e)
		require.Equal(t, stock.Entry{Ordinal: e.Ordinal, N: 1, Claimant: customer(i), Request: orderID(i)},
			stock.Entry{Ordinal: e.Ordinal, N: e.N, Claimant: e.Claimant, Request: e.Request})
	}
	require.EqualValues(t, won, booked)
	t.Logf("%d customers have a unit = %d sold by the stock = %d in the database; %d of %d units are left", won, st.Sold,
		booked, st.Remaining, limit)
	rows, err := db.QueryContext(ctx, "SELECT kind, COUNT(*), SUM(n) FROM moves GROUP BY kind ORDER BY kind")
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var kind string
		var n, of int64
		require.NoError(t, rows.Scan(&kind, &n, &of))
		t.Logf("%9d entries %q, %d units", n, kind, of)
	}
	require.NoError(t, rows.Err())
}
