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

// link is one connection for subscriptions, and the goroutine that subscribes to and unsubscribes from channels on it
// until they are the wanted channels. The fields are guarded by Hub.mu.
//
// The connection is dedicated, not shared with commands. On a shared connection a subscriber that is slow, or calls the
// client from a callback, stops the replies behind it. With Dedicate rueidis reports a lost connection on a channel;
// its Receive would resubscribe in silence and hide the gap.
type link struct {
	hub           *Hub
	addr          string
	wakeup        chan struct{}
	wanted        map[string]*topicState // topics by channel
	requested     map[string]*topicState // topics for which SUBSCRIBE was sent on the current connection
	unsubscribing map[string]int         // the numbers of UNSUBSCRIBEs by channel that were sent and not confirmed
	keepUntil     time.Time              // the connection is kept until then although nothing is wanted

	answersPing       bool // the server has answered a PING on the connection of serve; used by run and serve alone
	hasCountedChannel bool // a channel was confirmed whose subscribers scripts count
}

func (l *link) wake() { signal(l.wakeup) }

// signal wakes the goroutine that receives from wakeup, or ends its next wait at once.
func signal(wakeup chan<- struct{}) {
	select {
	case wakeup <- struct{}{}:
	default:
	}
}

// sendTimeout bounds each exchange of commands and replies on a link's connection.
const sendTimeout = 5 * time.Second

// maxSilentFailures is the number of failures in a row after which a server counts as refusing SUBSCRIBE. A proxy may
// close the connection, or stay silent, at a command that it does not know. An outage has the same effect at any
// command. So after a failure a PING is sent first, and a failure counts only if the PING was answered. The next
// confirmation ends the lack.
const maxSilentFailures = 3

func (l *link) run() {
	hub := l.hub
	defer hub.wg.Done()
	silentFailures := 0
	for failures := 0; ; failures++ {
		confirmed, err := l.serve(failures > 0)
		if silentFailures++; confirmed || err == nil || !l.answersPing || hub.ctx.Err() != nil {
			silentFailures = 0
		} else if silentFailures == maxSilentFailures {
			hub.opts.lacks.Add(errs.LackSubscribe, err)
		}
		lost := l.markDisconnected(err)
		if confirmed || err == nil {
			failures = 0
		}
		if lost {
			if failures == 0 {
				hub.opts.Logger.Warn("redlatch: subscriptions lost, subscribing again", "node", l.addr, "error", err)
			}
			pause := script.Backoff(failures) * 4
			if hub.cluster && !confirmed {
				// the other nodes go on naming a removed node for a while, and each of their replies would start a new link to it
				// at once
				pause = script.Backoff(7)
			}
			script.Pause(hub.ctx, pause)
		}
		if l.removeIfIdle() {
			return
		}
	}
}

// markDisconnected marks all topics as down after the connection has ended with err. It reports whether subscriptions
// were lost.
func (l *link) markDisconnected(err error) (lost bool) {
	hub := l.hub
	hub.mu.Lock()
	defer hub.unlock()
	clear(l.requested)
	clear(l.unsubscribing)
	for _, topic := range l.wanted {
		topic.markDown()
	}
	lost = err != nil && len(l.wanted) > 0 && !hub.closed // without an error nothing was wanted at the end
	hub.outages.lossLogged = hub.outages.lossLogged || lost
	if lost {
		hub.observe(errs.Event{Kind: errs.EventLost, Name: l.addr, Err: err})
	}
	return lost
}

// removeIfIdle removes the link from the hub if it serves no topic any more or the hub is closed, and reports whether
// it did. It checks and removes under one mu, so a topic that is routed to this node afterwards starts a new link.
func (l *link) removeIfIdle() bool {
	hub := l.hub
	hub.mu.Lock()
	defer hub.unlock()
	if hub.cluster && !hub.closed {
		l.rerouteTopics()
	}
	if len(l.wanted) > 0 && !hub.closed {
		return false
	}
	delete(hub.routes.links, l.addr)
	return true
}

// rerouteTopics routes the link's topics anew, because its node may no longer serve them. The reply to the next
// SUBSCRIBE names the right node. Called with mu held.
func (l *link) rerouteTopics() {
	if l.addr == "" {
		return
	}
	hub := l.hub
	for slot, addr := range hub.routes.nodes {
		if addr == l.addr {
			delete(hub.routes.nodes, slot)
		}
	}
	moving := l.wanted
	l.wanted = map[string]*topicState{}
	for _, topic := range moving {
		hub.route(topic)
	}
}

