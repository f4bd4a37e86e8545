package pubsub

import "github.com/redis/rueidis"

// Hub is being built.
type Hub struct{ client rueidis.Client }

// Options of a hub.
type Options struct{}

// NewHub makes a hub on a client.
func NewHub(c rueidis.Client, o Options) (*Hub, error) { return &Hub{client: c}, nil }

// Client is the client the hub was made on.
func (h *Hub) Client() rueidis.Client { return h.client }

// Close ends the hub.
func (h *Hub) Close() error { return nil }
