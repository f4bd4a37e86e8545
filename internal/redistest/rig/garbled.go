package rig

import (
	"context"

	"github.com/redis/rueidis"
)

// Garbled answers what Match picks with a text instead: a reply of another kind than scripts and commands have.
type Garbled struct {
	rueidis.Client
	Match func(args []string) bool
}

// Do sends cmd, or has Garbage said instead.
func (c *Garbled) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	if c.Match(cmd.Commands()) {
		cmd = c.B().Echo().Message(Garbage).Build()
	}
	return c.Client.Do(ctx, cmd)
}

// DoMulti is Do for several.
func (c *Garbled) DoMulti(ctx context.Context, cmds ...rueidis.Completed) []rueidis.RedisResult {
	for i, cmd := range cmds {
		if c.Match(cmd.Commands()) {
			cmds[i] = c.B().Echo().Message(Garbage).Build()
		}
	}
	return c.Client.DoMulti(ctx, cmds...)
}

// Garbage is what a Garbled client answers.
const Garbage = "none of the replies there are"
