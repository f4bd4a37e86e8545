package rlock

import (
	"context"
	"strings"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/script"
)

// warnOfEviction looks, once in a client's life and beside the first acquisition, whether the server may throw locks away.
func (c *Client) warnOfEviction() {
	if c.evictionAsked.Load() || c.evictionAsked.Swap(true) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed { // Close may be waiting for the background already
		return
	}
	c.background.Go(func() {
		if policy := c.evictionPolicy(); policy != "" {
			c.log.Warn("redlatch: the server evicts keys when its memory is full, locks among them; set maxmemory-policy to noeviction", "maxmemory-policy", policy)
		}
	})
}

// evictionPolicy returns the first policy other than noeviction among the nodes, "" if there is none or none may be
// asked. INFO tells it also where CONFIG is forbidden.
func (c *Client) evictionPolicy() string {
	for _, node := range c.hub.Client().Nodes() {
		m, err := script.NewRunner(node, c.opts.CallTimeout).Attempt(context.Background(), script.Call{
			Script: script.Plain("INFO memory"), Keys: []string{"memory"},
			Command: func(b rueidis.Builder) rueidis.Completed { return b.Info().Section("memory").Build() },
		})
		if err != nil {
			continue
		}
		text, _ := m.ToString()
		for line := range strings.Lines(text) {
			if policy, ok := strings.CutPrefix(strings.TrimSpace(line), "maxmemory_policy:"); ok && policy != "noeviction" {
				return policy
			}
		}
	}
	return ""
}
