package pubsub_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/redistest/rig"
	"github.com/redlatch/redlatch/pubsub"
)

var quiet = slog.New(slog.DiscardHandler)

func newHub(t testing.TB, c rueidis.Client, o pubsub.Options) *pubsub.Hub {
	t.Helper()
	if o.Logger == nil {
		o.Logger = quiet
	}
	h := redistest.NoError(pubsub.New(c, o))(t)
	t.Cleanup(func() { h.Close(context.Background()) })
	return h
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func next(t testing.TB, s *pubsub.Subscription) pubsub.Message {
	t.Helper()
	m := redistest.NoError(s.Next(within(t)))(t)
	return m
}

// heard is the next message that is no gap: going down and coming up are both said.
func heard(t testing.TB, s *pubsub.Subscription) string {
	t.Helper()
	m := next(t, s)
	for m.Gap {
		m = next(t, s)
	}
	return m.Payload
}

func publish(t testing.TB, h *pubsub.Hub, channel, payload string) (receivers int64) {
	t.Helper()
	receivers = redistest.NoError(h.Publish(within(t), channel, payload))(t)
	return receivers
}

func run(t testing.TB, c rueidis.Client, args ...string) {
	t.Helper()
	require.NoError(t, c.Do(within(t), c.B().Arbitrary(args...).Build()).Error(), "%v", args)
}

// cut ends the connections of those who are subscribed.
func cut(t testing.TB, c rueidis.Client) { t.Helper(); run(t, c, "CLIENT", "KILL", "TYPE", "pubsub") }

// optioned is a client of s with options of its own.
func optioned(t testing.TB, s *redistest.Server, change func(o *rueidis.ClientOption)) rueidis.Client {
	t.Helper()
	o := s.Option()
	change(&o)
	c := redistest.NoError(rueidis.NewClient(o))(t)
	t.Cleanup(c.Close)
	return c
}

// app is a client of a user with all rights but those that rule takes, and acl changes them.
func app(t testing.TB, s *redistest.Server, rule ...string) (c rueidis.Client, acl func(rule ...string)) {
	t.Helper()
	admin := s.Client(t)
	acl = func(rule ...string) {
		run(t, admin, append([]string{"ACL", "SETUSER", "app", "on", ">pw", "+@all", "~*"}, rule...)...)
	}
	acl(rule...)
	return optioned(t, s, func(o *rueidis.ClientOption) { o.Username, o.Password = "app", "pw" }), acl
}

func resp2(o *rueidis.ClientOption) { o.AlwaysRESP2, o.DisableCache = true, true }

func subscribe(t testing.TB, h *pubsub.Hub, channel string) *pubsub.Subscription {
	t.Helper()
	s := redistest.NoError(h.Subscribe(within(t), channel))(t)
	return s
}

// numsub asks the server how many connections are subscribed to channel.
func numsub(t testing.TB, c rueidis.Client, channel string) int64 {
	t.Helper()
	m := redistest.NoError(c.Do(within(t), c.B().PubsubNumsub().Channel(channel).Build()).AsIntMap())(t)
	return m[channel]
}

func connections(t testing.TB, c rueidis.Client) int {
	t.Helper()
	list := redistest.NoError(c.Do(within(t), c.B().ClientList().Build()).ToString())(t)
	return strings.Count(list, "id=")
}

func TestSubscriptions_Messages_ArriveInOrder(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		h := newHub(t, s.Client(t), pubsub.Options{})
		a, b := subscribe(t, h, "news"), subscribe(t, h, "news")
		for i := range 10 {
			require.EqualValues(t, 1, publish(t, h, "news", strconv.Itoa(i)), "one connection however many subscriptions")
		}
		for _, sub := range []*pubsub.Subscription{a, b} {
			for i := range 10 {
				require.Equal(t, pubsub.Message{Payload: strconv.Itoa(i)}, next(t, sub))
			}
		}
	})
}

func TestSubscribe_Closed_StaysForTheGracePeriod(t *testing.T) {
	s := redistest.Start(t)
	c := s.Client(t)
	h := newHub(t, c, pubsub.Options{Grace: 300 * time.Millisecond})
	before := connections(t, c)
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			if sub, err := h.Subscribe(within(t), "c"); err != nil {
				t.Error(err)
			} else {
				sub.Close()
			}
		})
	}
	all.Wait()
	again, ok := h.TrySubscribe("c")
	require.True(t, ok, "kept: no round trip")
	again.Close()
	redistest.Eventually(t, 10*time.Second, "unsubscribed after the grace period", func() bool {
		return numsub(t, c, "c") == 0
	})
	_, ok = h.TrySubscribe("c")
	require.False(t, ok)
	redistest.Eventually(t, 10*time.Second, "the idle connection is closed", func() bool {
		return connections(t, c) <= before
	})
	require.Equal(t, 1, redistest.CommandCalls(t, c)["subscribe"], "one for all")
}

