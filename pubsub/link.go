package pubsub

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
)

// link is one connection for subscriptions, and the goroutine that keeps it and brings what is subscribed on it into
// line with what is wanted. The fields are guarded by Hub.mu.
//
// The connection is dedicated, not shared with commands. On a shared one a subscriber that is slow, or calls the client
// from a callback, stops the replies behind it. With Dedicate rueidis reports a lost connection on a channel; its
// Receive would resubscribe in silence and hide the gap.
type link struct {
	hub       *Hub
	addr      string
	wakeup    chan struct{}
	want      map[string]*topic
	have      map[string]*topic // for which SUBSCRIBE was sent on the current connection
	leaving   map[string]int    // how many UNSUBSCRIBEs were sent and not confirmed
	keepUntil time.Time         // until when the connection is kept though nothing is wanted

	answers bool // the server has answered a PING on the connection of serve; of run and serve alone
	counted bool // a channel was confirmed whose listeners scripts count
}

func (l *link) wake() {
	select {
	case l.wakeup <- struct{}{}:
	default:
	}
}

// sendTimeout bounds each exchange on a link's connection.
const sendTimeout = 5 * time.Second

// deafTries is after how many times in a row a server refuses to subscribe that answers, but not this: a proxy may
// close the connection, or stay silent, at a command that it does not know. An outage does that too, at any command; so
// after a failure a PING is sent before, and only what follows its answer counts. The next confirmation says otherwise.
const deafTries = 3

func (l *link) run() {
	h := l.hub
	defer h.wg.Done()
	deaf := 0
	for failures := 0; ; failures++ {
		confirmed, err := l.serve(failures > 0)
		if deaf++; confirmed || err == nil || !l.answers || h.ctx.Err() != nil {
			deaf = 0
		} else if deaf == deafTries {
			h.lacks.Add(errs.LackSubscribe, err)
		}
		lost := l.disconnected(err)
		if confirmed || err == nil {
			failures = 0
		}
		if lost {
			if failures == 0 {
				h.log.Warn("redlatch: subscriptions lost, subscribing again", "node", l.addr, "error", err)
			}
			pause := script.Backoff(failures) * 4
			if h.cluster && !confirmed {
				// a node that is gone stays in the other nodes' answers for a while, and each answer would lead to a new
				// link for it at once
				pause = script.Backoff(7)
			}
			script.Pause(h.ctx, pause)
		}
		if l.removed() {
			return
		}
	}
}

// disconnected marks all topics as down once the connection has ended with err. lost: subscriptions were lost with it.
func (l *link) disconnected(err error) (lost bool) {
	h := l.hub
	h.mu.Lock()
	defer h.unlock()
	clear(l.have)
	clear(l.leaving)
	for _, t := range l.want {
		t.down()
	}
	lost = err != nil && len(l.want) > 0 && !h.closed // without an error nothing was wanted when it ended
	h.lost = h.lost || lost
	if lost {
		h.observe(errs.Event{Kind: errs.EventLost, Name: l.addr, Err: err})
	}
	return lost
}

// removed takes the link out of the hub, and reports so, if it serves no topic any more or the hub is closed. It
// decides under mu together with leaving the map: a topic that is routed to this node afterwards finds a new link.
func (l *link) removed() bool {
	h := l.hub
	h.mu.Lock()
	defer h.unlock()
	if h.cluster && !h.closed {
		l.rehome()
	}
	if len(l.want) > 0 && !h.closed {
		return false
	}
	delete(h.links, l.addr)
	return true
}

// rehome lets go of the topics that this link's node may no longer serve: the answer to the next SUBSCRIBE leads to the
// right node. Called with mu held.
func (l *link) rehome() {
	if l.addr == "" {
		return
	}
	h := l.hub
	for slot, addr := range h.nodes {
		if addr == l.addr {
			delete(h.nodes, slot)
		}
	}
	moving := l.want
	l.want = map[string]*topic{}
	for _, t := range moving {
		h.route(t)
	}
}

