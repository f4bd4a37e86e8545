package rig

import (
	"context"

	"github.com/redis/rueidis"
)

// Garbled sends another command in place of what Match picks.
type Garbled struct {
	rueidis.Client
	Match   func(args []string) bool
	Instead func(args []string) []string // nil: ECHO Garbage, a reply of another kind than scripts and commands have
}

func (c *Garbled) instead(args []string) rueidis.Completed {
	if c.Instead != nil {
		return c.B().Arbitrary(c.Instead(args)...).Build()
	}
	return c.B().Echo().Message(Garbage).Build()
}

// Do sends cmd, or the other command.
func (c *Garbled) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	if c.Match(cmd.Commands()) {
		cmd = c.instead(cmd.Commands())
	}
	return c.Client.Do(ctx, cmd)
}

// DoMulti is Do for several.
func (c *Garbled) DoMulti(ctx context.Context, cmds ...rueidis.Completed) []rueidis.RedisResult {
	for i, cmd := range cmds {
		if c.Match(cmd.Commands()) {
			cmds[i] = c.instead(cmd.Commands())
		}
	}
	return c.Client.DoMulti(ctx, cmds...)
}

// Garbage is what a Garbled client answers.
const Garbage = "none of the replies there are"
