package simulation

import (
	"bytes"
	"strconv"
	"strings"
	"time"
)

// Wire is one thing that was seen of a client on the wire, in the order in which it was: a script that a server ran,
// its reply that the client read, or a message that it read. Plan.Wired has it kept.
type Wire struct {
	Client  string
	At      time.Time
	Script  string   // its first line; "": it is a message
	Args    []string // keys, and what follows them
	Keys    int
	Reply   []int64
	Read    bool   // the client reads the reply; otherwise the server has run the script
	Message string // what was published
}

// asked is a request whose reply is wanted on the wire.
type asked struct {
	script string
	args   []string
	keys   int
}

// header is what a call of a script asks, or nil.
func (n *node) header(words []string) *asked {
	if len(words) < 3 {
		return nil
	}
	text := words[1]
	if strings.EqualFold(words[0], "EVALSHA") {
		n.mu.Lock()
		text = n.scripts[text]
		n.mu.Unlock()
	} else if !strings.EqualFold(words[0], "EVAL") {
		return nil
	}
	keys, err := strconv.Atoi(words[2])
	if first, _, _ := strings.Cut(text, "\n"); err == nil && first != "" {
		return &asked{first, words[3:], keys}
	}
	return nil
}

// seen keeps what is seen of a reply, on one of its two ends. Called with mu held.
func (l *link) seen(a *asked, frame []byte, read bool) {
	n := l.host.net
	if !n.wired || a == nil || frame[0] == '-' {
		return
	}
	w := Wire{Client: l.host.name, At: time.Now(), Script: a.script, Args: a.args, Keys: a.keys, Read: read}
	for line := range bytes.Lines(frame) {
		if line[0] == ':' {
			v, err := strconv.ParseInt(strings.TrimSpace(string(line[1:])), 10, 64)
			if err != nil {
				return
			}
			w.Reply = append(w.Reply, v)
		}
	}
	n.wire = append(n.wire, w)
}

// heard keeps a message that the client reads. Called with mu held.
func (l *link) heard(frame []byte) {
	n := l.host.net
	words := strings.Split(strings.TrimSpace(string(frame)), "\r\n")
	if n.wired && len(words) > 2 && strings.HasSuffix(words[2], "message") {
		n.wire = append(n.wire, Wire{Client: l.host.name, At: time.Now(), Read: true, Message: words[len(words)-1]})
	}
}