// The loss is logged once, and so is its end; the observer is called for each.
func TestSubscription_LostConnection_IsAGapAndSubscribedAgain(t *testing.T) {
	s := redistest.Start(t)
	admin := s.Client(t)
	var book redistest.Logbook
	var first, again, lost atomic.Int64
	h := newHub(t, s.Client(t), pubsub.Options{Logger: book.Logger(),
		Observer: func(_ context.Context, e redlatch.Event) context.Context {
			switch {
			case e.Kind == redlatch.EventLost:
				lost.Add(1)
				panic("an observer")
			case e.Kind != redlatch.EventSubscribed:
			case e.Again:
				again.Add(1)
			default:
				first.Add(1)
			}
			return nil
		}})
	subs := []*pubsub.Subscription{subscribe(t, h, "a"), subscribe(t, h, "b"), subscribe(t, h, "c")}
	require.EqualValues(t, 3, first.Load())
	require.Zero(t, book.Count("redlatch:"))
	for round := range 2 {
		cut(t, admin)
		for _, sub := range subs {
			require.True(t, next(t, sub).Gap)
		}
		redistest.Eventually(t, 10*time.Second, "all are back", func() bool {
			return book.Count("subscriptions are back") > round && again.Load() >= int64(3*(round+1))
		})
		for i, sub := range subs {
			require.True(t, sub.Live())
			require.EqualValues(t, 1, publish(t, h, string(rune('a'+i)), "after"))
			require.Equal(t, "after", heard(t, sub))
		}
		require.Equal(t, round+1, book.Count("subscriptions lost"))
		require.Equal(t, round+1, book.Count("subscriptions are back"))
		require.EqualValues(t, 3*(round+1), again.Load())
		require.EqualValues(t, round+1, lost.Load())
	}
	require.Equal(t, 2, book.Count("observer panicked"))
}

func TestSubscription_ServerComesBack_IsSubscribedAgain(t *testing.T) {
	s := redistest.Embedded(t)
	c := s.Client(t)
	h := newHub(t, c, pubsub.Options{})
	sub := subscribe(t, h, "c")
	s.Embedded.Close()
	require.True(t, next(t, sub).Gap)
	require.NoError(t, s.Embedded.StartAddr(s.Addr()))
	redistest.Eventually(t, 20*time.Second, "subscribed again", sub.Live)
	s.Embedded.Publish("c", "back")
	require.Equal(t, "back", heard(t, sub))
}

func TestSubscription_Slow_HasAGapAndDelaysNoOther(t *testing.T) {
	s := redistest.Embedded(t)
	for buffer, want := range map[int]int{0: 127, 2: 1, 149: 148, 150: 150} {
		var dropped atomic.Int64
		h := newHub(t, s.Client(t), pubsub.Options{Buffer: buffer,
			Observer: func(_ context.Context, e redlatch.Event) context.Context {
				if e.Kind == redlatch.EventDropped && e.Name == "c" {
					dropped.Add(1)
				}
				return nil
			}})
		slow, quick := subscribe(t, h, "c"), subscribe(t, h, "c")
		for i := range 150 {
			publish(t, h, "c", strconv.Itoa(i))
			require.Equal(t, strconv.Itoa(i), next(t, quick).Payload, "the slow one holds nobody up")
		}
		if want < 150 {
			require.True(t, next(t, slow).Gap, "buffer %d", buffer)
		}
		for i := 150 - want; i < 150; i++ {
			require.Equal(t, strconv.Itoa(i), next(t, slow).Payload, "buffer %d", buffer)
		}
		redistest.Eventually(t, 10*time.Second, "all that were dropped are told", func() bool {
			return dropped.Load() >= int64(150-want)
		})
		require.EqualValues(t, 150-want, dropped.Load(), "buffer %d", buffer)
	}
}

// It would wait forever, if it ran with the hub's mutex held; and a Subscribe that returns knows what its observer
// knows.
func TestObserver_Events_ComeOneAfterTheOther(t *testing.T) {
	s := redistest.Start(t)
	admin := s.Client(t)
	var h *pubsub.Hub
	made := make(chan struct{})
	var inside atomic.Int32
	var mu sync.Mutex
	told := map[string]int{}
	h = newHub(t, s.Client(t), pubsub.Options{Buffer: 2,
		Observer: func(_ context.Context, e redlatch.Event) context.Context {
			<-made
			if inside.Add(1) > 1 {
				t.Error("two events at once")
			}
			defer inside.Add(-1)
			h.Stats()
			mu.Lock()
			defer mu.Unlock()
			told[string(e.Kind)+" "+e.Name]++
			return nil
		}})
	close(made)
	count := func(what string) int {
		mu.Lock()
		defer mu.Unlock()
		return told[what]
	}
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			channel := strconv.Itoa(i)
			sub, err := h.Subscribe(within(t), channel)
			if err != nil {
				t.Error(err)
				return
			}
			if n := count("subscribed " + channel); n == 0 {
				t.Error("subscribed to ", channel, ", and the observer does not know")
			}
			for range 3 {
				if _, err := h.Publish(within(t), channel, "x"); err != nil {
					t.Error(err)
				}
			}
			redistest.Eventually(t, 20*time.Second, "one is dropped", func() bool { return count("dropped "+channel) > 0 })
			sub.Close()
		})
	}
	all.Wait()
	cut(t, admin)
	redistest.Eventually(t, 20*time.Second, "the loss is told", func() bool {
		return count("lost ") > 0 && count("subscribed 7") == 2
	})
}

func TestCluster_MayNotAskForShardedChannels_UsesThem(t *testing.T) {
	t.Parallel()
	s := redistest.Cluster(t)
	free := newHub(t, s.Client(t), pubsub.Options{})
	require.Equal(t, "SPUBLISH", free.PublishCommand())
	freed := subscribe(t, free, "news")
	for user, rights := range map[string]string{"narrow": "-pubsub|shardnumsub", "narrower": "-pubsub"} {
		for _, node := range s.Client(t).Nodes() {
			run(t, node, "ACL", "SETUSER", user, "on", ">pw", "~*", "&*", "+@all", rights)
		}
		h := newHub(t, optioned(t, s, func(o *rueidis.ClientOption) { o.Username, o.Password = user, "pw" }),
			pubsub.Options{})
		require.Equal(t, "SPUBLISH", h.PublishCommand(), user)
		sub := subscribe(t, h, "news")
		for _, from := range []*pubsub.Hub{h, free} {
			publish(t, from, "news", user)
			require.Equal(t, user, next(t, freed).Payload)
			require.Equal(t, user, next(t, sub).Payload)
		}
	}
}