// serve opens one connection and works on it until it is lost, the hub closes or nothing is wanted any more. It reports
// whether the server confirmed anything on it. ping: it sends a PING first.
func (l *link) serve(ping bool) (confirmed bool, err error) {
	h := l.hub
	l.answers = false
	client, err := l.node()
	if err != nil {
		return false, err
	}
	conn, release := client.Dedicate()
	defer func() {
		conn.Close() // it must not return to the pool: its subscriptions would go with it
		release()
	}()
	up := make(chan struct{}, 1)
	lost := conn.SetPubSubHooks(l.hooks(up))
	if ping {
		if err := l.ping(conn); err != nil {
			return false, err
		}
	}
	retry := time.NewTimer(time.Hour)
	defer retry.Stop()
	for {
		again, done, err := l.reconcile(conn)
		if err != nil {
			return !errors.Is(err, errReplica) && (confirmed || len(up) > 0), err
		}
		switch keepFor := l.keepFor(); {
		case done && keepFor <= 0:
			return confirmed || len(up) > 0, nil
		case done:
			retry.Reset(keepFor)
		case again:
			retry.Reset(time.Second)
		}
		select {
		case <-l.wakeup:
		case <-retry.C:
		case <-up:
			confirmed = true
			l.probe()
		case err, ok := <-lost:
			if !ok || err == nil {
				err = errors.New("connection closed")
			}
			return confirmed || len(up) > 0, err
		case <-h.ctx.Done():
			return confirmed, h.ctx.Err()
		}
	}
}

// ping finds out whether the server answers on a new connection.
func (l *link) ping(conn rueidis.DedicatedClient) error {
	ctx, cancel := context.WithTimeout(l.hub.ctx, sendTimeout)
	defer cancel()
	if err := conn.Do(ctx, conn.B().Ping().Build()).NonRedisError(); err != nil {
		return err
	}
	l.answers = true
	return nil
}

// hooks take in what the server sends. A confirmed subscription puts a value into up.
func (l *link) hooks(up chan<- struct{}) rueidis.PubSubHooks {
	return rueidis.PubSubHooks{
		OnMessage: l.onMessage,
		OnSubscription: func(s rueidis.PubSubSubscription) {
			if !l.onSubscription(s) {
				return
			}
			select {
			case up <- struct{}{}:
			default:
			}
		},
	}
}

// node is the client whose connection this link opens: its node's in a Cluster, else the hub's.
func (l *link) node() (rueidis.Client, error) {
	all := l.hub.client
	switch {
	case l.addr != "":
		node, ok := all.Nodes()[l.addr]
		if !ok {
			return nil, fmt.Errorf("the client knows no node %s", l.addr)
		}
		return node, nil
	case !l.hub.cluster:
		return all, nil
	}
	err := errReplica
	for _, node := range all.Nodes() { // any primary will do: it answers MOVED with the right one
		if err = l.hub.checkPrimary(node); err == nil {
			return node, nil
		}
	}
	return nil, err
}

// errReplica: a replica passes on what its primary publishes, but the primary does not count its subscribers, and by
// that count a script tells the processes that are there from those that are gone
// (TestCluster_Channels_AreSubscribedAtPrimaries).
var errReplica = errors.New("the node is a replica")

// replica returns errReplica if the answer to INFO replication says so, and nil if the user may not ask.
func (h *Hub) replica(info rueidis.RedisResult) error {
	text, err := info.ToString()
	if _, answered := rueidis.IsRedisErr(err); answered {
		if script.Unsupported(err) {
			h.lacks.Add(errs.LackInfo, err)
		}
		return nil
	}
	if err == nil && strings.Contains(text, "role:slave") {
		return errReplica
	}
	return err
}

// checkPrimary returns nil if node is a primary.
func (h *Hub) checkPrimary(node rueidis.Client) error {
	ctx, cancel := context.WithTimeout(h.ctx, sendTimeout/5) // there are others to ask
	defer cancel()
	return h.replica(node.Do(ctx, node.B().Info().Section("replication").Build()))
}

// probe has countListeners ask, once in the hub's life, when the first channel is confirmed whose listeners scripts
// count. Where nothing waits for a lock or a permit no script asks, and the user needs no right to it.
func (l *link) probe() {
	h := l.hub
	h.mu.Lock()
	counted := l.counted
	h.unlock()
	if counted {
		h.probe.Do(func() { h.wg.Go(h.countListeners) })
	}
}

// countListeners finds out whether the server says how many listen to a channel. Scripts that hand over ask that, and
// hide from their callers where it is refused. It asks on a connection of its own (see script.Forgetful). A proxy may
// refuse it to clients and not to scripts: then more is said to be lacking than is.
func (h *Hub) countListeners() {
	ctx, cancel := context.WithTimeout(h.ctx, sendTimeout)
	defer cancel()
	sub := "NUMSUB"
	if h.cluster {
		sub = "SHARDNUMSUB"
	}
	for _, node := range h.client.Nodes() { // the first will do
		conn, release := node.Dedicate()
		err := conn.Do(ctx, conn.B().Arbitrary("PUBSUB", sub).Build()).Error()
		conn.Close()
		release()
		if script.Unsupported(err) {
			h.lacks.Add(errs.LackNumsub, err)
		}
		return
	}
}

