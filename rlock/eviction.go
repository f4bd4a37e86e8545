package rlock

import (
	"context"
	"strings"
	"time"
)

// warnOfEviction looks, once in a client's life and beside the first acquisition, whether the server may throw locks away.
func (c *Client) warnOfEviction() {
	if c.evictionAsked.Load() || c.evictionAsked.Swap(true) {
		return
	}
	c.roster.IfOpen(func() { // Close may be waiting for the background already
		c.background.Go(func() {
			if policy := c.evictionPolicy(); policy != "" {
				c.log.Warn("redlatch: the server evicts keys when its memory is full, locks among them; set maxmemory-policy to noeviction", "maxmemory-policy", policy)
			}
		})
	})
}

// evictionPolicy returns the first policy other than noeviction among the nodes, "" if there is none or none may be
// asked. INFO tells it also where CONFIG is forbidden. It is asked on connections of its own: one call beside another
// has rueidis pipeline on that connection from then on, which is slower for a single caller.
func (c *Client) evictionPolicy() string {
	ctx, cancel := context.WithTimeout(c.ctx, evictionTimeout)
	defer cancel()
	for _, node := range c.hub.Client().Nodes() {
		conn, release := node.Dedicate()
		text, err := conn.Do(ctx, conn.B().Info().Section("memory").Build()).ToString()
		conn.Close()
		release()
		if err != nil {
			continue
		}
		for line := range strings.Lines(text) {
			if policy, ok := strings.CutPrefix(strings.TrimSpace(line), "maxmemory_policy:"); ok && policy != "noeviction" {
				return policy
			}
		}
	}
	return ""
}

// evictionTimeout bounds the question.
const evictionTimeout = 5 * time.Second