func TestSubscribe_Refused_SaysWhyAndIsNotRemembered(t *testing.T) {
	c, acl := app(t, redistest.Start(t), "resetchannels", "&open")
	var book redistest.Logbook
	var refused atomic.Int64
	h := newHub(t, c, pubsub.Options{Logger: book.Logger(),
		Observer: func(_ context.Context, e redlatch.Event) context.Context {
			if e.Kind == redlatch.EventRefused && e.Name == "shut" && e.Err != nil {
				refused.Add(1)
			}
			return nil
		}})
	denied := func() {
		t.Helper()
		_, err := h.Subscribe(within(t), "shut")
		require.ErrorIs(t, err, errs.ErrDenied)
		require.NotErrorIs(t, err, errs.ErrUnavailable, "asking again does not help")
		require.ErrorContains(t, err, "channel pattern")
	}
	open := subscribe(t, h, "open")
	for n := range 3 {
		denied()
		require.EqualValues(t, n+1, refused.Load())
		require.Equal(t, 1, book.Count("subscribe refused"), "logged once")
	}
	require.True(t, open.Live(), "the refusal of one channel leaves the others alone")
	acl("&shut", "&other")
	subscribe(t, h, "other")
	require.Zero(t, book.Count("had been refused"))
	shut := subscribe(t, h, "shut")
	require.Equal(t, 1, book.Count("had been refused"), "and so is its end")

	acl("resetchannels") // ends the connection of those who are subscribed
	require.True(t, next(t, shut).Gap)
	denied()
	denied()
	acl("&shut", "&open", "&other")
	redistest.Eventually(t, 20*time.Second, "subscribed again", shut.Live)
}

func TestSubscribe_Disconnected_WaitsForTheAnswer(t *testing.T) {
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s)
	h := newHub(t, p.Server().Client(t), pubsub.Options{})
	first := subscribe(t, h, "c")
	p.Refuse()
	p.Cut()
	require.True(t, next(t, first).Gap)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_, err := h.Subscribe(ctx, "c")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	p.Heal()
	second := subscribe(t, h, "c")
	require.True(t, second.Live())
	require.True(t, first.Live())
}

