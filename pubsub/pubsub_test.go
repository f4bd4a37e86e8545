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

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/pubsub"
)

var quiet = slog.New(slog.DiscardHandler)

func newHub(t testing.TB, c rueidis.Client, o pubsub.Options) *pubsub.Hub {
	t.Helper()
	if o.Logger == nil {
		o.Logger = quiet
	}
	h, err := pubsub.New(c, o)
	require.NoError(t, err)
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
	m, err := s.Next(within(t))
	require.NoError(t, err)
	return m
}

func subscribe(t testing.TB, h *pubsub.Hub, channel string) *pubsub.Subscription {
	t.Helper()
	s, err := h.Subscribe(within(t), channel)
	require.NoError(t, err)
	return s
}

// numsub asks the server how many connections are subscribed to channel.
func numsub(t testing.TB, c rueidis.Client, channel string) int64 {
	t.Helper()
	m, err := c.Do(within(t), c.B().PubsubNumsub().Channel(channel).Build()).AsIntMap()
	require.NoError(t, err)
	return m[channel]
}

func connections(t testing.TB, c rueidis.Client) int {
	t.Helper()
	list, err := c.Do(within(t), c.B().ClientList().Build()).ToString()
	require.NoError(t, err)
	return strings.Count(list, "id=")
}

func TestMessagesArriveInOrderAtEverySubscription(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		h := newHub(t, s.Client(t), pubsub.Options{})
		a, b := subscribe(t, h, "news"), subscribe(t, h, "news")
		for i := range 10 {
			n, err := h.Publish(within(t), "news", strconv.Itoa(i))
			require.NoError(t, err)
			require.EqualValues(t, 1, n, "one connection however many subscriptions")
		}
		for _, sub := range []*pubsub.Subscription{a, b} {
			for i := range 10 {
				require.Equal(t, pubsub.Message{Payload: strconv.Itoa(i)}, next(t, sub))
			}
		}
	})
}