// keepFor is how long the connection is still kept without anything to do.
func (l *link) keepFor() time.Duration {
	l.hub.mu.Lock()
	defer l.hub.unlock()
	return time.Until(l.keepUntil)
}

// reconcile subscribes what is wanted, and unsubscribes what is not. again: something is left for later. done: nothing
// is wanted, so the connection may be closed.
func (l *link) reconcile(conn rueidis.DedicatedClient) (again, done bool, err error) {
	refused, err := l.subscribe(conn)
	if err != nil {
		return false, false, err
	}
	kept, err := l.unsubscribe(conn)
	if err != nil {
		return false, false, err
	}
	l.hub.mu.Lock()
	defer l.hub.unlock()
	return refused || kept, len(l.want) == 0 && len(l.have) == 0, nil
}

// subscribe subscribes what is wanted, and returns whether to ask again for some of it later.
func (l *link) subscribe(conn rueidis.DedicatedClient) (again bool, err error) {
	h := l.hub
	h.mu.Lock()
	var in [][]string // the channels of a topic
	for name, t := range l.want {
		// Compared by topic, not by name. A channel that was dropped and wanted again since the last look is another topic,
		// which waits for a confirmation of its own: taken for subscribed, it would wait forever. The server confirms a
		// second SUBSCRIBE like the first (TestDiscard_WantedAgainAtOnce_IsConfirmedAnew).
		if l.have[name] != t {
			in = append(in, t.channels())
			l.have[name] = t
		}
	}
	h.unlock()
	if len(in) == 0 {
		return false, nil
	}
	// One command for each topic, pipelined: the server refuses a command whole, and one channel out of reach (ACL, moved
	// slot) must not take the others with it (TestSubscribe_Refused_SaysWhyAndIsNotRemembered).
	cmds := make([]rueidis.Completed, 0, len(in))
	for _, channels := range in {
		if h.cluster {
			cmds = append(cmds, conn.B().Ssubscribe().Channel(channels...).Build())
		} else {
			cmds = append(cmds, conn.B().Subscribe().Channel(channels...).Build())
		}
	}
	ctx, cancel := context.WithTimeout(h.ctx, sendTimeout)
	defer cancel()
	answers := conn.DoMulti(ctx, cmds...)
	if h.failsOver {
		// Asked after the subscriptions stand: a primary that becomes a replica later takes them away, or ends the
		// connection. Not asked in the same call, which rueidis refuses in RESP2.
		if err := h.replica(conn.Do(ctx, conn.B().Info().Section("replication").Build())); err != nil {
			return false, err
		}
	}
	for i, res := range answers {
		if no, err := refusalOf(res); err != nil {
			return false, err
		} else if no != nil && l.refused(in[i][len(in[i])-1], no) {
			again = true
		}
	}
	return again, nil
}

// refusalOf returns the server's refusal of a command, if it refused it; err: it did not answer.
func refusalOf(res rueidis.RedisResult) (refusal, err error) {
	err = res.Error()
	if err == nil || rueidis.IsRedisNil(err) {
		return nil, nil
	}
	if _, answered := rueidis.IsRedisErr(err); answered {
		return err, nil
	}
	return nil, err
}