func TestSubscribe_CtxEnds_Returns(t *testing.T) {
	s := redistest.Embedded(t)
	h := newHub(t, s.Client(t), pubsub.Options{})
	s.Embedded.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err := h.Subscribe(ctx, "c")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = h.Subscribe(ctx, "c")
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestCluster_MigratedSlot_IsFollowed(t *testing.T) {
	t.Parallel()
	s := redistest.Cluster(t)
	c := s.Client(t)
	h := newHub(t, c, pubsub.Options{})
	const channel = "redisson_sc:{moving}" // one with a mark, which moves, too
	sub := subscribe(t, h, channel)
	move := rig.NewMove(t, s, "moving")
	move.Begin()
	move.End()
	require.True(t, next(t, sub).Gap, "the server took the subscription away")
	redistest.Eventually(t, 20*time.Second, "subscribed at the new owner", sub.Live)
	redistest.Eventually(t, 20*time.Second, "a message arrives", func() bool {
		n, err := h.Publish(within(t), channel, "here")
		return err == nil && n > 0 && heard(t, sub) == "here"
	})
	for node, want := range map[rueidis.Client]int64{move.To: 1, move.From: 0} {
		n, err := node.Do(within(t), node.B().PubsubShardnumsub().Channel(channel, keyname.Mark(channel)).Build()).AsIntMap()
		require.NoError(t, err)
		require.Equal(t, map[string]int64{channel: want, keyname.Mark(channel): want}, n)
	}
}

// A sentinel says only once who is the new primary; the old one, which lives on as a replica, says so only when it is
// written to.
func TestDial_SentinelsMessageLost_FindsTheNewPrimary(t *testing.T) {
	redistest.InFull(t, "TestSubscription_ServerComesBack_IsSubscribedAgain")
	t.Parallel()
	s := redistest.Sentinel(t)
	followed := redistest.NewProxy(t, s.Server)
	o := s.Option()
	o.InitAddress = []string{followed.Addr()}
	h := redistest.NoError(pubsub.Dial(t.Context(), o, pubsub.Options{}))(t)
	t.Cleanup(func() { h.Close(context.Background()) })
	sub := subscribe(t, h, "c")
	followed.SwallowPushes()
	s.Switch(t, s.Pairs[0])
	redistest.Eventually(t, 60*time.Second, "the new primary is written to", func() bool {
		return h.Client().Do(within(t), h.Client().B().Set().Key("k").Value("v").Build()).Error() == nil
	})
	require.Positive(t, followed.Swallowed())
	primary := func() *redistest.Server { // on a busy machine the sentinels may have them change places once more
		if strings.Contains(s.Pairs[0].Primary.Ask(t, "INFO", "replication"), "role:master") {
			return s.Pairs[0].Primary
		}
		return s.Pairs[0].Replica
	}
	// messages arrive at the replica, too, but there nobody counts who hears them
	redistest.Eventually(t, 20*time.Second, "subscribed at the new primary", func() bool {
		return strings.Contains(primary().Ask(t, "PUBSUB", "CHANNELS"), `"c"`)
	})
	redistest.Eventually(t, 20*time.Second, "a message of the new primary arrives", func() bool {
		primary().Ask(t, "PUBLISH", "c", "here")
		return heard(t, sub) == "here"
	})
}

// A replica accepts subscriptions to the channels of its slots, and hears what its primary publishes. But a script that
// publishes on the primary does not count who is subscribed there, and takes the process for gone.
func TestCluster_Channels_AreSubscribedAtPrimaries(t *testing.T) {
	t.Parallel()
	s := redistest.ReplicatedCluster(t)
	channels := map[string]redistest.Pair{}
	at := func(n *redistest.Server, ch string) bool {
		return strings.Contains(n.Ask(t, "PUBSUB", "SHARDCHANNELS", ch), ch)
	}
	for i := range 5 { // the node that is asked first is any
		h := newHub(t, optioned(t, s.Server, func(o *rueidis.ClientOption) {
			o.AlwaysRESP2, o.DisableCache = i == 0, i == 0
		}), pubsub.Options{})
		for j := range 6 {
			ch := fmt.Sprintf("c%d-%d", i, j)
			channels[ch] = s.Of(ch)
			subscribe(t, h, ch)
		}
	}
	settled := func() bool {
		for ch, p := range channels {
			if !at(p.Primary, ch) || at(p.Replica, ch) {
				return false
			}
		}
		return true
	}
	redistest.Eventually(t, 20*time.Second, "all are subscribed at the primaries", settled)
	was := s.Pairs[0]
	s.Switch(t, was)
	for ch, p := range channels {
		if p == was {
			channels[ch] = redistest.Pair{Primary: was.Replica, Replica: was.Primary}
		}
	}
	redistest.Eventually(t, 40*time.Second, "and where these have changed", settled)
}

func TestHub_Close_LeavesNothingRunning(t *testing.T) {
	s := redistest.Embedded(t)
	c := s.Client(t)
	require.NoError(t, c.Do(within(t), c.B().Ping().Build()).Error())
	before := goleak.IgnoreCurrent()
	h := newHub(t, c, pubsub.Options{})
	sub := subscribe(t, h, "c")
	gone := make(chan error)
	go func() { _, err := sub.Next(context.Background()); gone <- err }()
	require.NoError(t, h.Close(context.Background()))
	require.ErrorIs(t, <-gone, errs.ErrClosed)
	_, err := h.Subscribe(within(t), "c")
	require.ErrorIs(t, err, errs.ErrClosed)
	_, err = h.Publish(within(t), "c", "x")
	require.ErrorIs(t, err, errs.ErrClosed)
	_, ok := h.TrySubscribe("c")
	require.False(t, ok)
	require.NoError(t, h.Close(context.Background()))
	sub.Close()
	goleak.VerifyNone(t, before, goleak.IgnoreAnyFunction("github.com/alicebob/miniredis/v2/server.(*Server).servePeer"))
}

// A call that nobody waits for any more makes a connection while the hub is closed.
func TestHub_CloseDuringADial_ClosesItsConnection(t *testing.T) {
	s := redistest.Embedded(t)
	o := s.Option()
	o.PipelineMultiplex = 2 // four connections, each made when it is first used
	var dialled, closed atomic.Int64
	late, open := make(chan struct{}), make(chan struct{})
	o.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
		if dialled.Add(1) == 2 {
			close(late)
			<-open
		}
		c, err := d.DialContext(ctx, "tcp", addr)
		return &counted{Conn: c, closed: &closed}, err
	}
	h := redistest.NoError(pubsub.Dial(t.Context(), o, pubsub.Options{}))(t)
	go func() {
		for i := 0; dialled.Load() < 2; i++ { // each key has a connection by chance
			c := h.Client()
			c.Do(context.Background(), c.B().Get().Key(strconv.Itoa(i)).Build())
		}
	}()
	<-late
	require.NoError(t, h.Close(within(t)))
	close(open)
	require.Eventually(t, func() bool { return closed.Load() == dialled.Load() }, 30*time.Second, 10*time.Millisecond)
}

// counted is a connection that counts when it is closed.
type counted struct {
	net.Conn
	once   sync.Once
	closed *atomic.Int64
}

func (c *counted) Close() error {
	c.once.Do(func() { c.closed.Add(1) })
	return c.Conn.Close()
}

func TestInvalidations_KeyChanges_ReachEveryWatcher(t *testing.T) {
	s := redistest.Start(t)
	var inv pubsub.Invalidations
	own := make(chan struct{}, 16)
	c := optioned(t, s, func(o *rueidis.ClientOption) {
		o.OnInvalidations = func([]rueidis.RedisMessage) { own <- struct{}{} }
		*o = inv.Option(*o)
	})
	h := newHub(t, c, inv.In(pubsub.Options{}))
	got := make(chan []string, 16)
	stop, observed := h.Watch(func(keys []string) { got <- keys })
	require.True(t, observed)
	require.NoError(t, c.DoCache(within(t), c.B().Get().Key("k").Cache(), time.Minute).NonRedisError())
	other := s.Client(t)
	run(t, other, "SET", "k", "v")
	require.Equal(t, []string{"k"}, <-got)
	<-own
	run(t, other, "FLUSHALL")
	require.Nil(t, <-got, "anything may have changed")
	stop()
	_, observed = newHub(t, other, pubsub.Options{}).Watch(nil)
	require.False(t, observed)
}

