package simulation

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// Mutant is a fault that is planted in the scripts that contain Of, on their way to the server.
type Mutant struct{ Name, Of, Old, New string }

// node is one server: an embedded one, of which the clock runs as it is set.
type node struct {
	name  string
	m     *miniredis.Miniredis
	began time.Time

	// guarded by network.mu:
	down    time.Time // until then it refuses connections
	stalled time.Time // until then it reads nothing

	mu      sync.Mutex
	rate    float64 // of its clock, against the true one
	ahead   time.Duration
	up      time.Time // when it was started last
	life    int
	behind  bool // its replica confirms nothing
	durable bool // there is a replica
	mute    bool // no client may subscribe
	scripts map[string]string
	texts   map[string]string // of all scripts that it was sent, by their sums
	mutant  *Mutant
	granted atomic.Pointer[func(key string)] // nil: no audit wants to know, or not yet
	// turn has what runs a script, until its reply is on the wire. The embedded server lets go of a script before that:
	// of two that run at the same moment, as after a stall, the second's reply would be seen first. nil: nothing is seen.
	turn chan struct{}
}

// takeTurn waits until no script runs whose reply is not on the wire yet.
func (n *node) takeTurn() {
	if n.turn != nil {
		n.turn <- struct{}{}
	}
}

func (n *node) leaveTurn() {
	if n.turn != nil {
		<-n.turn
	}
}

func newNode(name string, rate float64, durable bool, m *Mutant) *node {
	n := &node{name: name, m: miniredis.NewMiniRedis(), began: time.Now(), rate: rate, durable: durable, mutant: m,
		scripts: map[string]string{}, texts: map[string]string{}}
	n.up = n.began.Add(-24 * time.Hour)
	n.m.ClockTTL(true)
	if first, err := n.m.Dial(); err == nil { // which starts it
		_ = first.Close() // it was for the start only
	}
	n.m.Server().SetPreHook(n.before)
	n.tick()
	return n
}

func (n *node) serve(c net.Conn) { n.m.Server().ServeConn(c) }

// ready is when it reads what has arrived. Called with network.mu held.
func (n *node) ready(time.Time) time.Time { return n.stalled }

// tick sets its clock. mu is not held meanwhile: a script that asks for INFO has the embedded server's mutex, and takes
// it.
func (n *node) tick() { n.m.SetTime(n.now()) }

// now is the time by its clock.
func (n *node) now() time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	d := time.Since(n.began)
	return n.began.Add(n.ahead + d + time.Duration(float64(d)*n.rate))
}

// step moves its clock by d. Back, what has an end lasts longer by d, as on a real server, which keeps ends and not
// durations. Nothing else runs meanwhile.
func (n *node) step(d time.Duration) {
	n.tick()
	n.m.Keys() // ends what has ended
	n.mu.Lock()
	n.ahead += d
	n.mu.Unlock()
	n.tick()
	for _, k := range n.m.Keys() {
		if ttl := n.m.TTL(k); d < 0 && ttl > 0 {
			n.m.SetTTL(k, ttl-d)
		}
	}
}

// before answers what the embedded server does not know. It is called for the commands of scripts, too.
func (n *node) before(c *server.Peer, cmd string, args ...string) bool {
	switch {
	case asksScript(cmd, args):
		n.takeTurn() // which answer leaves
		return false
	case cmd == "INFO" && len(args) == 1 && strings.EqualFold(args[0], "server"): // a Quorum asks
		n.mu.Lock()
		up, life := time.Since(n.up), n.life
		n.mu.Unlock()
		c.WriteBulk(fmt.Sprintf("# Server\r\nrun_id:%x\r\nuptime_in_seconds:%d\r\n", sha1.Sum(fmt.Append(nil, n.name, life)),
			int(up.Seconds())))
	case strings.HasSuffix(cmd, "SUBSCRIBE") && n.mute:
		c.WriteError("NOPERM this user has no permissions to access one of the channels used as arguments")
	case cmd == "WAIT":
		n.mu.Lock()
		confirmed := 0
		if n.durable && !n.behind {
			confirmed = 1
		}
		n.mu.Unlock()
		c.WriteInt(confirmed)
	case len(args) > 2 && (cmd == "HSET" || cmd == "SET" || cmd == "ZADD"):
		if granted := n.granted.Load(); granted != nil {
			(*granted)(args[0])
		}
		return false
	default:
		return false
	}
	return true
}

