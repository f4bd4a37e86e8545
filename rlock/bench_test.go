package rlock_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/redistest"
)

// BenchmarkPlainByCommands compares the two scripts of a Plain lock, and its renewal, with commands that newer servers
// have in their place: SET with IFEQ, and DELEX or DELIFEQ. Those see no line and notify nobody, so that they are the
// least that could be sent. Release-commands are an acquisition by script, and a release that also asks in the same
// message whether anyone is in line. They take turns, 200 pairs at a time. Reported are the medians of these windows,
// and the worst, in us a pair, and what the server's processor spent.
func BenchmarkPlainByCommands(b *testing.B) {
	s := redistest.Start(b)
	c, ctx := s.Client(b), context.Background()
	do := func(args ...string) error { return c.Do(ctx, c.B().Arbitrary(args...).Build()).Error() }
	const key, queue, owner = "bench", "redlatch_queue:{bench}", "0e5d0d5e-1111:1"
	const held = "held" // and renewed
	if err := do("SET", held, owner); err != nil {
		b.Fatal(err)
	}
	drop := []string{"DELEX", key, "IFEQ", owner}
	if do(drop...) != nil {
		drop = []string{"DELIFEQ", key, owner}
	}
	if do(drop...) != nil || do("SET", held, owner, "IFEQ", owner, "PX", "30000") != nil {
		b.Skip("the server has neither DELEX nor DELIFEQ, or no SET with IFEQ")
	}
	load := func(name string) string {
		sha, err := c.Do(ctx, c.B().ScriptLoad().Script(source(b, name)).Build()).ToString()
		if err != nil {
			b.Fatal(err)
		}
		return sha
	}
	take, give, renew := load("plain_acquire"), load("plain_release"), load("plain_renew")
	const windows, pairs = 40, 200
	acquire := []string{"EVALSHA", take, "2", key, queue, owner, "30000", "0", "PUBLISH", "redlatch_grant:"}
	of := []struct {
		name string
		do   [][]string // what follows the second is sent with it
	}{
		{"scripts", [][]string{acquire,
			{"EVALSHA", give, "2", key, queue, owner, "redlatch_plain:{bench}", "PUBLISH", "redlatch_grant:", ""}}},
		{"commands", [][]string{{"SET", key, owner, "NX", "PX", "30000"}, drop}},
		{"release-commands", [][]string{acquire, drop, {"EXISTS", queue}}},
		{"renew-script", [][]string{{"EVALSHA", renew, "1", held, owner, "30000"}}},
		{"renew-command", [][]string{{"SET", held, owner, "IFEQ", owner, "PX", "30000"}}},
	}
	for b.Loop() {
		took, spent := make([][]float64, len(of)), make([][]float64, len(of))
		for range windows {
			for i, x := range of {
				before, began := processorOf(b, s), time.Now()
				for range pairs {
					if err := do(x.do[0]...); err != nil {
						b.Fatal(x.name, err)
					}
					var rest rueidis.Commands
					for _, args := range x.do[1:] {
						rest = append(rest, c.B().Arbitrary(args...).Build())
					}
					for _, r := range c.DoMulti(ctx, rest...) {
						if r.Error() != nil {
							b.Fatal(x.name, r.Error())
						}
					}
				}
				took[i] = append(took[i], float64(time.Since(began).Nanoseconds())/1e3/pairs)
				spent[i] = append(spent[i], (processorOf(b, s)-before)/pairs)
			}
		}
		for i, x := range of {
			slices.Sort(took[i])
			slices.Sort(spent[i])
			b.ReportMetric(took[i][windows/2], x.name+"-us")
			b.ReportMetric(took[i][windows-1], x.name+"-worst-us")
			b.ReportMetric(spent[i][windows/2], x.name+"-cpu-us")
		}
		b.Log(redistest.CommandCalls(b, c))
	}
}

// processorOf is what a server has spent of a processor so far, in us.
func processorOf(b *testing.B, s *redistest.Server) (us float64) {
	for line := range strings.Lines(s.Ask(b, "INFO", "cpu")) {
		for _, field := range []string{"used_cpu_sys_main_thread:", "used_cpu_user_main_thread:"} {
			if text, ok := strings.CutPrefix(strings.TrimSpace(line), field); ok {
				seconds, err := strconv.ParseFloat(text, 64)
				if err != nil {
					b.Fatal(err)
				}
				us += seconds * 1e6
			}
		}
	}
	return us
}
