package simulation

import (
	"bytes"
	"strconv"
	"strings"
	"time"
)

// Wire is one thing that was seen of a client, in the order in which it was: a script that a server ran, its reply that
// the client read, a message that it read, or what one of its holders says. Plan.Wired has it kept.
type Wire struct {
	Client  string
	At      time.Time
	Server  time.Time // the same, by the server's clock
	Sent    time.Time // when the request left the client
	Script  string    // its first line; "": it is not a script
	Args    []string  // keys, and what follows them
	Keys    int
	Reply   []int64  // the integers of a reply
	Words   []string // and all of it
	Read    bool     // the client reads the reply; otherwise the server has run the script
	Message string   // what was published
	// Holds is the name of what a holder has, and Until is until when, as it says.
	Holds string
	Until time.Time
	// What happens to a server: it loses all; a replica has a copy; and that copy takes its place.
	Flush, Copied, Back bool
}

// asked is a request whose reply is wanted on the wire.
type asked struct {
	script string // its text, or its sum
	args   []string
	keys   int
	sent   time.Time
}

// header is what a call of a script asks, or nil. Which script that is, is known when it has run: another client may
// bring its text to the server meanwhile.
func (n *node) header(words []string) *asked {
	if len(words) == 0 || !asksScript(strings.ToUpper(words[0]), words[1:]) {
		return nil
	}
	keys, _ := strconv.Atoi(words[2])
	return &asked{script: words[1], args: words[3:], keys: keys, sent: time.Now()}
}

// asksScript reports whether a command runs a script.
func asksScript(cmd string, args []string) bool {
	if len(args) < 2 || cmd != "EVALSHA" && cmd != "EVAL" {
		return false
	}
	_, err := strconv.Atoi(args[1])
	return err == nil
}

// first is the first line of a script.
func (n *node) first(script string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if text, ok := n.texts[script]; ok {
		script = text
	}
	line, _, _ := strings.Cut(script, "\n")
	return line
}

// seen keeps what is seen of a reply, on one of its two ends. Called with mu held.
func (l *link) seen(a *asked, frame []byte, read bool) {
	n := l.host.net
	if !n.wired || a == nil || frame[0] == '-' {
		return
	}
	w := Wire{Client: l.host.name, At: time.Now(), Server: l.node.now(), Sent: a.sent,
		Script: l.node.first(a.script),
		Args:   a.args, Keys: a.keys, Read: read}
	for len(frame) > 0 {
		line, rest, _ := bytes.Cut(frame, []byte("\r\n"))
		frame = rest
		v, err := strconv.ParseInt(string(line[1:]), 10, 64)
		switch {
		case err != nil:
			continue
		case line[0] == ':':
			w.Reply = append(w.Reply, v)
			w.Words = append(w.Words, string(line[1:]))
		case line[0] == '$' && v >= 0:
			w.Words = append(w.Words, string(frame[:v]))
			frame = frame[v+2:]
		}
	}
	n.wire = append(n.wire, w)
}

// says keeps until when a holder of a client believes.
func (w *world) says(c *client, object string, until time.Time) {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	if w.net.wired {
		w.net.wire = append(w.net.wire, Wire{Client: c.host.name, At: time.Now(), Server: w.nodes[0].now(), Holds: object,
			Until: until})
	}
}

// happens keeps what happens to the first server, which has all but the other votes of a Quorum. Its turn is the
// caller's.
func (w *world) happens(n *node, what Wire) {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	if what.At, what.Server = time.Now(), n.now(); w.net.wired && n == w.nodes[0] {
		w.net.wire = append(w.net.wire, what)
	}
}

// heard keeps a message that the client reads. Called with mu held.
func (l *link) heard(frame []byte) {
	n := l.host.net
	words := strings.Split(strings.TrimSpace(string(frame)), "\r\n")
	if n.wired && len(words) > 2 && strings.HasSuffix(words[2], "message") {
		n.wire = append(n.wire, Wire{Client: l.host.name, At: time.Now(), Server: l.node.now(), Read: true,
			Message: words[len(words)-1]})
	}
}
