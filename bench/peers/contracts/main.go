// The program contracts runs the tests of other libraries on adapters that are made of redlatch, and prints a table of
// what passes and what differs by design. The tests are taken from the module cache, and from the Go tree, when it
// runs. CONTRIBUTING.md says how.
//
// Files that are not of locks, semaphores, elections and the like are not run: sync's Once, Map and Pool, the backoff
// of redislock, the scripts and error types of redsync, the sessions and transactions of etcd. A test that fails is
// tried again, up to twenty times, because some of these tests allow 10 ms for what they do, which a busy machine
// misses.
//
// What the adapters add: where a peer releases by name or amount, the adapter keeps the handles. A latch stands for
// sync's WaitGroup; Cond is sync's own, on a Mutex that is a locker.Locker. To acquire 0 of x/sync's semaphore asks no
// server, and to acquire more than there is waits for the end of ctx (redlatch refuses both). redislock's token is the
// label of the owner, and a caller that obtains with a token that holds the lock joins that hold (WithOwner); a ttl
// under 10 ms is taken for 10 ms. redsync's Mutex is a Quorum over four or eight embedded servers. An etcd session is a
// client; its Close releases what it holds and then closes the client; a Barrier is a latch, a DoubleBarrier two
// CyclicBarriers.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
)

func main() {
	only := flag.String("only", "", "suites whose names contain `TEXT`")
	full := flag.Bool("full", false, "tests do all that they can: minutes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	all, err := runAll(ctx, *only, *full, os.Stderr)
	fmt.Print(table(all))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// runAll runs the suites, four at a time: they wait, mostly. One whose tests cannot be had is skipped, with a line.
func runAll(ctx context.Context, only string, full bool, log io.Writer) (all []*outcome, err error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	places := make(chan struct{}, 4)
	lines := writer(func(p []byte) { mu.Lock(); defer mu.Unlock(); log.Write(p) })
	for i := range suites {
		s := &suites[i]
		if !strings.Contains(s.name, only) {
			continue
		}
		wg.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			o, failed := s.run(ctx, full, lines)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(failed, errNoModule):
				fmt.Fprintf(log, "%s: skipped: %v\n", s.name, failed)
			case failed != nil:
				err = errors.Join(err, failed)
			default:
				all = append(all, o)
			}
		})
	}
	wg.Wait()
	slices.SortFunc(all, func(a, b *outcome) int {
		return slices.IndexFunc(suites, func(s suite) bool {
			return s.name == a.name
		}) - slices.IndexFunc(suites, func(s suite) bool { return s.name == b.name })
	})
	return all, err
}

type writer func([]byte)

func (w writer) Write(p []byte) (int, error) { w(p); return len(p), nil }

// table is Markdown.
func table(all []*outcome) string {
	var b strings.Builder
	b.WriteString("| suite | of | tests | passed | differ by design |\n|---|---|--:|--:|--:|\n")
	for _, o := range all {
		from := strings.TrimSpace(o.module + " " + o.version)
		if o.fetched != "" {
			from = o.fetched + " " + o.version
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %d |\n", o.name, from, len(o.passed)+len(o.differ), len(o.passed),
			len(o.differ))
	}
	b.WriteString("\n| test that differs | why |\n|---|---|\n")
	for _, o := range all {
		for _, d := range o.suite.differ {
			fmt.Fprintf(&b, "| %s | %s |\n", d.test, d.why)
		}
	}
	b.WriteString("\n| not run | why |\n|---|---|\n")
	for _, o := range all {
		for _, l := range o.left {
			tests := slices.DeleteFunc(slices.Clone(l.decls), func(name string) bool {
				return !strings.HasPrefix(name, "Test") || name == "TestMain"
			})
			if len(tests) == 0 {
				continue
			}
			fmt.Fprintf(&b, "| %s | %s |\n", strings.Join(tests, ", "), l.why)
		}
	}
	return b.String()
}
