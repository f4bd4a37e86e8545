package redistest

import (
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/keyname"
)

// OneAddress starts a proxy in front of a Cluster made by Cluster, as providers have. Clients see one server, and the
// node of its first key runs a call. Calls without a key, and subscriptions, go to the first node. CLUSTER and CLIENT
// TRACKING are refused. Errors of the nodes reach the client unchanged. The proxy ends with the test.
//
// The calls of a connection run one after the other, so that a client gets its replies in order. Transactions are not
// kept together.
func OneAddress(t testing.TB, cluster *Server) *Server {
	t.Helper()
	l, err := Listen()
	if err != nil {
		t.Fatalf("redistest: one address: %v", err)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	ended := false
	keep := func(c net.Conn) bool {
		mu.Lock()
		defer mu.Unlock()
		if ended {
			c.Close()
			return false
		}
		open = append(open, c)
		return true
	}
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			if keep(client) {
				r := &router{addrs: cluster.Addrs, client: client, keep: keep, all: &all, nodes: map[int]*routed{}}
				all.Go(r.run)
			}
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		ended = true
		for _, c := range open {
			c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return &Server{Addrs: []string{l.Addr().String()}, Process: cluster.Process}
}

// router is a connection of a client.
type router struct {
	addrs  []string
	client net.Conn
	keep   func(net.Conn) bool
	all    *sync.WaitGroup
	nodes  map[int]*routed
	hello  []byte // the last HELLO, which other nodes hear before anything else

	write sync.Mutex // of client
}

// routed is the connection of a router to a node.
type routed struct {
	conn    net.Conn
	replies chan []byte // closed when the connection has ended
}

func (r *router) run() {
	defer func() {
		r.client.Close()
		for _, n := range r.nodes {
			n.conn.Close()
		}
	}()
	_ = eachFrame(r.client, r.route) // the client has gone, or a node has
}

// eachFrame reads frames, and calls pass with each, until pass returns false or the connection ends.
func eachFrame(from net.Conn, pass func(frame []byte) bool) error {
	var in []byte
	chunk := make([]byte, 64<<10)
	for {
		n, err := from.Read(chunk)
		if err != nil {
			return err
		}
		in = append(in, chunk[:n]...)
		for size := frameSize(in); size >= 0; size = frameSize(in) {
			if !pass(slices.Clone(in[:size])) {
				return net.ErrClosed
			}
			in = in[size:]
		}
	}
}

// route runs a call on its node, and reports whether the connection goes on.
func (r *router) route(frame []byte) bool {
	w := words(frame)
	if Command("CLUSTER")(w) || Command("CLIENT TRACKING")(w) {
		return r.answer([]byte("-ERR command is not allowed\r\n"))
	}
	n := r.node(nodeOf(w, len(r.addrs)))
	if n == nil {
		return false
	}
	if _, err := n.conn.Write(frame); err != nil {
		return false
	}
	if strings.HasSuffix(strings.ToUpper(w[0]), "SUBSCRIBE") {
		return true // what answers it are pushes, one for each channel
	}
	if Command("HELLO")(w) {
		r.hello = frame
	}
	reply, ok := <-n.replies
	return ok && r.answer(reply)
}

func (r *router) answer(frame []byte) bool {
	r.write.Lock()
	defer r.write.Unlock()
	_, err := r.client.Write(frame)
	return err == nil
}

// node returns the connection to a node; nil if there is none.
func (r *router) node(i int) *routed {
	if n := r.nodes[i]; n != nil {
		return n
	}
	conn, err := net.DialTimeout("tcp", r.addrs[i], 5*time.Second)
	if err != nil || !r.keep(conn) {
		return nil
	}
	n := &routed{conn, make(chan []byte, 1)}
	r.nodes[i] = n
	r.all.Go(func() {
		defer close(n.replies)
		defer r.client.Close()
		_ = eachFrame(conn, func(frame []byte) bool { // it has ended
			if frame[0] == '>' {
				return r.answer(frame)
			}
			n.replies <- frame
			return true
		})
	})
	if r.hello != nil {
		if _, err := conn.Write(r.hello); err != nil {
			return nil
		}
		if _, ok := <-n.replies; !ok {
			return nil
		}
	}
	return n
}

// keyless are the commands without a key that clients of the tests send.
var keyless = []string{"PING", "HELLO", "CLIENT", "INFO", "TIME", "PUBLISH", "PUBSUB", "SCRIPT", "WAIT", "CONFIG",
	"COMMAND", "ROLE", "ECHO", "MULTI", "EXEC", "SUBSCRIBE", "UNSUBSCRIBE", "PSUBSCRIBE", "PUNSUBSCRIBE"}

// nodeOf returns the number of the node, of n nodes, that runs a call.
func nodeOf(words []string, n int) int {
	var key string
	switch command := strings.ToUpper(words[0]); {
	case slices.Contains(keyless, command), len(words) < 2:
		return 0
	case strings.HasPrefix(command, "EVAL"):
		if len(words) < 4 {
			return 0
		}
		key = words[3]
	default:
		key = words[1]
	}
	return partOf(key, n)
}

// partOf returns the number of the part that has a key, if the slots are n equal parts.
func partOf(key string, n int) (i int) {
	for int(keyname.Slot(key)) >= (i+1)*16384/n {
		i++
	}
	return i
}