func TestHub_BadInput_IsRefused(t *testing.T) {
	_, err := pubsub.New(nil, pubsub.Options{})
	require.ErrorIs(t, err, errs.ErrInvalidOption)
	s := redistest.Embedded(t)
	c := s.Client(t)
	for says, o := range map[string]pubsub.Options{
		"Grace is -1":       {Grace: -1},
		"CallTimeout is -1": {CallTimeout: -1},
		"Buffer is -1":      {Buffer: -1},
		"Buffer is 1":       {Buffer: 1},
		fmt.Sprint("Buffer is ", pubsub.MaxBuffer+1): {Buffer: pubsub.MaxBuffer + 1},
	} {
		_, err := pubsub.New(c, o)
		require.ErrorIs(t, err, errs.ErrInvalidOption)
		require.ErrorContains(t, err, says)
		_, err = pubsub.Dial(t.Context(), s.Option(), o)
		require.ErrorIs(t, err, errs.ErrInvalidOption)
	}
	nowhere := []string{"127.0.0.1:1"}
	for is, options := range map[error][]rueidis.ClientOption{
		errs.ErrInvalidOption: {{InitAddress: nowhere, ConnLifetime: time.Minute}, {InitAddress: nowhere, ReplicaOnly: true}},
		errs.ErrUnavailable:   {{InitAddress: nowhere}},
	} {
		for _, o := range options {
			_, err := pubsub.Dial(t.Context(), o, pubsub.Options{})
			require.ErrorIs(t, err, is)
		}
	}
	_, err = pubsub.Dial(t.Context(), s.Option(),
		pubsub.Options{NewClient: func(rueidis.ClientOption) (rueidis.Client, error) { return nil, errors.New("no client") }})
	require.ErrorContains(t, err, "no client")
	h := newHub(t, c, pubsub.Options{})
	for _, ch := range []string{"", strings.Repeat("c", keyname.MaxLen+1), "\xff"} {
		_, err = h.Subscribe(within(t), ch)
		require.ErrorIs(t, err, errs.ErrInvalidName)
		_, err = h.Publish(within(t), ch, "")
		require.ErrorIs(t, err, errs.ErrInvalidName)
	}
}

// dials fails unless Dial makes a hub.
func dials(t *testing.T, name string, o rueidis.ClientOption, options pubsub.Options) {
	t.Helper()
	h, err := pubsub.Dial(t.Context(), o, options)
	require.NoError(t, err, name)
	require.NoError(t, h.Close(context.Background()))
}

// refuses fails unless Dial says what is wrong, which trying again does not mend.
func refuses(t *testing.T, name string, o rueidis.ClientOption, options pubsub.Options, is error, says string) {
	t.Helper()
	options.Logger = quiet
	h, err := pubsub.Dial(t.Context(), o, options)
	require.Nil(t, h)
	require.ErrorIs(t, err, is, name)
	require.NotErrorIs(t, err, errs.ErrUnavailable, name)
	require.ErrorContains(t, err, says, name)
	require.NotContains(t, err.Error(), "secret", name)
}

func TestDial_WrongOption_IsNotErrUnavailable(t *testing.T) {
	s := redistest.Start(t)
	admin := s.Client(t)
	run(t, admin, "ACL", "SETUSER", "untracked", "on", ">pw", "~*", "&*", "+@all", "-client|tracking")
	run(t, admin, "ACL", "SETUSER", "idle", "on", ">pw", "~*", "&*", "-@all", "+client|tracking", "+hello")
	with := func(change func(o *rueidis.ClientOption)) rueidis.ClientOption {
		o := s.Option()
		change(&o)
		return o
	}
	as := func(user, password string) rueidis.ClientOption {
		return with(func(o *rueidis.ClientOption) { o.Username, o.Password = user, password })
	}
	refused := func(name string, o rueidis.ClientOption, says string, is error) {
		t.Helper()
		refuses(t, name, o, pubsub.Options{}, is, says)
	}
	refused("a wrong password", as("nobody", "no"), "Username and Password", errs.ErrDenied)
	goesOn := func(name string, o rueidis.ClientOption, says string) {
		t.Helper()
		h, err := pubsub.Dial(t.Context(), o, pubsub.Options{Logger: quiet})
		require.NoError(t, err, name)
		lacks := h.Stats().Lacks
		require.Len(t, lacks, 1, name)
		require.Equal(t, "CLIENT TRACKING", lacks[0].Command, name)
		require.ErrorContains(t, lacks[0].Err, says, name)
		require.NoError(t, h.Close(context.Background()))
		o.ClientTrackingOptions = []string{"OPTIN"}
		_, err = pubsub.Dial(t.Context(), o, pubsub.Options{Logger: quiet})
		require.Error(t, err, "%s, and it is asked for", name)
		require.NotErrorIs(t, err, errs.ErrUnavailable, name)
	}
	goesOn("no right to CLIENT TRACKING", as("untracked", "pw"), "NOPERM")
	refused("no rights", with(func(o *rueidis.ClientOption) {
		o.Username, o.Password, o.SelectDB = "idle", "pw", 1
	}), "lacks +select", errs.ErrDenied)
	refused("a database that is not there", with(func(o *rueidis.ClientOption) {
		o.SelectDB = 99
	}), "SelectDB", errs.ErrInvalidOption)
	refused("a URL", rueidis.ClientOption{InitAddress: []string{"redis://:secret@" + s.Addr()}}, "ParseURL",
		errs.ErrInvalidOption)
	refused("no port", rueidis.ClientOption{InitAddress: []string{"localhost"}}, "host:port", errs.ErrInvalidOption)
	refused("no address", rueidis.ClientOption{}, "InitAddress", errs.ErrInvalidOption)
	refused("too many pipelines", with(func(o *rueidis.ClientOption) {
		o.PipelineMultiplex = 99
	}), "PipelineMultiplex", errs.ErrInvalidOption)
	refused("a password where there is none", with(func(o *rueidis.ClientOption) {
		o.Password, o.AlwaysRESP2, o.DisableCache = "pw", true, true
	}), "the server has none", errs.ErrInvalidOption)
	run(t, admin, "CONFIG", "SET", "requirepass", "pw")
	refused("no password", s.Option(), "Username and Password", errs.ErrDenied)
	dials(t, "the password", with(func(o *rueidis.ClientOption) { o.Password = "pw" }), pubsub.Options{})

	old := redistest.Start(t, "--rename-command", "HELLO", "")
	goesOn("a server without HELLO", old.Option(), "no RESP3")
	o := old.Option()
	o.DisableCache = true
	dials(t, "without HELLO", o, pubsub.Options{})

	e := redistest.Embedded(t)
	e.Embedded.SetError("LOADING Redis is loading the dataset in memory")
	_, err := pubsub.Dial(t.Context(), e.Option(), pubsub.Options{})
	require.ErrorIs(t, err, errs.ErrUnavailable, "that passes")
}

