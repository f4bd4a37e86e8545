package rlock

import "context"

// Waiting is how many calls stand in the process's line for name.
func (c *Client) Waiting(name string) int { return c.queue.Members(name) }

// Lines is how many names somebody waits for.
func (c *Client) Lines() int { return c.queue.Lines() }

// Owed is how many releases are still owed in the background.
func (c *Client) Owed() int {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return c.sweeper.Settle(ctx)
}
