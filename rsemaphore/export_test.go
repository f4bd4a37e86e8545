package rsemaphore

import (
	"context"
)

// Waiting is how many calls stand in the process's line of that name.
func (c *Client) Waiting(line string) int { return c.waiters.Members(line) }

// Lines is how many names somebody waits for.
func (c *Client) Lines() int { return c.waiters.Census().LocalQueues }

// Refused is for how many semaphores somebody was told that there are not enough permits, and waits.
func (c *Client) Refused() int { return c.waiters.Census().Waiting }

// Owed is how many releases are still owed in the background.
func (c *Client) Owed() int {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return len(c.keeper.Retrier.Drain(ctx))
}

// ID is the connection id, which tells this client from others on the server.
func (c *Client) ID() string { return c.keeper.ID }
