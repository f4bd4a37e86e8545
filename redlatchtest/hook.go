package redlatchtest

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/alicebob/miniredis/v2/server"
)

// peer is the server's end of a connection. One goroutine serves it; what is below mu is guarded by Server.mu.
type peer struct {
	p         *server.Peer
	elsewhere bool     // of the server's own client, which no fault strikes
	running   bool     // a command of it is being run
	cut       bool     // nothing is heard of it any more
	caching   bool     // the next script's keys are tracked
	last      []string // the call before

	// mu is held while a reply or a push is written: a push in the middle of a reply would be taken for a part of it.
	mu sync.Mutex

	tracked map[string]struct{} // the keys whose changes are sent to it
}

// before is called before every command. It runs the commands of clients itself, and returns true.
//
// miniredis also calls it for each command of a script, on behalf of an unknown peer: these are run as they
// are.
func (s *Server) before(p *server.Peer, cmd string, args ...string) (done bool) {
	c := s.peer(p, cmd, args)
	if c == nil || c.running {
		if !s.srv.IsReadOnlyCommand(cmd) {
			s.mu.Lock()
			s.written = append(s.written, args...)
			s.mu.Unlock()
		}
		return false
	}
	words := append([]string{cmd}, args...)
	switch {
	case c.cut:
		return true
	case cmd == "CLIENT" && s.track(c, args):
		p.WriteOK()
		return true
	case cmd == "INFO" && len(args) == 1 && strings.EqualFold(args[0], "server"):
		// miniredis does not know it, a Quorum asks
		p.WriteBulk(fmt.Sprintf("# Server\r\nrun_id:%p\r\nuptime_in_seconds:86400\r\n", s))
		return true
	case cmd == "WAIT" && len(args) == 2:
		n, _ := strconv.Atoi(args[0])
		if s.strikes(c, c.last, true) != nil {
			n = 0
		}
		p.WriteInt(n)
		return true
	}
	c.last = words
	if f := s.strikes(c, words, false); f != nil && f.strike(c, words) {
		return true
	}
	s.tick()
	s.run(c, words)
	return true
}

// peer returns the connection on which a command came, and nil if it is a script's.
func (s *Server) peer(p *server.Peer, cmd string, args []string) *peer {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.peers[p]
	if c == nil && cmd == "HELLO" { // with which every connection begins
		c = &peer{p: p, elsewhere: slices.Contains(args, elsewhere), tracked: map[string]struct{}{}}
		s.peers[p] = c
		p.OnDisconnect(func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.peers, p)
		})
	}
	return c
}

// run runs a command, and tells those who want to know which keys it has changed.
func (s *Server) run(c *peer, words []string) {
	if c.caching {
		c.caching = false
		// Before the script: what changes the keys after it, must find them here.
		s.mu.Lock()
		for _, key := range keys(words) {
			c.tracked[key] = struct{}{}
		}
		s.mu.Unlock()
	}
	c.mu.Lock()
	c.running = true
	s.srv.Dispatch(c.p, words)
	c.running = false
	c.mu.Unlock()
	s.tell(c)
}

// runUnheard runs a command whose reply is dropped.
func (s *Server) runUnheard(c *peer, words []string) {
	discard := server.NewPeer(bufio.NewWriter(io.Discard))
	discard.Ctx = c.p.Ctx
	s.srv.Dispatch(discard, words)
	s.tell(c)
}

// keys are those of a script's call.
func keys(words []string) []string {
	if len(words) < 3 || words[0] != "EVALSHA" && words[0] != "EVAL" {
		return nil
	}
	n, err := strconv.Atoi(words[2])
	if err != nil || n < 0 || n > len(words)-3 {
		return nil
	}
	return words[3 : 3+n]
}

// track is what miniredis has not: CLIENT TRACKING ON OPTIN NOLOOP and CLIENT CACHING YES, by which a server tells a
// client that a key of its holds was changed. It is false for the rest of CLIENT.
func (s *Server) track(c *peer, args []string) bool {
	if len(args) == 0 {
		return false
	}
	switch strings.ToUpper(args[0]) {
	case "TRACKING":
	case "CACHING":
		c.caching = true
	default:
		return false
	}
	return true
}

// tell sends the invalidations of what was written on c, but to c itself: NOLOOP.
func (s *Server) tell(c *peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.written) == 0 {
		return
	}
	for _, p := range s.peers {
		if p != c {
			s.invalidate(p, func(key string) bool { return slices.Contains(s.written, key) })
		}
	}
	s.written = nil
}

// invalidate tells p that those of its keys may have changed; it gets each once. Called with mu held.
func (s *Server) invalidate(p *peer, changed func(key string) bool) {
	var list []string
	for key := range p.tracked {
		if changed(key) {
			list = append(list, key)
			delete(p.tracked, key)
		}
	}
	if len(list) == 0 || s.ended {
		return
	}
	// On a goroutine of its own: a pipe takes what is written when the other end reads it.
	s.pushes.Go(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.p.Block(func(w *server.Writer) {
			w.WritePushLen(2)
			w.WriteBulk("invalidate")
			w.WriteLen(len(list))
			for _, key := range list {
				w.WriteBulk(key)
			}
		})
		p.p.Flush()
	})
}
