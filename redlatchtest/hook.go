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

// peer is the server's end of a connection. One goroutine serves it; tracked is guarded by Server.mu.
type peer struct {
	p         *server.Peer
	elsewhere bool     // of the server's own client, which no fault strikes
	running   bool     // the server runs a command of the connection
	cut       bool     // the connection's later commands are dropped
	caching   bool     // the next script's keys are tracked
	last      []string // the previous call

	// mu is held while a reply or a push is written, because a client takes a push inside a reply for a part of the reply.
	mu sync.Mutex

	tracked map[string]struct{} // keys whose changes the connection is told
}

// before is called before every command. For a client's command, before runs the command itself and returns true.
//
// miniredis also calls before for each command of a script, with an unknown peer. miniredis runs these commands.
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
		// A Quorum asks for the section, and miniredis does not have it.
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
	if c == nil && cmd == "HELLO" { // every connection begins with it
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

// run runs a command, and tells the connections that track a key that the command changed it.
func (s *Server) run(c *peer, words []string) {
	if c.caching {
		c.caching = false
		// The keys are tracked before the script runs, so that no later change is missed.
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

// keys returns the keys of a script's call.
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

// track runs CLIENT TRACKING ON OPTIN NOLOOP and CLIENT CACHING YES, which miniredis does not have. With them a server
// tells a client that a key of its holds was changed. track returns false for the other subcommands of CLIENT.
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

// tell sends the invalidations of the keys that c has written to all connections but c (NOLOOP).
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

// invalidate tells p which of its tracked keys may have changed, and tracks them no more. Called with mu held.
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
	// The push has a goroutine of its own, because a write to a pipe waits until the other end reads.
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