// serve opens one connection and uses it until it is lost, the hub closes or nothing is wanted any more. It reports
// whether the server confirmed a subscription on it. With ping it sends a PING first.
func (l *link) serve(ping bool) (confirmed bool, err error) {
	hub := l.hub
	l.answersPing = false
	client, err := l.nodeClient()
	if err != nil {
		return false, err
	}
	conn, release := client.Dedicate()
	defer func() {
		conn.Close() // in the pool, the connection would keep its subscriptions
		release()
	}()
	up := make(chan struct{}, 1) // a subscription was confirmed
	connLost := conn.SetPubSubHooks(l.hooks(up))
	if ping {
		if err := l.ping(conn); err != nil {
			return false, err
		}
	}
	retry := time.NewTimer(time.Hour)
	defer retry.Stop()
	for {
		done, retryIn, err := l.reconcile(conn)
		if err != nil {
			return !errors.Is(err, errReplica) && (confirmed || len(up) > 0), err
		}
		if done {
			return confirmed || len(up) > 0, nil
		}
		retry.Reset(retryIn)
		select {
		case <-l.wakeup:
		case <-retry.C:
		case <-up:
			confirmed = true
			l.checkNumsubOnce()
		case err, ok := <-connLost:
			if !ok || err == nil {
				err = errors.New("connection closed")
			}
			return confirmed || len(up) > 0, err
		case <-hub.ctx.Done():
			return confirmed, hub.ctx.Err()
		}
	}
}

// hooks returns the hooks of a connection. up receives a value when the server has confirmed a subscription.
func (l *link) hooks(up chan<- struct{}) rueidis.PubSubHooks {
	return rueidis.PubSubHooks{OnMessage: l.onMessage, OnSubscription: func(event rueidis.PubSubSubscription) {
		if l.onSubscription(event) {
			signal(up)
		}
	}}
}

// ping sends a PING on a new connection, and records that the server answered.
func (l *link) ping(conn rueidis.DedicatedClient) error {
	ctx, cancel := context.WithTimeout(l.hub.ctx, sendTimeout)
	defer cancel()
	if err := conn.Do(ctx, conn.B().Ping().Build()).NonRedisError(); err != nil {
		return err
	}
	l.answersPing = true
	return nil
}

// nodeClient returns the client of the link's node in a Cluster, and otherwise the hub's client.
func (l *link) nodeClient() (rueidis.Client, error) {
	hubClient := l.hub.client
	switch {
	case l.addr != "":
		node, ok := hubClient.Nodes()[l.addr]
		if !ok {
			return nil, fmt.Errorf("the client knows no node %s", l.addr)
		}
		return node, nil
	case !l.hub.cluster:
		return hubClient, nil
	}
	err := errReplica
	for _, node := range hubClient.Nodes() { // any primary will do: its MOVED names the right node
		if err = l.hub.checkPrimary(node); err == nil {
			return node, nil
		}
	}
	return nil, err
}

// errReplica is the error of a node that is a replica. A replica passes on the messages that its primary publishes, but
// the primary does not count its subscribers. By that count a script distinguishes processes that are alive from
// processes that are not (TestCluster_Channels_AreSubscribedAtPrimaries).
var errReplica = errors.New("the node is a replica")