// rewrite puts the mutant's text in place of a script's, and reports whether a script will run: of an EVALSHA that the
// server does not know, the text follows.
func (n *node) rewrite(words []string, frame []byte) ([]byte, bool) {
	if len(words) < 3 {
		return frame, false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch strings.ToUpper(words[0]) {
	case "EVAL":
		sum := sha1.Sum([]byte(words[1]))
		n.scripts[hex.EncodeToString(sum[:])] = words[1]
		n.texts[hex.EncodeToString(sum[:])] = words[1]
		text, changed := n.mutate(words[1])
		if changed {
			words[1] = text
			return frameOf(words), true
		}
		return frame, true
	case "EVALSHA":
		text, known := n.scripts[words[1]]
		if known {
			if text, changed := n.mutate(text); changed {
				return frameOf(append([]string{"EVAL", text}, words[2:]...)), true
			}
		}
		return frame, known
	}
	return frame, false
}

func (n *node) mutate(text string) (string, bool) {
	if n.mutant == nil || !strings.Contains(text, n.mutant.Of) || !strings.Contains(text, n.mutant.Old) {
		return text, false
	}
	return strings.ReplaceAll(text, n.mutant.Old, n.mutant.New), true
}

// forgetScripts is SCRIPT FLUSH.
func (n *node) forgetScripts() {
	n.ask("SCRIPT", "FLUSH")
	n.mu.Lock()
	defer n.mu.Unlock()
	n.scripts = map[string]string{}
}

// restart begins a new life, with the data or without.
func (n *node) restart(empty bool) {
	n.forgetScripts()
	n.mu.Lock()
	n.up = time.Now()
	n.life++
	n.mu.Unlock()
	if empty {
		n.m.FlushAll()
	}
}

// ask runs a command that no client has sent.
func (n *node) ask(words ...string) {
	n.tick()
	w := bufio.NewWriter(io.Discard)
	n.m.Server().Dispatch(server.NewPeer(w), words)
}

// copied is a key as it was.
type copied struct {
	kind   string
	ttl    time.Duration
	text   string
	list   []string
	fields map[string]string
	scores map[string]float64
	stream []miniredis.StreamEntry
}

// image is what was there at one moment.
type image struct {
	at   time.Time
	keys map[string]copied
}

// copy makes an image. Nothing else runs meanwhile.
func (n *node) copy() image {
	n.tick()
	all := image{at: time.Now(), keys: map[string]copied{}}
	for _, k := range n.m.Keys() {
		c := copied{kind: n.m.Type(k), ttl: n.m.TTL(k)}
		switch c.kind {
		case "string":
			c.text, _ = n.m.Get(k)
		case "list":
			list, _ := n.m.List(k)
			c.list = slices.Clone(list) // what it returns is its own
		case "hash":
			c.fields = map[string]string{}
			fields, _ := n.m.HKeys(k)
			for _, f := range fields {
				c.fields[f] = n.m.HGet(k, f)
			}
		case "zset":
			scores, _ := n.m.SortedSet(k)
			c.scores = maps.Clone(scores)
		case "stream":
			stream, _ := n.m.Stream(k)
			c.stream = slices.Clone(stream)
		}
		all.keys[k] = c
	}
	return all
}

// mustCopy panics if a key of an image cannot be written, which an empty server does not refuse.
func mustCopy(err error) {
	if err != nil {
		panic(fmt.Sprintf("simulation: a replica cannot copy: %v", err))
	}
}

// become takes the place of the server: with what was there at the image's time, and no scripts.
func (n *node) become(i image) {
	n.restart(true)
	n.tick()
	gone := time.Since(i.at)
	for k, c := range i.keys {
		if c.ttl > 0 && c.ttl <= gone {
			continue
		}
		switch c.kind {
		case "string":
			mustCopy(n.m.Set(k, c.text))
		case "list":
			_, err := n.m.Push(k, c.list...)
			mustCopy(err)
		case "hash":
			for f, v := range c.fields {
				n.m.HSet(k, f, v)
			}
		case "zset":
			for member, score := range c.scores {
				_, err := n.m.ZAdd(k, score, member)
				mustCopy(err)
			}
		case "stream": // one that was emptied is as good as none
			for _, e := range c.stream {
				_, err := n.m.XAdd(k, e.ID, e.Values)
				mustCopy(err)
			}
		default:
			panic("simulation: a replica cannot copy a " + c.kind)
		}
		if c.ttl > 0 {
			n.m.SetTTL(k, c.ttl-gone)
		}
	}
}

// left are the keys that are there, with how long they last; 0: without end.
func (n *node) left() map[string]time.Duration {
	n.tick()
	keys := map[string]time.Duration{}
	for _, k := range n.m.Keys() {
		keys[k] = n.m.TTL(k)
	}
	return keys
}

// channels are the subscriptions.
func (n *node) channels() string {
	var b bytes.Buffer
	for _, c := range n.m.PubSubChannels("*") {
		fmt.Fprintf(&b, " %s", c)
	}
	return b.String()
}
