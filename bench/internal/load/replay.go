package load

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/rueidis"
)

// Recorder keeps what a client sends, so that it can be sent again by a client that does nothing else: the floor
// under the one that composed it.
type Recorder struct {
	mu    sync.Mutex
	calls [][]string // in the order sent, on whatever connection
	err   error
}

// Option adds the recording to a client's configuration.
func (r *Recorder) Option(o rueidis.ClientOption) rueidis.ClientOption {
	dial := o.DialCtxFn
	if dial == nil {
		dial = func(ctx context.Context, dst string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return d.DialContext(ctx, "tcp", dst)
		}
	}
	o.DialCtxFn = func(ctx context.Context, dst string, d *net.Dialer, t *tls.Config) (net.Conn, error) {
		c, err := dial(ctx, dst, d, t)
		if err != nil {
			return nil, err
		}
		return &recordedConn{Conn: c, to: r}, nil
	}
	return o
}

// Calls returns the commands sent so far whose name, in capitals, is one of names, in the order sent.
func (r *Recorder) Calls(names ...string) ([][]string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out [][]string
	for _, call := range r.calls {
		if contains(names, strings.ToUpper(call[0])) {
			out = append(out, call)
		}
	}
	return out, r.err
}

type recordedConn struct {
	net.Conn
	to   *Recorder
	part []byte // of a command whose end has not been written yet; guarded by to.mu
}

// Write notes before it sends: what is sent because of the reply comes later in the recording, too.
func (c *recordedConn) Write(b []byte) (int, error) {
	c.to.mu.Lock()
	c.part = append(c.part, b...)
	for {
		call, rest, err := cutCall(c.part)
		if err != nil {
			if !errors.Is(err, errShort) {
				c.to.err = err
			}
			break
		}
		c.part = rest
		c.to.calls = append(c.to.calls, call)
	}
	c.to.mu.Unlock()
	return c.Conn.Write(b)
}

var errShort = errors.New("the command is not complete")

// cutCall reads one RESP array of bulk strings, which is what clients send.
func cutCall(b []byte) (call []string, rest []byte, err error) {
	number := func(kind byte) (int, error) {
		line, after, ok := bytes.Cut(b, []byte("\r\n"))
		if !ok {
			return 0, errShort
		}
		if len(line) < 2 || line[0] != kind {
			return 0, fmt.Errorf("recording: %q where %q should start", line, kind)
		}
		b = after
		return strconv.Atoi(string(line[1:]))
	}
	n, err := number('*')
	if err != nil {
		return nil, nil, err
	}
	if n < 1 {
		return nil, nil, fmt.Errorf("recording: a command of %d words", n)
	}
	for range n {
		size, err := number('$')
		if err != nil {
			return nil, nil, err
		}
		if len(b) < size+2 {
			return nil, nil, errShort
		}
		call, b = append(call, string(b[:size])), b[size+2:]
	}
	return call, b, nil
}

// Replay returns what sends the i-th of the recorded script calls again through c. name, if not empty, takes the place
// of the name that was recorded, so that several goroutines can replay one recording on locks of their own.
func Replay(c rueidis.Client, calls [][]string, recorded, name string) func(ctx context.Context, i int) error {
	mine := make([][]string, len(calls))
	for i, call := range calls {
		mine[i] = make([]string, len(call))
		for j, word := range call {
			mine[i][j] = word
			if name != "" && j > 1 { // not the command, nor its script
				mine[i][j] = strings.ReplaceAll(word, recorded, name)
			}
		}
	}
	return func(ctx context.Context, i int) error {
		call := mine[i]
		n, err := strconv.Atoi(call[2])
		if err != nil || len(call) < 3+n {
			return fmt.Errorf("recorded call %q is not a script call", call)
		}
		return c.Do(ctx, c.B().Evalsha().Sha1(call[1]).Numkeys(int64(n)).Key(call[3:3+n]...).Arg(call[3+n:]...).Build()).
			Error()
	}
}