// unsubscribe unsubscribes what is not wanted. kept: the server does not take that now, so it stays subscribed until a
// later call.
//
// rueidis (1.0.79) sends a PING after each UNSUBSCRIBE. A server that is busy with a script refuses both. rueidis takes
// the first refusal for the answer to the PING, and panics at the second, on a goroutine of its own
// (TestDiscard_BusyServer_UnsubscribesAfterwards). So the server is asked before whether it takes a PING.
// What is left is a script that the server takes for too long from within that round trip on:
//
//	link                     server                       a script
//	                                                      begins
//	PING ------------------> PONG
//	                                                      busy-reply-threshold, 5 s: the server is busy
//	UNSUBSCRIBE, PING -----> BUSY, BUSY
//
// While a script runs and the server is not busy yet, it answers nothing: so the script has to begin after the PONG,
// and the UNSUBSCRIBE to reach the server 5 s later.
//
// A user who has no right to PING is refused here, too; rueidis bears that.
func (l *link) unsubscribe(conn rueidis.DedicatedClient) (kept bool, err error) {
	h := l.hub
	if len(l.unwanted(false)) == 0 {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(h.ctx, sendTimeout)
	defer cancel()
	no, err := refusalOf(conn.Do(ctx, conn.B().Ping().Build()))
	if err != nil {
		return false, err
	}
	if no != nil && !strings.HasPrefix(no.Error(), "NOPERM ") {
		return true, nil
	}
	var cmds []rueidis.Completed
	for _, channels := range l.unwanted(true) { // some may be wanted again by now
		if h.cluster {
			cmds = append(cmds, conn.B().Sunsubscribe().Channel(channels...).Build())
		} else {
			cmds = append(cmds, conn.B().Unsubscribe().Channel(channels...).Build())
		}
	}
	for _, res := range conn.DoMulti(ctx, cmds...) {
		if _, err := refusalOf(res); err != nil {
			return false, err
		}
	}
	return false, nil
}

// unwanted returns the channels of each topic that is subscribed and not wanted. now: they are going to be unsubscribed
// now.
func (l *link) unwanted(now bool) (out [][]string) {
	l.hub.mu.Lock()
	defer l.hub.unlock()
	for name, t := range l.have {
		if l.want[name] != nil {
			continue
		}
		out = append(out, t.channels())
		if now {
			delete(l.have, name)
			for _, channel := range t.channels() {
				l.leaving[channel]++
			}
		}
	}
	return out
}

// refused deals with the server's refusal of one channel. It reports whether to try again later.
func (l *link) refused(name string, err error) bool {
	h := l.hub
	h.mu.Lock()
	defer h.unlock()
	asked, t := l.have[name], l.want[name]
	delete(l.have, name)
	if t == nil {
		return false
	}
	if f := strings.Fields(err.Error()); h.cluster && len(f) == 3 && f[0] == "MOVED" {
		delete(l.want, name)
		h.nodes[t.slot] = f[2]
		h.route(t)
		return false
	}
	if t != asked {
		return false // another topic came since: it is asked for at the next look
	}
	if len(t.channels()) > 1 && strings.HasPrefix(err.Error(), "NOPERM") { // perhaps only the mark is refused
		t.bare = true
		l.wake()
		return false
	}
	h.observe(errs.Event{Kind: errs.EventRefused, Name: name, Err: err})
	if script.Unsupported(err) {
		h.lacks.Note(errs.LackSubscribe, err) // the line below is its own
	}
	if !h.refused { // logged once, not at every attempt of a program whose user may not subscribe
		h.refused, h.shunned = true, name
		h.log.Warn("redlatch: subscribe refused; waiting goes on by polling", "channel", name, "error", err)
	}
	if no := script.Refused(err); no != nil {
		return t.refuse(no)
	}
	return t.refuse(fmt.Errorf("%w: %w", errs.ErrUnavailable, err))
}

// onMessage runs on the connection's reader.
func (l *link) onMessage(m rueidis.PubSubMessage) {
	h := l.hub
	h.mu.Lock()
	defer h.unlock()
	if t := h.topics[m.Channel]; t != nil {
		for s := range t.subs {
			s.push(Message{Payload: m.Message})
		}
	}
}

// onSubscription runs on the connection's reader. It reports whether the server has confirmed a channel.
func (l *link) onSubscription(s rueidis.PubSubSubscription) (confirmed bool) {
	h := l.hub
	h.mu.Lock()
	defer h.unlock()
	t := l.want[s.Channel]
	switch s.Kind {
	case "subscribe", "ssubscribe":
		// This is not a late confirmation of an earlier topic of that name: reconcile waits for the answers to all that it
		// sends before it asks for the next topic, and leaves a connection that does not give them.
		if t != nil && l.have[s.Channel] == t {
			t.up()
			l.counted = l.counted || keyname.Counted(t.name)
		}
		return true
	case "unsubscribe", "sunsubscribe":
		if n := l.leaving[s.Channel]; n > 0 { // the answer to a command of ours
			if n--; n == 0 {
				delete(l.leaving, s.Channel)
			} else {
				l.leaving[s.Channel] = n
			}
			return false
		}
		// the server did it unasked: the slot has moved, or the right was taken away
		delete(l.have, s.Channel)
		if t != nil {
			t.down()
			if h.cluster {
				delete(h.nodes, t.slot)
				delete(l.want, s.Channel)
				h.route(t)
			}
			l.wake()
		}
	}
	return false
}