// checkRole returns errReplica if the reply to INFO replication is a replica's, and nil if the user may not send INFO.
func (h *Hub) checkRole(info rueidis.RedisResult) error {
	text, err := info.ToString()
	if _, answered := rueidis.IsRedisErr(err); answered {
		if script.Unsupported(err) {
			h.opts.lacks.Add(errs.LackInfo, err)
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
	ctx, cancel := context.WithTimeout(h.ctx, sendTimeout/5) // there are other nodes to check
	defer cancel()
	return h.checkRole(node.Do(ctx, node.B().Info().Section("replication").Build()))
}

// checkNumsubOnce starts checkNumsub once in the hub's life, when the first channel is confirmed whose subscribers
// scripts count. In a process without waiters for locks or permits no script counts them, and the user needs no right
// to PUBSUB.
func (l *link) checkNumsubOnce() {
	hub := l.hub
	hub.mu.Lock()
	counted := l.hasCountedChannel
	hub.unlock()
	if counted {
		hub.numsubChecked.Do(func() { hub.wg.Go(hub.checkNumsub) })
	}
}

// checkNumsub records the lack of PUBSUB NUMSUB if the server refuses it. Scripts that hand over send the command, and
// hide a refusal from their callers. The check uses a connection of its own (see script.Forgetful). A proxy may refuse
// the command to clients and not to scripts: then Stats.Lacks names it although nothing is lacking.
func (h *Hub) checkNumsub() {
	ctx, cancel := context.WithTimeout(h.ctx, sendTimeout)
	defer cancel()
	subcommand := "NUMSUB"
	if h.cluster {
		subcommand = "SHARDNUMSUB"
	}
	for _, node := range h.client.Nodes() { // the first node will do
		conn, release := node.Dedicate()
		err := conn.Do(ctx, conn.B().Arbitrary("PUBSUB", subcommand).Build()).Error()
		conn.Close()
		release()
		if script.Unsupported(err) {
			h.opts.lacks.Add(errs.LackNumsub, err)
		}
		return
	}
}

// reconcile subscribes to the wanted topics, and unsubscribes from all others. done reports that no topic is wanted or
// subscribed, so that the connection may be closed. Otherwise reconcile is called again after retryIn at the latest.
func (l *link) reconcile(conn rueidis.DedicatedClient) (done bool, retryIn time.Duration, err error) {
	subscribeLater, err := l.subscribe(conn)
	if err != nil {
		return false, 0, err
	}
	unsubscribeLater, err := l.unsubscribe(conn)
	if err != nil {
		return false, 0, err
	}
	l.hub.mu.Lock()
	defer l.hub.unlock()
	switch {
	case len(l.wanted) == 0 && len(l.requested) == 0:
		retryIn = time.Until(l.keepUntil)
		return retryIn <= 0, retryIn, nil
	case subscribeLater || unsubscribeLater:
		return false, time.Second, nil
	}
	return false, time.Hour, nil
}

// subscribe sends SUBSCRIBE for wanted topics, and reports whether to repeat it later for some of them.
func (l *link) subscribe(conn rueidis.DedicatedClient) (again bool, err error) {
	hub := l.hub
	hub.mu.Lock()
	var toSubscribe [][]string // the channels of each topic
	for name, topic := range l.wanted {
		// Compared by topic, not by name. A channel that was dropped and wanted again since the last reconcile is another
		// topic, which waits for a confirmation of its own: if it counted as subscribed, it would wait forever. The server
		// confirms a second SUBSCRIBE like the first (TestDiscard_WantedAgainAtOnce_IsConfirmedAnew).
		if l.requested[name] != topic {
			toSubscribe = append(toSubscribe, topic.channels())
			l.requested[name] = topic
		}
	}
	hub.unlock()
	if len(toSubscribe) == 0 {
		return false, nil
	}
	// One command for each topic, pipelined: the server refuses a command as a whole, and a channel that cannot be
	// subscribed (ACL, moved slot) must not affect the others (TestSubscribe_Refused_SaysWhyAndIsNotRemembered).
	cmds := make([]rueidis.Completed, 0, len(toSubscribe))
	for _, channels := range toSubscribe {
		if hub.cluster {
			cmds = append(cmds, conn.B().Ssubscribe().Channel(channels...).Build())
		} else {
			cmds = append(cmds, conn.B().Subscribe().Channel(channels...).Build())
		}
	}
	ctx, cancel := context.WithTimeout(hub.ctx, sendTimeout)
	defer cancel()
	replies := conn.DoMulti(ctx, cmds...)
	if hub.client.Mode() != rueidis.ClientModeStandalone {
		// Checked after the subscriptions stand: a primary that becomes a replica later ends them, or the connection. Not
		// sent in the same call, which rueidis refuses in RESP2.
		if err := hub.checkRole(conn.Do(ctx, conn.B().Info().Section("replication").Build())); err != nil {
			return false, err
		}
	}
	for i, reply := range replies {
		if refusal, err := refusalOf(reply); err != nil {
			return false, err
		} else if channels := toSubscribe[i]; refusal != nil && l.handleRefusal(channels[len(channels)-1], refusal) {
			again = true
		}
	}
	return again, nil
}

// refusalOf returns the server's refusal of a command, or nil. err is not nil if the server did not answer.
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

// unsubscribe sends UNSUBSCRIBE for topics that are no longer wanted. It reports kept if the server refuses that now,
// so that the topics stay subscribed until a later call.
//
// rueidis (1.0.79) sends a PING after each UNSUBSCRIBE. A server that is busy with a script refuses both. rueidis takes
// the first refusal for the reply to the PING, and panics at the second, on a goroutine of its own
// (TestDiscard_BusyServer_UnsubscribesAfterwards). So a PING is sent first, and its refusal postpones the UNSUBSCRIBE.
// One interleaving remains, a script that becomes too slow within that round trip:
//
//	link                     server                       a script
//	                                                      begins
//	PING ------------------> PONG
//	                                                      busy-reply-threshold, 5 s: the server is busy
//	UNSUBSCRIBE, PING -----> BUSY, BUSY
//
// While a script runs and the server is not busy yet, it answers nothing. So the script must begin after the PONG, and
// the UNSUBSCRIBE must reach the server 5 s later. A user without the right to PING is refused, too; rueidis tolerates
// that refusal.
func (l *link) unsubscribe(conn rueidis.DedicatedClient) (kept bool, err error) {
	hub := l.hub
	if len(l.unwanted(false)) == 0 {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(hub.ctx, sendTimeout)
	defer cancel()
	refusal, err := refusalOf(conn.Do(ctx, conn.B().Ping().Build()))
	if err != nil {
		return false, err
	}
	if refusal != nil && !strings.HasPrefix(refusal.Error(), "NOPERM ") {
		return true, nil
	}
	var cmds []rueidis.Completed
	for _, channels := range l.unwanted(true) { // some may be wanted again by now
		if hub.cluster {
			cmds = append(cmds, conn.B().Sunsubscribe().Channel(channels...).Build())
		} else {
			cmds = append(cmds, conn.B().Unsubscribe().Channel(channels...).Build())
		}
	}
	for _, reply := range conn.DoMulti(ctx, cmds...) {
		if _, err := refusalOf(reply); err != nil {
			return false, err
		}
	}
	return false, nil
}

// unwanted returns the channels of each topic that is subscribed and not wanted. With remove it also records that
// UNSUBSCRIBE is about to be sent for them.
func (l *link) unwanted(remove bool) (found [][]string) {
	l.hub.mu.Lock()
	defer l.hub.unlock()
	for name, topic := range l.requested {
		if l.wanted[name] != nil {
			continue
		}
		found = append(found, topic.channels())
		if remove {
			delete(l.requested, name)
			for _, channel := range topic.channels() {
				l.unsubscribing[channel]++
			}
		}
	}
	return found
}

// handleRefusal records the server's refusal of one channel. It reports whether to send SUBSCRIBE again later.
func (l *link) handleRefusal(name string, err error) bool {
	hub := l.hub
	hub.mu.Lock()
	defer hub.unlock()
	requested, topic := l.requested[name], l.wanted[name]
	delete(l.requested, name)
	if topic == nil {
		return false
	}
	if fields := strings.Fields(err.Error()); hub.cluster && len(fields) == 3 && fields[0] == "MOVED" {
		delete(l.wanted, name)
		hub.routes.nodes[topic.slot] = fields[2]
		hub.route(topic)
		return false
	}
	if topic != requested {
		return false // a newer topic of this name; the next reconcile subscribes to it
	}
	// perhaps only the counting channel is refused
	if len(topic.channels()) > 1 && strings.HasPrefix(err.Error(), "NOPERM") {
		topic.withoutMark = true
		l.wake()
		return false
	}
	hub.observe(errs.Event{Kind: errs.EventRefused, Name: name, Err: err})
	if script.Unsupported(err) {
		hub.opts.lacks.Note(errs.LackSubscribe, err) // without a line: the line below is logged instead
	}
	if !hub.outages.refusalLogged { // logged once, not at every attempt of a program whose user may not subscribe
		hub.outages.refusalLogged, hub.outages.refusedChannel = true, name
		hub.opts.Logger.Warn("redlatch: subscribe refused; waiting calls poll", "channel", name, "error", err)
	}
	if refusal := script.Refused(err); refusal != nil {
		return topic.markRefused(refusal)
	}
	return topic.markRefused(fmt.Errorf("%w: %w", errs.ErrUnavailable, err))
}

// onMessage delivers a message to the subscriptions of its channel. It runs on the connection's reader.
func (l *link) onMessage(message rueidis.PubSubMessage) {
	hub := l.hub
	hub.mu.Lock()
	defer hub.unlock()
	if topic := hub.topics[message.Channel]; topic != nil {
		for sub := range topic.subscriptions {
			sub.push(Message{Payload: message.Message})
		}
	}
}

// onSubscription records a change of the server's subscriptions. It runs on the connection's reader, and reports
// whether the server has confirmed a channel.
func (l *link) onSubscription(event rueidis.PubSubSubscription) (confirmed bool) {
	hub := l.hub
	hub.mu.Lock()
	defer hub.unlock()
	topic := l.wanted[event.Channel]
	switch event.Kind {
	case "subscribe", "ssubscribe":
		// This cannot be a late confirmation of an earlier topic of that name. reconcile waits for the replies to all that it
		// sends before it subscribes to the next topic, and ends the connection if they do not come.
		if topic != nil && l.requested[event.Channel] == topic {
			topic.markLive()
			l.hasCountedChannel = l.hasCountedChannel || keyname.Counted(topic.name)
		}
		return true
	case "unsubscribe", "sunsubscribe":
		if left := l.unsubscribing[event.Channel]; left > 0 { // the reply to our own UNSUBSCRIBE
			if left--; left == 0 {
				delete(l.unsubscribing, event.Channel)
			} else {
				l.unsubscribing[event.Channel] = left
			}
			return false
		}
		// the server ended the subscription by itself: the slot has moved, or the user has lost the right
		delete(l.requested, event.Channel)
		if topic != nil {
			topic.markDown()
			if hub.cluster {
				delete(hub.routes.nodes, topic.slot)
				delete(l.wanted, event.Channel)
				hub.route(topic)
			}
			l.wake()
		}
	}
	return false
}