// The address of a sentinel, without the name of its primary, connects, and no script can ever run there.
func TestDial_SentinelWithoutItsPrimarysName_IsRefused(t *testing.T) {
	t.Parallel()
	s := redistest.Sentinel(t)
	o := s.Option()
	o.Sentinel.MasterSet = ""
	for _, n := range []int{1, 3} {
		o.InitAddress = s.Addrs[:n]
		refuses(t, fmt.Sprint(n), o, pubsub.Options{}, errs.ErrInvalidOption, "Sentinel.MasterSet")
	}
}

func TestDial_OlderThanRedis7_IsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		says    string
		refused bool
	}{
		"Redis 6.2":                 {"redis_version:6.2.16", true},
		"Redis 5":                   {"redis_version:5.0.7", true},
		"Redis 7.0":                 {"redis_version:7.0.0", false},
		"Redis 10":                  {"redis_version:10.1.0", false},
		"Valkey":                    {"redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1", false},
		"a server without a number": {"redis_version:unstable", false},
		"a server that tells none":  {"redis_mode:standalone", false},
		"a sentinel of Redis":       {"redis_version:8.0.6\r\nredis_mode:sentinel", true},
		"a sentinel of Valkey":      {"redis_version:7.2.4\r\nserver_name:valkey\r\nserver_mode:sentinel", true},
		"no right to INFO":          {"", false},
	} {
		s := redistest.Embedded(t)
		s.Embedded.Server().SetPreHook(func(p *server.Peer, cmd string, _ ...string) bool {
			switch {
			case cmd != "INFO":
				return false
			case c.says == "":
				p.WriteError("NOPERM this user has no permissions to run the 'info' command")
			default:
				p.WriteBulk("# Server\r\n" + c.says + "\r\nrun_id:1\r\n")
			}
			return true
		})
		if c.refused {
			refuses(t, name, s.Option(), pubsub.Options{}, errs.ErrInvalidOption, "InitAddress is a")
			redistest.Eventually(t, 30*time.Second, "no connection is left of the refused", func() bool {
				return s.Embedded.CurrentConnectionCount() == 0
			})
			continue
		}
		dials(t, name, s.Option(), pubsub.Options{Logger: quiet})
	}
}

func TestDial_StrictAndEvictingServer_IsRefused(t *testing.T) {
	strict := pubsub.Options{Strict: true}
	s := redistest.Start(t, "--maxmemory-policy", "allkeys-lru")
	refuses(t, "a server that evicts", s.Option(), strict, errs.ErrInvalidOption, "allkeys-lru")

	admin := s.Client(t)
	run(t, admin, "ACL", "SETUSER", "app", "on", "nopass", "~*", "&*", "+@all", "-info")
	o := s.Option()
	o.Username, o.Password = "app", "any"
	refuses(t, "one that does not let us ask", o, strict, errs.ErrInvalidOption, "the server's INFO is NOPERM")

	_, err := pubsub.New(admin, strict)
	require.ErrorIs(t, err, errs.ErrInvalidOption)
	require.ErrorContains(t, err, "Strict is true, must be false: only Dial asks the server")

	run(t, admin, "CONFIG", "SET", "maxmemory-policy", "noeviction")
	dials(t, "a server that does not evict", s.Option(), strict)
}

// A busy server answers HELLO, and refuses CLIENT TRACKING: no option is wrong with that.
func TestDial_BusyServer_IsErrUnavailable(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--busy-reply-threshold", "5")
	kill := occupy(t, s)
	_, err := pubsub.Dial(t.Context(), s.Option(), pubsub.Options{})
	kill()
	require.ErrorIs(t, err, errs.ErrUnavailable)
	require.NotErrorIs(t, err, errs.ErrInvalidOption)
}

