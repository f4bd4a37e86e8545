// Package clientv3 has what etcd's tests of locks and elections use of its client: a server of redlatch, and keys on
// it.
package clientv3

import (
	"context"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/bench/peers/contracts/rig"
)

// Config says nothing: there is one server.
type Config struct {
	Endpoints          []string
	Username, Password string
}

// Client is a connection.
type Client struct{ Red *redlatch.Client }

// New connects.
func New(Config) (*Client, error) {
	red, err := rig.Open()
	return &Client{red}, err
}

// Close ends the connection.
func (c *Client) Close() error { return c.Red.Close(context.Background()) }

// Ctx is a context.
func (c *Client) Ctx() context.Context { return context.Background() }

// PutResponse is empty.
type PutResponse struct{}

// Put writes a key, which is none of the locks'.
func (c *Client) Put(ctx context.Context, key, value string) (*PutResponse, error) {
	r := c.Red.Hub().Client()
	return &PutResponse{}, r.Do(ctx, r.B().Set().Key(key).Value(value).Build()).Error()
}

// KeyValue is a leader: its key, what it said of itself, and its token.
type KeyValue struct {
	Key, Value     []byte
	CreateRevision int64
}

// GetResponse has a leader.
type GetResponse struct{ Kvs []*KeyValue }

// The kinds of events.
const (
	PUT = iota
	DELETE
)

// Event is a member that came or went.
type Event struct{ Type int }

// WatchResponse has events.
type WatchResponse struct{ Events []*Event }

// WatchChan is etcd's.
type WatchChan <-chan WatchResponse

// OpOption is etcd's.
type OpOption struct{}

// WithPrefix is etcd's.
func WithPrefix() OpOption { return OpOption{} }

// WithRev is etcd's.
func WithRev(int64) OpOption { return OpOption{} }

// Watch tells of everybody who comes to the lock of that name, as its holder or in its queue, or leaves it. It looks
// every few milliseconds, because redlatch has nothing of the kind; it is for these tests.
func (c *Client) Watch(ctx context.Context, name string, _ ...OpOption) WatchChan {
	events := make(chan WatchResponse)
	go func() {
		defer close(events)
		there := 0
		for ctx.Err() == nil {
			state, err := c.Red.Locks().Reentrant(name).Inspect(ctx)
			now := len(state.Holders) + len(state.Waiters)
			for err == nil && now != there {
				e := &Event{Type: PUT}
				if now > there {
					there++
				} else {
					e.Type = DELETE
					there--
				}
				events <- WatchResponse{[]*Event{e}}
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	return events
}