func TestRESP2ClientsSubscribeToo(t *testing.T) {
	s := redistest.Start(t)
	o := s.Option()
	o.AlwaysRESP2, o.DisableCache = true, true
	c, err := rueidis.NewClient(o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	h := newHub(t, c, pubsub.Options{Grace: time.Millisecond})
	a, b := subscribe(t, h, "a"), subscribe(t, h, "b")
	_, err = h.Publish(within(t), "b", "x")
	require.NoError(t, err)
	require.Equal(t, "x", next(t, b).Payload)
	b.Close()
	redistest.Eventually(t, 10*time.Second, "b unsubscribed", func() bool { return numsub(t, c, "b") == 0 })
	_, err = h.Publish(within(t), "a", "y")
	require.NoError(t, err)
	require.Equal(t, "y", next(t, a).Payload)
}

func TestAChannelStaysForTheGracePeriodAndThenGoes(t *testing.T) {
	s := redistest.Start(t)
	c := s.Client(t)
	h := newHub(t, c, pubsub.Options{Grace: 300 * time.Millisecond})
	before := connections(t, c)
	subscribe(t, h, "c").Close()
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
	require.Equal(t, 1, redistest.CommandCalls(t, c)["subscribe"])
}

func TestOneSubscribeHoweverManySubscriptions(t *testing.T) {
	s := redistest.Start(t)
	c := s.Client(t)
	h := newHub(t, c, pubsub.Options{})
	results := make(chan error)
	for range 200 {
		go func() {
			sub, err := h.Subscribe(within(t), "c")
			if err == nil {
				sub.Close()
			}
			results <- err
		}()
	}
	for range 200 {
		require.NoError(t, <-results)
	}
	require.Equal(t, 1, redistest.CommandCalls(t, c)["subscribe"])
}

func TestALostConnectionIsAGapAndIsSubscribedAgain(t *testing.T) {
	s := redistest.Start(t)
	c := s.Client(t)
	h := newHub(t, c, pubsub.Options{})
	sub := subscribe(t, h, "c")
	for range 3 {
		require.NoError(t, c.Do(within(t), c.B().Arbitrary("CLIENT", "KILL", "TYPE", "pubsub").Build()).Error())
		require.True(t, next(t, sub).Gap)
		redistest.Eventually(t, 10*time.Second, "subscribed again", func() bool {
			return sub.Live() && numsub(t, c, "c") == 1
		})
		_, err := h.Publish(within(t), "c", "after")
		require.NoError(t, err)
		m := next(t, sub)
		for m.Gap { // going down and coming up are both said
			m = next(t, sub)
		}
		require.Equal(t, "after", m.Payload)
	}
}

func TestAServerThatComesBackIsSubscribedAgain(t *testing.T) {
	s := redistest.Embedded(t)
	c := s.Client(t)
	h := newHub(t, c, pubsub.Options{})
	sub := subscribe(t, h, "c")
	s.Embedded.Close()
	require.True(t, next(t, sub).Gap)
	require.NoError(t, s.Embedded.StartAddr(s.Addr()))
	redistest.Eventually(t, 20*time.Second, "subscribed again", sub.Live)
	s.Embedded.Publish("c", "back")
	for {
		if m := next(t, sub); !m.Gap {
			require.Equal(t, "back", m.Payload)
			return
		}
	}
}

func TestASlowSubscriberHoldsNobodyUpAndIsToldOfTheGap(t *testing.T) {
	s := redistest.Embedded(t)
	h := newHub(t, s.Client(t), pubsub.Options{})
	slow, quick := subscribe(t, h, "c"), subscribe(t, h, "c")
	for i := range 1000 {
		_, err := h.Publish(within(t), "c", strconv.Itoa(i))
		require.NoError(t, err)
		require.Equal(t, strconv.Itoa(i), next(t, quick).Payload)
	}
	require.True(t, next(t, slow).Gap, "the oldest went, and it says so")
	for last := -1; last != 999; {
		n, err := strconv.Atoi(next(t, slow).Payload)
		require.NoError(t, err)
		require.Greater(t, n, last)
		last = n
	}
}

func TestABurstIsDeliveredWhereTheBufferIsAsLarge(t *testing.T) {
	s := redistest.Embedded(t)
	for buffer, want := range map[int]int{0: 127, 2: 1, 149: 148, 150: 150} {
		var dropped atomic.Int64
		h := newHub(t, s.Client(t), pubsub.Options{Buffer: buffer, Observer: func(e pubsub.Event) {
			if e.Kind == pubsub.EventDropped && e.Channel == "c" {
				dropped.Add(1)
			}
		}})
		slow, quick := subscribe(t, h, "c"), subscribe(t, h, "c")
		for i := range 150 {
			_, err := h.Publish(within(t), "c", strconv.Itoa(i))
			require.NoError(t, err)
			require.Equal(t, strconv.Itoa(i), next(t, quick).Payload)
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
	for _, bad := range []int{-1, 1, pubsub.MaxBuffer + 1} {
		_, err := pubsub.New(s.Client(t), pubsub.Options{Buffer: bad})
		require.ErrorIs(t, err, errs.ErrInvalidOption)
		require.ErrorContains(t, err, "Buffer is "+strconv.Itoa(bad))
	}
}

func TestALossIsLoggedOnceAndItsEndOnceAndTheObserverIsTold(t *testing.T) {
	s := redistest.Start(t)
	admin := s.Client(t)
	var book redistest.Logbook
	var first, again, lost atomic.Int64
	h := newHub(t, s.Client(t), pubsub.Options{Logger: book.Logger(), Observer: func(e pubsub.Event) {
		switch {
		case e.Kind == pubsub.EventLost:
			lost.Add(1)
			panic("an observer")
		case e.Kind != pubsub.EventSubscribed:
		case e.Again:
			again.Add(1)
		default:
			first.Add(1)
		}
	}})
	subs := []*pubsub.Subscription{subscribe(t, h, "a"), subscribe(t, h, "b"), subscribe(t, h, "c")}
	require.EqualValues(t, 3, first.Load())
	require.Zero(t, book.Count("redlatch:"))
	for round := range 2 {
		require.NoError(t, admin.Do(within(t), admin.B().Arbitrary("CLIENT", "KILL", "TYPE", "pubsub").Build()).Error())
		redistest.Eventually(t, 10*time.Second, "all are back", func() bool {
			return book.Count("subscriptions are back") > round
		})
		for _, sub := range subs {
			require.True(t, sub.Live())
		}
		require.Equal(t, round+1, book.Count("subscriptions lost"))
		require.Equal(t, round+1, book.Count("subscriptions are back"))
		redistest.Eventually(t, 10*time.Second, "all are told", func() bool { return again.Load() >= int64(3*(round+1)) })
		require.EqualValues(t, 3*(round+1), again.Load())
		require.EqualValues(t, round+1, lost.Load())
	}
	require.Equal(t, 2, book.Count("observer panicked"))
}

// It would wait forever, if it ran with the hub's mutex held; and a Subscribe that returns knows what its observer
// knows.
func TestAnObserverMayLookAtTheHubAndHearsOneEventAfterTheOther(t *testing.T) {
	s := redistest.Start(t)
	admin := s.Client(t)
	var h *pubsub.Hub
	made := make(chan struct{})
	var inside atomic.Int32
	var mu sync.Mutex
	told := map[string]int{}
	h = newHub(t, s.Client(t), pubsub.Options{Buffer: 2, Observer: func(e pubsub.Event) {
		<-made
		if inside.Add(1) > 1 {
			t.Error("two events at once")
		}
		defer inside.Add(-1)
		h.Stats()
		mu.Lock()
		defer mu.Unlock()
		told[string(e.Kind)+" "+e.Channel]++
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
	require.NoError(t, admin.Do(within(t), admin.B().Arbitrary("CLIENT", "KILL", "TYPE", "pubsub").Build()).Error())
	redistest.Eventually(t, 20*time.Second, "the loss is told", func() bool {
		return count("lost ") > 0 && count("subscribed 7") == 2
	})
}

func TestAChannelThatIsSubscribedAfterAllIsLogged(t *testing.T) {
	s := redistest.Start(t)
	admin := s.Client(t)
	acl := func(rule ...string) {
		require.NoError(t, admin.Do(within(t),
			admin.B().Arbitrary(append([]string{"ACL", "SETUSER", "app", "on", "nopass", "+@all", "~*"}, rule...)...).Build()).
			Error())
	}
	acl("resetchannels")
	o := s.Option()
	o.Username, o.Password = "app", "any"
	c, err := rueidis.NewClient(o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	var book redistest.Logbook
	var refused atomic.Int64
	h := newHub(t, c, pubsub.Options{Logger: book.Logger(), Observer: func(e pubsub.Event) {
		if e.Kind == pubsub.EventRefused && e.Channel == "shut" && e.Err != nil {
			refused.Add(1)
		}
	}})
	for range 3 {
		_, err = h.Subscribe(within(t), "shut")
		require.ErrorIs(t, err, errs.ErrDenied)
	}
	require.EqualValues(t, 3, refused.Load())
	require.Equal(t, 1, book.Count("subscribe refused"))
	acl("&shut", "&open")
	subscribe(t, h, "open")
	require.Zero(t, book.Count("had been refused"))
	subscribe(t, h, "shut")
	require.Equal(t, 1, book.Count("had been refused"))
}

func TestInAClusterAUserWhoMayNotAskForShardedChannelsUsesThem(t *testing.T) {
	t.Parallel()
	s := redistest.Cluster(t)
	for _, addr := range s.Addrs {
		admin, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true,
			DisableCache: true})
		require.NoError(t, err)
		t.Cleanup(admin.Close)
		for user, rights := range map[string]string{"narrow": "-pubsub|shardnumsub", "narrower": "-pubsub"} {
			require.NoError(t, admin.Do(within(t),
				admin.B().Arbitrary("ACL", "SETUSER", user, "on", ">pw", "~*", "&*", "+@all", rights).Build()).Error())
		}
	}
	free := newHub(t, s.Client(t), pubsub.Options{})
	require.Equal(t, "SPUBLISH", free.PublishCommand())
	heard := subscribe(t, free, "news")
	for _, user := range []string{"narrow", "narrower"} {
		o := s.Option()
		o.Username, o.Password = user, "pw"
		c, err := rueidis.NewClient(o)
		require.NoError(t, err)
		t.Cleanup(c.Close)
		var book redistest.Logbook
		h := newHub(t, c, pubsub.Options{Logger: book.Logger()})
		require.Equal(t, "SPUBLISH", h.PublishCommand(), user)
		sub := subscribe(t, h, "news")
		_, err = h.Publish(within(t), "news", user)
		require.NoError(t, err)
		require.Equal(t, user, next(t, heard).Payload)
		require.Equal(t, user, next(t, sub).Payload)
		_, err = free.Publish(within(t), "news", "all")
		require.NoError(t, err)
		require.Equal(t, "all", next(t, heard).Payload)
		require.Equal(t, "all", next(t, sub).Payload)
	}
}

func TestARefusedSubscribeSaysWhyAndIsNotRemembered(t *testing.T) {
	s := redistest.Start(t)
	admin := s.Client(t)
	acl := func(rule ...string) {
		require.NoError(t, admin.Do(within(t),
			admin.B().Arbitrary(append([]string{"ACL", "SETUSER", "app", "on", "nopass", "+@all", "~*"}, rule...)...).Build()).
			Error())
	}
	acl("resetchannels", "&open")
	o := s.Option()
	o.Username, o.Password = "app", "any"
	c, err := rueidis.NewClient(o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	h := newHub(t, c, pubsub.Options{})
	open := subscribe(t, h, "open")
	_, err = h.Subscribe(within(t), "shut")
	require.ErrorIs(t, err, errs.ErrDenied)
	require.NotErrorIs(t, err, errs.ErrUnavailable, "asking again does not help")
	require.ErrorContains(t, err, "channel pattern")
	require.True(t, open.Live(), "the refusal of one channel leaves the others alone")
	acl("&shut")
	subscribe(t, h, "shut")
}

func TestSubscribingWhileDisconnectedWaitsForTheServersAnswer(t *testing.T) {
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

func TestARefusalAfterReconnectingReachesOnlyItsCaller(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	s := redistest.Start(t)
	admin := s.Client(t)
	acl := func(rule ...string) {
		require.NoError(t, admin.Do(within(t),
			admin.B().Arbitrary(append([]string{"ACL", "SETUSER", "app", "on", "nopass", "+@all", "~*"}, rule...)...).Build()).
			Error())
	}
	acl("&c")
	o := s.Option()
	o.Username, o.Password = "app", "any"
	c, err := rueidis.NewClient(o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	h := newHub(t, c, pubsub.Options{})
	first := subscribe(t, h, "c")
	acl("resetchannels") // ends the connection of those who are subscribed
	require.True(t, next(t, first).Gap)
	for range 2 {
		_, err = h.Subscribe(within(t), "c")
		require.ErrorIs(t, err, errs.ErrDenied)
		require.ErrorContains(t, err, "channel pattern")
	}
	acl("&c")
	redistest.Eventually(t, 20*time.Second, "subscribed again", first.Live)
}

func TestSubscribeEndsWithItsContext(t *testing.T) {
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

func TestClusterUsesShardedChannelsOnEveryNode(t *testing.T) {
	t.Parallel()
	s := redistest.Cluster(t)
	c := s.Client(t)
	h := newHub(t, c, pubsub.Options{})
	require.Equal(t, "SPUBLISH", h.PublishCommand())
	subs := map[string]*pubsub.Subscription{}
	for i := range 30 {
		ch := fmt.Sprintf("c%d", i)
		subs[ch] = subscribe(t, h, ch)
	}
	for ch, sub := range subs {
		n, err := h.Publish(within(t), ch, "to "+ch)
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		require.Equal(t, "to "+ch, next(t, sub).Payload)
	}
}

func TestAMigratedSlotIsFollowed(t *testing.T) {
	t.Parallel()
	s := redistest.Cluster(t)
	c := s.Client(t)
	h := newHub(t, c, pubsub.Options{})
	const channel = "redisson_sc:{moving}" // one with a mark, which moves, too
	sub := subscribe(t, h, channel)
	slot := strconv.Itoa(int(keyname.Slot("moving")))
	ids, nodes := []string{}, []rueidis.Client{}
	owner := -1
	for i, a := range s.Addrs {
		n, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{a}, ForceSingleClient: true,
			DisableCache: true})
		require.NoError(t, err)
		t.Cleanup(n.Close)
		id, err := n.Do(within(t), n.B().Arbitrary("CLUSTER", "MYID").Build()).ToString()
		require.NoError(t, err)
		ids, nodes = append(ids, id), append(nodes, n)
		if int(keyname.Slot("moving")) < (i+1)*16384/3 && owner < 0 {
			owner = i
		}
	}
	target := (owner + 1) % 3
	for _, step := range []struct {
		node int
		args []string
	}{
		{target, []string{"CLUSTER", "SETSLOT", slot, "IMPORTING", ids[owner]}},
		{owner, []string{"CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target]}},
		{target, []string{"CLUSTER", "SETSLOT", slot, "NODE", ids[target]}},
		{owner, []string{"CLUSTER", "SETSLOT", slot, "NODE", ids[target]}},
	} {
		n := nodes[step.node]
		require.NoError(t, n.Do(within(t), n.B().Arbitrary(step.args...).Build()).Error(), "%v", step.args)
	}
	require.True(t, next(t, sub).Gap, "the server took the subscription away")
	redistest.Eventually(t, 20*time.Second, "subscribed at the new owner", sub.Live)
	redistest.Eventually(t, 20*time.Second, "a message arrives", func() bool {
		if n, err := h.Publish(within(t), channel, "here"); err != nil || n == 0 {
			return false
		}
		m := next(t, sub)
		for m.Gap {
			m = next(t, sub)
		}
		return m.Payload == "here"
	})
	for node, want := range map[int]int64{target: 1, owner: 0} {
		n, err := nodes[node].Do(within(t),
			nodes[node].B().PubsubShardnumsub().Channel(channel, keyname.Mark(channel)).Build()).AsIntMap()
		require.NoError(t, err)
		require.Equal(t, map[string]int64{channel: want, keyname.Mark(channel): want}, n)
	}
}

// A sentinel says only once who is the new primary; the old one, which lives on as a replica, says so only when it is
// written to.
func TestDialFindsTheNewPrimaryThoughTheSentinelsMessageIsLost(t *testing.T) {
	redistest.InFull(t, "TestAServerThatComesBackIsSubscribedAgain")
	t.Parallel()
	s := redistest.Sentinel(t)
	followed := redistest.NewProxy(t, s.Server)
	o := s.Option()
	o.InitAddress = []string{followed.Addr()}
	h, err := pubsub.Dial(t.Context(), o, pubsub.Options{})
	require.NoError(t, err)
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
		m := next(t, sub)
		for m.Gap {
			m = next(t, sub)
		}
		return m.Payload == "here"
	})
}

// A replica accepts subscriptions to the channels of its slots, and hears what its primary publishes. But a script that
// publishes on the primary does not count who is subscribed there, and takes the process for gone.
func TestInAClusterChannelsAreSubscribedAtPrimaries(t *testing.T) {
	t.Parallel()
	s := redistest.ReplicatedCluster(t)
	channels := map[string]redistest.Pair{}
	at := func(n *redistest.Server, ch string) bool {
		return strings.Contains(n.Ask(t, "PUBSUB", "SHARDCHANNELS", ch), ch)
	}
	for i := range 5 { // the node that is asked first is any
		o := s.Option()
		o.AlwaysRESP2, o.DisableCache = i == 0, i == 0
		c, err := rueidis.NewClient(o)
		require.NoError(t, err)
		t.Cleanup(c.Close)
		h := newHub(t, c, pubsub.Options{})
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

func TestCloseEndsSubscriptionsAndLeavesNothingRunning(t *testing.T) {
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
func TestAConnectionThatIsMadeWhileTheHubIsClosedIsClosedToo(t *testing.T) {
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
	h, err := pubsub.Dial(t.Context(), o, pubsub.Options{})
	require.NoError(t, err)
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

// A client that does not end its Close must not keep the hub's: see closeClient.
func TestAHubIsClosedThoughItsClientIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := redistest.Bubble(t)
		defer s.Embedded.Close()
		end, ended := make(chan struct{}), make(chan struct{})
		h, err := pubsub.Dial(t.Context(), s.Option(),
			pubsub.Options{NewClient: func(o rueidis.ClientOption) (rueidis.Client, error) {
				c, err := rueidis.NewClient(o)
				return &lasting{c, end, ended}, err
			}})
		require.NoError(t, err)
		began := time.Now()
		require.ErrorContains(t, h.Close(context.Background()), "the client is still being closed after 5s")
		require.Equal(t, 5*time.Second, time.Since(began))
		close(end)
		<-ended
	})
}

// lasting is a client whose Close lasts until it is let go.
type lasting struct {
	rueidis.Client
	end, ended chan struct{}
}

func (c *lasting) Close() {
	<-c.end
	c.Client.Close()
	close(c.ended)
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

func TestInvalidationsReachEveryWatcher(t *testing.T) {
	s := redistest.Start(t)
	var inv pubsub.Invalidations
	own := make(chan struct{}, 16)
	o := s.Option()
	o.OnInvalidations = func([]rueidis.RedisMessage) { own <- struct{}{} }
	c, err := rueidis.NewClient(inv.Option(o))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	h := newHub(t, c, inv.In(pubsub.Options{}))
	got := make(chan []string, 16)
	stop, observed := h.Watch(func(keys []string) { got <- keys })
	require.True(t, observed)
	require.NoError(t, c.DoCache(within(t), c.B().Get().Key("k").Cache(), time.Minute).NonRedisError())
	other := s.Client(t)
	require.NoError(t, other.Do(within(t), other.B().Set().Key("k").Value("v").Build()).Error())
	require.Equal(t, []string{"k"}, <-got)
	<-own
	require.NoError(t, other.Do(within(t), other.B().Flushall().Build()).Error())
	require.Nil(t, <-got, "anything may have changed")
	stop()
	_, observed = newHub(t, other, pubsub.Options{}).Watch(nil)
	require.False(t, observed)
}

func TestBadInputIsRefused(t *testing.T) {
	_, err := pubsub.New(nil, pubsub.Options{})
	require.ErrorIs(t, err, errs.ErrInvalidOption)
	c := redistest.Embedded(t).Client(t)
	_, err = pubsub.New(c, pubsub.Options{Grace: -1})
	require.ErrorIs(t, err, errs.ErrInvalidOption)
	_, err = pubsub.New(c, pubsub.Options{CallTimeout: -1})
	require.ErrorIs(t, err, errs.ErrInvalidOption)
	_, err = pubsub.Dial(t.Context(),
		rueidis.ClientOption{InitAddress: []string{"127.0.0.1:1"}, ConnLifetime: time.Minute},
		pubsub.Options{})
	require.ErrorIs(t, err, errs.ErrInvalidOption)
	_, err = pubsub.Dial(t.Context(), rueidis.ClientOption{InitAddress: []string{"127.0.0.1:1"}, ReplicaOnly: true},
		pubsub.Options{})
	require.ErrorIs(t, err, errs.ErrInvalidOption)
	_, err = pubsub.Dial(t.Context(), rueidis.ClientOption{InitAddress: []string{"127.0.0.1:1"}}, pubsub.Options{})
	require.ErrorIs(t, err, errs.ErrUnavailable)
	h := newHub(t, c, pubsub.Options{})
	for _, ch := range []string{"", strings.Repeat("c", keyname.MaxLen+1), "\xff"} {
		_, err = h.Subscribe(within(t), ch)
		require.ErrorIs(t, err, errs.ErrInvalidName)
		_, err = h.Publish(within(t), ch, "")
		require.ErrorIs(t, err, errs.ErrInvalidName)
	}
}

func TestDialTellsWhatTryingAgainCannotMend(t *testing.T) {
	s := redistest.Start(t)
	admin := s.Client(t)
	run := func(args ...string) {
		require.NoError(t, admin.Do(within(t), admin.B().Arbitrary(args...).Build()).Error())
	}
	run("ACL", "SETUSER", "untracked", "on", ">pw", "~*", "&*", "+@all", "-client|tracking")
	run("ACL", "SETUSER", "idle", "on", ">pw", "~*", "&*", "-@all", "+client|tracking", "+hello")
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
		h, err := pubsub.Dial(t.Context(), o, pubsub.Options{})
		require.Error(t, err, name)
		require.Nil(t, h)
		require.NotErrorIs(t, err, errs.ErrUnavailable, name)
		require.ErrorContains(t, err, says, name)
		require.ErrorIs(t, err, is, name)
		require.NotContains(t, err.Error(), "secret", name)
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
	run("CONFIG", "SET", "requirepass", "pw")
	refused("no password", s.Option(), "Username and Password", errs.ErrDenied)
	h, err := pubsub.Dial(t.Context(), with(func(o *rueidis.ClientOption) { o.Password = "pw" }), pubsub.Options{})
	require.NoError(t, err)
	require.NoError(t, h.Close(context.Background()))

	old := redistest.Start(t, "--rename-command", "HELLO", "")
	goesOn("a server without HELLO", old.Option(), "no RESP3")
	o := old.Option()
	o.DisableCache = true
	h, err = pubsub.Dial(t.Context(), o, pubsub.Options{})
	require.NoError(t, err)
	require.NoError(t, h.Close(context.Background()))

	e := redistest.Embedded(t)
	e.Embedded.SetError("LOADING Redis is loading the dataset in memory")
	_, err = pubsub.Dial(t.Context(), e.Option(), pubsub.Options{})
	require.ErrorIs(t, err, errs.ErrUnavailable, "that passes")
}

// The address of a sentinel, without the name of its primary, connects, and no script can ever run there.
func TestDialRefusesASentinelWithoutTheNameOfItsPrimary(t *testing.T) {
	t.Parallel()
	s := redistest.Sentinel(t)
	o := s.Option()
	o.Sentinel.MasterSet = ""
	for _, n := range []int{1, 3} {
		o.InitAddress = s.Addrs[:n]
		_, err := pubsub.Dial(t.Context(), o, pubsub.Options{Logger: quiet})
		require.ErrorIs(t, err, errs.ErrInvalidOption, n)
		require.ErrorContains(t, err, "Sentinel.MasterSet", n)
	}
}

func TestDialRefusesAServerThatSaysItIsOlderThanRedis7(t *testing.T) {
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
		h, err := pubsub.Dial(t.Context(), s.Option(), pubsub.Options{Logger: quiet})
		if c.refused {
			require.ErrorIs(t, err, errs.ErrInvalidOption, name)
			require.NotErrorIs(t, err, errs.ErrUnavailable, name)
			require.ErrorContains(t, err, "InitAddress is a", name)
			require.Nil(t, h)
			redistest.Eventually(t, 30*time.Second, "no connection is left of the refused", func() bool {
				return s.Embedded.CurrentConnectionCount() == 0
			})
			continue
		}
		require.NoError(t, err, name)
		require.NoError(t, h.Close(context.Background()))
	}
}

// A busy server answers HELLO, and refuses CLIENT TRACKING: no option is wrong with that.
func TestDialRefusesAServerThatEvictsIfStrict(t *testing.T) {
	strict := pubsub.Options{Strict: true}
	s := redistest.Start(t, "--maxmemory-policy", "allkeys-lru")
	_, err := pubsub.Dial(t.Context(), s.Option(), strict)
	require.ErrorIs(t, err, errs.ErrInvalidOption)
	require.ErrorContains(t, err, "allkeys-lru")

	admin := s.Client(t)
	require.NoError(t, admin.Do(t.Context(),
		admin.B().Arbitrary("ACL", "SETUSER", "app", "on", "nopass", "~*", "&*", "+@all", "-info").Build()).Error())
	o := s.Option()
	o.Username, o.Password = "app", "any"
	_, err = pubsub.Dial(t.Context(), o, strict)
	require.ErrorIs(t, err, errs.ErrInvalidOption)
	require.ErrorContains(t, err, "the server's INFO is NOPERM", "it does not let us ask")

	_, err = pubsub.New(admin, strict)
	require.ErrorIs(t, err, errs.ErrInvalidOption)
	require.ErrorContains(t, err, "Strict is true, must be false: only Dial asks the server")

	require.NoError(t, admin.Do(t.Context(),
		admin.B().ConfigSet().ParameterValue().ParameterValue("maxmemory-policy", "noeviction").Build()).Error())
	hub, err := pubsub.Dial(t.Context(), s.Option(), strict)
	require.NoError(t, err)
	require.NoError(t, hub.Close(context.Background()))
}

func TestDialToAServerThatIsBusyMayBeRepeated(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--busy-reply-threshold", "5")
	busy, killer := s.Client(t), s.Client(t)
	done := make(chan error, 1)
	go func() {
		done <- busy.Do(within(t), busy.B().Eval().Script("while true do end").Numkeys(0).Build()).Error()
	}()
	redistest.Eventually(t, 20*time.Second, "busy", func() bool {
		err := killer.Do(within(t), killer.B().Ping().Build()).Error()
		return err != nil && strings.HasPrefix(err.Error(), "BUSY ")
	})
	_, err := pubsub.Dial(t.Context(), s.Option(), pubsub.Options{})
	require.NoError(t, killer.Do(within(t), killer.B().ScriptKill().Build()).Error())
	require.ErrorIs(t, err, errs.ErrUnavailable)
	require.NotErrorIs(t, err, errs.ErrInvalidOption)
	require.Error(t, <-done)
}

func TestDialSaysWhichSideSpeaksTLS(t *testing.T) {
	t.Parallel()
	plain := redistest.Start(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	now := time.Now()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour),
		NotAfter: now.Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	secret, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
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
	l, err := net.Listen("tcp", host+":0")
	require.NoError(t, err)
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

	_, err = pubsub.Dial(t.Context(), rueidis.ClientOption{InitAddress: []string{secured}}, pubsub.Options{})
	require.ErrorIs(t, err, errs.ErrInvalidOption)
	require.ErrorContains(t, err, "TLSConfig is nil, and the server at "+secured+" speaks TLS")

	o := rueidis.ClientOption{InitAddress: []string{plain.Addr()}, TLSConfig: &tls.Config{InsecureSkipVerify: true}}
	o.Dialer.Timeout = 300 * time.Millisecond
	_, err = pubsub.Dial(t.Context(), o, pubsub.Options{})
	require.ErrorIs(t, err, errs.ErrInvalidOption)
	require.ErrorContains(t, err, "TLSConfig is set, and the server at "+plain.Addr()+" speaks without TLS")

	_, err = pubsub.Dial(t.Context(), rueidis.ClientOption{InitAddress: []string{secured}, TLSConfig: &tls.Config{}},
		pubsub.Options{})
	require.ErrorContains(t, err, "see TLSConfig", "a certificate that nobody has signed")
	require.NotErrorIs(t, err, errs.ErrUnavailable)
	h, err := pubsub.Dial(t.Context(), rueidis.ClientOption{InitAddress: []string{secured},
		TLSConfig: &tls.Config{InsecureSkipVerify: true}}, pubsub.Options{})
	require.NoError(t, err)
	require.NoError(t, h.Close(context.Background()))

	gone, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	gone.Close()
	_, err = pubsub.Dial(t.Context(),
		rueidis.ClientOption{InitAddress: []string{gone.Addr().String()}, TLSConfig: &tls.Config{}},
		pubsub.Options{})
	require.ErrorIs(t, err, errs.ErrUnavailable, "nobody is there")
}

func TestDialWithOptionsOfTheHub(t *testing.T) {
	s := redistest.Start(t)
	var log strings.Builder
	h, err := pubsub.Dial(t.Context(), s.Option(), pubsub.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	sub := subscribe(t, h, "c")
	c := s.Client(t)
	require.NoError(t, c.Do(within(t), c.B().Arbitrary("CLIENT", "KILL", "TYPE", "pubsub").Build()).Error())
	require.True(t, next(t, sub).Gap)
	redistest.Eventually(t, 10*time.Second, "subscribed again", sub.Live)
	require.NoError(t, h.Close(context.Background()))
	require.Contains(t, log.String(), "subscriptions lost")
	_, err = pubsub.Dial(t.Context(), s.Option(), pubsub.Options{Grace: -1})
	require.ErrorIs(t, err, errs.ErrInvalidOption)
}

// heldOpen is a client whose Close lasts until it may end.
type heldOpen struct {
	rueidis.Client
	may, closed chan struct{}
}

func (c heldOpen) Close() {
	<-c.may
	c.Client.Close()
	close(c.closed)
}

func TestDialMakesItsClientWithTheConstructorThatIsGiven(t *testing.T) {
	s := redistest.Embedded(t)
	held := heldOpen{may: make(chan struct{}), closed: make(chan struct{})}
	h, err := pubsub.Dial(t.Context(), s.Option(),
		pubsub.Options{NewClient: func(o rueidis.ClientOption) (rueidis.Client, error) {
			var err error
			held.Client, err = rueidis.NewClient(o)
			return held, err
		}})
	require.NoError(t, err)
	require.IsType(t, heldOpen{}, h.Client())
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("patience is over"))
	err = h.Close(ctx)
	require.ErrorContains(t, err, "patience is over", "the client is not closed yet")
	require.Equal(t, err, h.Close(ctx), "the result of the first")
	close(held.may)
	<-held.closed

	_, err = pubsub.Dial(t.Context(), s.Option(),
		pubsub.Options{NewClient: func(rueidis.ClientOption) (rueidis.Client, error) {
			return nil, errors.New("no client")
		}})
	require.ErrorContains(t, err, "no client")
}

func TestADiscardedChannelGoesAtOnceAndItsConnectionLater(t *testing.T) {
	redistest.SkipShort(t)
	t.Parallel()
	s := redistest.Start(t)
	c := s.Client(t)
	h := newHub(t, c, pubsub.Options{Grace: time.Second})
	for range 20 { // the client makes all connections that it uses for calls
		_, err := h.Publish(within(t), "none", "")
		require.NoError(t, err)
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
	_, err := h.Publish(within(t), "kept", "heard")
	require.NoError(t, err)
	require.Equal(t, "heard", next(t, kept).Payload, "somebody else has it still")
	kept.Discard()
	redistest.Eventually(t, 20*time.Second, "the idle connection is closed", func() bool {
		return connections(t, c) <= before
	})
	info, err := c.Do(within(t), c.B().Info().Section("stats").Build()).ToString()
	require.NoError(t, err)
	var opened int
	for line := range strings.Lines(info) {
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), "total_connections_received:"); ok {
			opened, _ = strconv.Atoi(n)
		}
	}
	require.Less(t, opened, 15, "not one for each channel")
}

func TestAChannelThatIsWantedAgainAtOnceIsConfirmedAnew(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		h := newHub(t, s.Client(t), pubsub.Options{})
		for i := range 100 {
			subscribe(t, h, "c").Discard()
			again := subscribe(t, h, "c")
			n, err := h.Publish(within(t), "c", strconv.Itoa(i))
			require.NoError(t, err)
			require.EqualValues(t, 1, n)
			require.Equal(t, pubsub.Message{Payload: strconv.Itoa(i)}, next(t, again))
			again.Discard()
		}
	})
}

func TestAChannelWantedAgainDuringAnothersCallIsConfirmedAnew(t *testing.T) {
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
		_, err := h.Publish(within(t), "c", "heard")
		require.NoError(t, err)
		return next(t, again).Payload == "heard"
	})
}

// A connection ends when nothing is wanted on it; what is wanted just then is subscribed on the next, and has lost
// nothing.
func TestAConnectionThatIsDoneWithIsNoLoss(t *testing.T) {
	t.Parallel()
	var losses atomic.Int32
	h := newHub(t, redistest.Start(t).Client(t), pubsub.Options{Grace: time.Nanosecond, Observer: func(e pubsub.Event) {
		if e.Kind == pubsub.EventLost {
			losses.Add(1)
		}
	}})
	for i := range 100 {
		s := subscribe(t, h, "c")
		s.Close()
		time.Sleep(time.Duration(i%30) * 20 * time.Microsecond)
	}
	require.Zero(t, losses.Load())
}

// Scripts tell by it which listeners are Redisson's (lua/listeners.lua of package script).
func TestAListenerOnAChannelOfRedissonsHasAMark(t *testing.T) {
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
		n, err := h.Publish(within(t), channel, "1")
		require.NoError(t, err)
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
		o := redistest.Start(t).Option()
		o.AlwaysRESP2, o.DisableCache = true, true
		c, err := rueidis.NewClient(o)
		require.NoError(t, err)
		t.Cleanup(c.Close)
		marked(t, c)
	})
	t.Run("after the connection was lost", func(t *testing.T) {
		s := redistest.Start(t)
		c := s.Client(t)
		h := newHub(t, s.Client(t), pubsub.Options{})
		sub := subscribe(t, h, channel)
		require.NoError(t, c.Do(within(t), c.B().Arbitrary("CLIENT", "KILL", "TYPE", "pubsub").Build()).Error())
		require.True(t, next(t, sub).Gap)
		redistest.Eventually(t, 10*time.Second, "both are back", func() bool { return counts(t, c) == [2]int64{1, 1} })
	})
	t.Run("unless the user may have none", func(t *testing.T) {
		s := redistest.Start(t)
		admin := s.Client(t)
		require.NoError(t, admin.Do(within(t),
			admin.B().Arbitrary("ACL", "SETUSER", "app", "on", ">pw", "+@all", "~*", "resetchannels",
				"&redisson_rwlock:*").Build()).Error())
		o := s.Option()
		o.Username, o.Password = "app", "pw"
		c, err := rueidis.NewClient(o)
		require.NoError(t, err)
		t.Cleanup(c.Close)
		var book redistest.Logbook
		h := newHub(t, c, pubsub.Options{Logger: book.Logger(), Grace: time.Millisecond})
		subscribe(t, h, channel).Close()
		require.Zero(t, book.Count("refused"))
		redistest.Eventually(t, 10*time.Second, "left", func() bool { return counts(t, admin) == [2]int64{} })
		subscribe(t, h, channel)
		require.Equal(t, [2]int64{1, 0}, counts(t, admin))
		_, err = h.Subscribe(within(t), "redisson_sc:{s}")
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
			subscribe(t, h, channel)
			redistest.Eventually(t, 10*time.Second, "both at one node", func() bool {
				for _, node := range c.Nodes() {
					n, err := node.Do(within(t),
						node.B().PubsubShardnumsub().Channel(channel, keyname.Mark(channel)).Build()).AsIntMap()
					require.NoError(t, err)
					if n[channel] == 1 && n[keyname.Mark(channel)] == 1 {
						return true
					}
				}
				return false
			})
		}
	})
}