func TestDial_TLSOnOneSide_SaysWhich(t *testing.T) {
	t.Parallel()
	plain := redistest.Start(t)
	key := redistest.NoError(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	now := time.Now()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour),
		NotAfter: now.Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der := redistest.NoError(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))(t)
	secret := redistest.NoError(x509.MarshalECPrivateKey(key))(t)
	dir := t.TempDir()
	file := func(name, kind string, bytes []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}), 0o600))
		return path
	}
	cert, priv := file("cert", "CERTIFICATE", der), file("key", "EC PRIVATE KEY", secret)
	// the server has the plain port as well, by which the test knows it
	host, _, err := net.SplitHostPort(plain.Addr())
	require.NoError(t, err)
	l := redistest.NoError(net.Listen("tcp", host+":0"))(t)
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	_, stop, err := redistest.Launch(func(host, own, dir string) []string {
		return []string{"--bind", host, "--port", own, "--dir", dir, "--logfile", filepath.Join(dir, "log"), "--save", "",
			"--tls-port", strconv.Itoa(port), "--tls-cert-file", cert, "--tls-key-file", priv, "--tls-ca-cert-file", cert,
			"--tls-auth-clients", "no"}
	})
	if err != nil && strings.Contains(err.Error(), "Failed finding TLS support") {
		t.Skip("the server is built without TLS")
	}
	require.NoError(t, err)
	t.Cleanup(stop)
	secured := net.JoinHostPort(host, strconv.Itoa(port))

	refuses(t, "without TLS", rueidis.ClientOption{InitAddress: []string{secured}}, pubsub.Options{},
		errs.ErrInvalidOption, "TLSConfig is nil, and the server at "+secured+" speaks TLS")

	o := rueidis.ClientOption{InitAddress: []string{plain.Addr()}, TLSConfig: &tls.Config{InsecureSkipVerify: true}}
	o.Dialer.Timeout = 300 * time.Millisecond
	refuses(t, "with TLS", o, pubsub.Options{}, errs.ErrInvalidOption,
		"TLSConfig is set, and the server at "+plain.Addr()+" speaks without TLS")

	_, err = pubsub.Dial(t.Context(), rueidis.ClientOption{InitAddress: []string{secured}, TLSConfig: &tls.Config{}},
		pubsub.Options{})
	require.ErrorContains(t, err, "see TLSConfig", "a certificate that nobody has signed")
	require.NotErrorIs(t, err, errs.ErrUnavailable)
	dials(t, "TLS", rueidis.ClientOption{InitAddress: []string{secured},
		TLSConfig: &tls.Config{InsecureSkipVerify: true}}, pubsub.Options{})

	gone := redistest.NoError(net.Listen("tcp", "127.0.0.1:0"))(t)
	gone.Close()
	_, err = pubsub.Dial(t.Context(),
		rueidis.ClientOption{InitAddress: []string{gone.Addr().String()}, TLSConfig: &tls.Config{}},
		pubsub.Options{})
	require.ErrorIs(t, err, errs.ErrUnavailable, "nobody is there")
}

// lasting is a client whose Close lasts until it may end.
type lasting struct {
	rueidis.Client
	may, ended chan struct{}
}

func (c lasting) Close() {
	<-c.may
	c.Client.Close()
	close(c.ended)
}

// A client that does not end its Close must not keep the hub's: see closeClient.
func TestHub_ClientDoesNotClose_IsClosed(t *testing.T) {
	patience, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("patience is over"))
	for _, c := range []struct {
		ctx  context.Context
		says string
		took time.Duration
	}{
		{context.Background(), "the client is still being closed after 5s", 5 * time.Second},
		{patience, "patience is over", 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := redistest.Bubble(t)
			defer s.Embedded.Close()
			held := lasting{may: make(chan struct{}), ended: make(chan struct{})}
			h, err := pubsub.Dial(t.Context(), s.Option(),
				pubsub.Options{NewClient: func(o rueidis.ClientOption) (_ rueidis.Client, err error) {
					held.Client, err = rueidis.NewClient(o)
					return held, err
				}})
			require.NoError(t, err)
			require.IsType(t, lasting{}, h.Client())
			began := time.Now()
			err = h.Close(c.ctx)
			require.ErrorContains(t, err, c.says)
			require.Equal(t, c.took, time.Since(began))
			require.Equal(t, err, h.Close(c.ctx), "the result of the first")
			close(held.may)
			<-held.ended
		})
	}
}

func TestDiscard_Channel_GoesBeforeItsConnection(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	s := redistest.Start(t)
	c := s.Client(t)
	h := newHub(t, c, pubsub.Options{Grace: time.Second})
	for range 20 { // the client makes all connections that it uses for calls
		publish(t, h, "none", "")
	}
	before := connections(t, c)
	for i := range 20 {
		sub := subscribe(t, h, fmt.Sprint("c", i))
		sub.Discard()
		sub.Discard()
	}
	redistest.Eventually(t, 10*time.Second, "unsubscribed", func() bool {
		return redistest.CommandCalls(t, c)["unsubscribe"] == 20
	})
	for i := range 20 {
		require.Zero(t, numsub(t, c, fmt.Sprint("c", i)))
	}
	kept := subscribe(t, h, "kept")
	other := subscribe(t, h, "kept")
	other.Discard()
	publish(t, h, "kept", "heard")
	require.Equal(t, "heard", next(t, kept).Payload, "somebody else has it still")
	kept.Discard()
	redistest.Eventually(t, 20*time.Second, "the idle connection is closed", func() bool {
		return connections(t, c) <= before
	})
	require.Less(t, redistest.CommandCalls(t, c)["hello"], 15, "not a connection for each channel")
}

func TestDiscard_WantedAgainAtOnce_IsConfirmedAnew(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		h := newHub(t, s.Client(t), pubsub.Options{})
		for i := range 100 {
			subscribe(t, h, "c").Discard()
			again := subscribe(t, h, "c")
			require.EqualValues(t, 1, publish(t, h, "c", strconv.Itoa(i)))
			require.Equal(t, pubsub.Message{Payload: strconv.Itoa(i)}, next(t, again))
			again.Discard()
		}
	})
}

func TestDiscard_WantedDuringAnothersCall_IsConfirmedAnew(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	direct := s.Client(t)
	p := redistest.NewProxy(t, s)
	h := newHub(t, p.Server().Client(t), pubsub.Options{})
	first := subscribe(t, h, "c")
	p.Delay(0, 150*time.Millisecond)
	go h.Subscribe(within(t), "another")
	redistest.Eventually(t, 10*time.Second, "the reply is on its way", func() bool {
		return numsub(t, direct, "another") == 1
	})
	first.Discard()
	again := subscribe(t, h, "c")
	redistest.Eventually(t, 10*time.Second, "a message arrives", func() bool {
		publish(t, h, "c", "heard")
		return next(t, again).Payload == "heard"
	})
}

// A connection ends when nothing is wanted on it; what is wanted just then is subscribed on the next, and has lost
// nothing.
func TestHub_ConnectionDoneWith_IsNoLoss(t *testing.T) {
	t.Parallel()
	var losses atomic.Int32
	h := newHub(t, redistest.Start(t).Client(t), pubsub.Options{Grace: time.Nanosecond,
		Observer: func(_ context.Context, e redlatch.Event) context.Context {
			if e.Kind == redlatch.EventLost {
				losses.Add(1)
			}
			return nil
		}})
	for i := range 100 {
		s := subscribe(t, h, "c")
		s.Close()
		time.Sleep(time.Duration(i%30) * 20 * time.Microsecond)
	}
	require.Zero(t, losses.Load())
}

// Scripts tell by it which listeners are Redisson's (lua/listeners.lua of package script).
func TestSubscribe_RedissonsChannel_HasAMark(t *testing.T) {
	t.Parallel()
	const channel = "redisson_rwlock:{l}"
	mark := keyname.Mark(channel)
	counts := func(t *testing.T, c rueidis.Client) [2]int64 {
		return [2]int64{numsub(t, c, channel), numsub(t, c, mark)}
	}
	marked := func(t *testing.T, c rueidis.Client) {
		h := newHub(t, c, pubsub.Options{Grace: 100 * time.Millisecond})
		a, b := subscribe(t, h, channel), subscribe(t, h, channel)
		require.Equal(t, [2]int64{1, 1}, counts(t, c))
		n := redistest.NoError(h.Publish(within(t), channel, "1"))(t)
		require.EqualValues(t, 1, n)
		require.Equal(t, "1", next(t, b).Payload)
		a.Close()
		b.Close()
		require.Equal(t, [2]int64{1, 1}, counts(t, c), "for as long as it listens")
		redistest.Eventually(t, 10*time.Second, "both are left", func() bool { return counts(t, c) == [2]int64{} })
		subscribe(t, h, channel)
		require.Equal(t, [2]int64{1, 1}, counts(t, c))
	}
	t.Run("in any server", func(t *testing.T) {
		redistest.Each(t, func(t *testing.T, s *redistest.Server) { marked(t, s.Client(t)) })
	})
	t.Run("in RESP2", func(t *testing.T) {
		marked(t, optioned(t, redistest.Start(t), resp2))
	})
	t.Run("after the connection was lost", func(t *testing.T) {
		s := redistest.Start(t)
		c := s.Client(t)
		h := newHub(t, s.Client(t), pubsub.Options{})
		sub := subscribe(t, h, channel)
		cut(t, c)
		require.True(t, next(t, sub).Gap)
		redistest.Eventually(t, 10*time.Second, "both are back", func() bool { return counts(t, c) == [2]int64{1, 1} })
	})
	t.Run("unless the user may have none", func(t *testing.T) {
		s := redistest.Start(t)
		admin := s.Client(t)
		c, _ := app(t, s, "resetchannels", "&redisson_rwlock:*")
		var book redistest.Logbook
		h := newHub(t, c, pubsub.Options{Logger: book.Logger(), Grace: time.Millisecond})
		subscribe(t, h, channel).Close()
		require.Zero(t, book.Count("refused"))
		redistest.Eventually(t, 10*time.Second, "left", func() bool { return counts(t, admin) == [2]int64{} })
		subscribe(t, h, channel)
		require.Equal(t, [2]int64{1, 0}, counts(t, admin))
		_, err := h.Subscribe(within(t), "redisson_sc:{s}")
		require.ErrorIs(t, err, errs.ErrDenied)
		require.ErrorContains(t, err, "redisson_sc")
		require.Equal(t, 1, book.Count("refused"))
	})
	t.Run("in a Cluster", func(t *testing.T) {
		s := redistest.Cluster(t)
		c := s.Client(t)
		h := newHub(t, c, pubsub.Options{})
		for i := range 8 { // of all nodes
			channel := fmt.Sprintf("redisson_sc:{%d}", i)
			sub := subscribe(t, h, channel)
			require.EqualValues(t, 1, publish(t, h, channel, channel))
			require.Equal(t, channel, next(t, sub).Payload)
			redistest.Eventually(t, 10*time.Second, "both at one node", func() bool {
				for _, node := range c.Nodes() {
					n := redistest.NoError(node.Do(within(t),
						node.B().PubsubShardnumsub().Channel(channel, keyname.Mark(channel)).Build()).AsIntMap())(t)
					if n[channel] == 1 && n[keyname.Mark(channel)] == 1 {
						return true
					}
				}
				return false
			})
		}
	})
}
