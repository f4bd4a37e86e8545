package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Workloads.
const (
	uncontended = "uncontended"
	contended   = "contended"
	handingOver = "handover"
	crashed     = "crash"
	renewing    = "renewal"
	claiming    = "claims"
	permits     = "semaphore"
	sharing     = "readwrite"
	inOrder     = "fair"
	impatient   = "impatient"
)

var workloads = []struct{ Name, What string }{
	{uncontended, "lock and unlock, no other worker wants it; 1 goroutine, and many on a lock each; so with permits"},
	{contended, "everybody wants one lock; under it one INCR; after it the worker stays away for 1 ms; in 1 and in 8 " +
		"processes"},
	{handingOver, "from unlock in one client to the lock held in another, the waiter having waited 15 to 115 ms, and " +
		"within one client"},
	{crashed, "the holder is killed; until the waiters of another process have its locks"},
	{renewing, "what locks cost that are only held"},
	{claiming, "the first N win: rcounter, what it is made of, and a lock around GET and SET; the fewest and the most " +
		"goroutines; INCR and Incr with all"},
	{permits, "32 workers in 4 processes want one of 8 permits for 5 ms each; near the server, and 1 ms away"},
	{sharing, "32 readers in 4 processes and a writer, all for 1 ms; near the server, and 1 ms away"},
	{inOrder, "16 workers in 4 processes want a lock that keeps their order; near the server, and 1 ms away"},
	{impatient, "64 callers in 4 processes want one lock for 100 us, give up when their patience ends, and ask again; " +
		"only if asked for by name"},
}

// Config is what is measured and for how long.
type Config struct {
	Peers      []string
	Workloads  []string
	Goroutines []int // of uncontended and claims
	Processes  []int // of contended
	Waiters    []int // of contended, in all processes together
	Rounds     int

	OneProcessor bool // for clients and servers together

	Slice     time.Duration // uncontended and claims: one turn of one peer
	Slices    int           // turns in a round, unless there are many rounds
	Warm      time.Duration // contended: before it counts
	WarmUp    time.Duration // of a client before it takes part, of Redisson only
	Duration  time.Duration // contended: what counts
	Think     time.Duration
	Queued    time.Duration   // queues: what counts
	Window    time.Duration   // of that, the slowest of which is reported; contended: half of it, to have many
	Away      []time.Duration // queues: added to each way
	Crowd     int             // queues, impatient: processes
	Impatient time.Duration   // impatient: what counts
	Patience  []time.Duration // impatient: what callers have, half to one and a half of it each time
	Handover  time.Duration
	Pairs     int
	Lease     time.Duration // of the locks that are in use
	Crash     time.Duration // lease of the crashed holder's locks
	Victims   int           // locks it holds
	Held      int           // locks that are only held
	Renewal   time.Duration // their lease, and how long they are watched
	RoundsOf  map[string]int
	// RoundsOfOne is how many rounds of contended there are in one process: our goals are about several.
	RoundsOfOne int
}

func defaults() Config {
	c := Config{
		Goroutines: []int{1, 8, 64, 256}, Processes: []int{1, 8}, Waiters: []int{2, 16, 64, 256}, Rounds: 3,
		Slice: 100 * time.Millisecond, Slices: 4,
		Warm: 150 * time.Millisecond, Duration: 750 * time.Millisecond, Think: time.Millisecond,
		Queued: 1500 * time.Millisecond, Window: 100 * time.Millisecond, Away: []time.Duration{0, farAway}, Crowd: 4,
		Impatient: 500 * time.Millisecond,
		Patience: []time.Duration{2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond,
			100 * time.Millisecond},
		Handover: time.Second, Pairs: 2,
		Lease: 10 * time.Second, WarmUp: 6 * time.Second,
		Crash: time.Second, Victims: 8,
		Held: 1000, Renewal: 3 * time.Second,
		RoundsOf: map[string]int{crashed: 2, renewing: 1, permits: 3, sharing: 3, inOrder: 3}, RoundsOfOne: 3,
	}
	for _, p := range peers {
		if !p.Optional {
			c.Peers = append(c.Peers, p.Name)
		}
	}
	for _, w := range workloads {
		if w.Name != impatient { // it prints its own table; the report has none of it
			c.Workloads = append(c.Workloads, w.Name)
		}
	}
	return c
}

// quick makes a run that shows whether all is well, not figures to publish.
func (c *Config) quick() {
	c.Rounds, c.Slice, c.Slices = 1, 50*time.Millisecond, 3
	c.Waiters = []int{2, 16, 64}
	c.Warm, c.Duration, c.Handover = 100*time.Millisecond, 300*time.Millisecond, 700*time.Millisecond
	c.Queued = 500 * time.Millisecond
	c.Goroutines = []int{1, 64}
}

// rounds is how often a workload is measured: at most Rounds, fewer where one takes long and hardly varies.
func (c *Config) rounds(workload string) int {
	if n, ok := c.RoundsOf[workload]; ok {
		return min(n, c.Rounds)
	}
	return c.Rounds
}

// forWorkers is how long contended counts: longer for many, who would get too little to compare, and shorter for two or
// three, who get theirs thousands of times.
func (c *Config) forWorkers(n int) time.Duration {
	switch {
	case n > 100:
		return 2 * c.Duration
	case n < 4:
		return c.Duration / 2
	}
	return c.Duration
}

// turns is how many turns everybody has in a round of uncontended and claims: half of them if there are so many rounds
// that this is enough.
func (c *Config) turns() int {
	if c.Rounds > 5 {
		return max(c.Slices/2, 1)
	}
	return c.Slices
}

// begin checks the configuration, and sees to it that the program runs where it says.
func (c *Config) begin() error {
	if err := c.check(); err != nil || !c.OneProcessor {
		return err
	}
	return onOneProcessor()
}

func (c *Config) check() error {
	for _, name := range c.Peers {
		if _, err := peerNamed(name); err != nil {
			return err
		}
	}
	for _, name := range c.Workloads {
		if !slices.ContainsFunc(workloads, func(w struct{ Name, What string }) bool { return w.Name == name }) {
			return fmt.Errorf("no workload %q", name)
		}
	}
	if c.Window <= 0 || c.Queued < c.Window {
		return fmt.Errorf("window %v of %v: want a part of it", c.Window, c.Queued)
	}
	if c.Impatient <= 0 || slices.ContainsFunc(c.Patience, func(d time.Duration) bool { return d < 2*time.Millisecond }) {
		return fmt.Errorf("impatient: patience %v for %v: want 2ms and more", c.Patience, c.Impatient)
	}
	if c.Rounds < 1 || c.Duration <= 0 || len(c.Peers) == 0 || len(c.Workloads) == 0 {
		return fmt.Errorf("rounds %d, duration %v, %d peers, %d workloads: nothing to measure", c.Rounds, c.Duration,
			len(c.Peers), len(c.Workloads))
	}
	for _, n := range slices.Concat(c.Goroutines, c.Processes, c.Waiters, []int{c.Crowd}) {
		if n < 1 || n > 10000 {
			return fmt.Errorf("%d goroutines, processes or waiters: want 1 to 10000", n)
		}
	}
	return nil
}

// names is a flag: a list with commas. Names may have commas of their own if a blank follows.
type names struct{ list *[]string }

func (n names) String() string {
	if n.list == nil {
		return ""
	}
	return strings.Join(*n.list, ",")
}

func (n names) Set(s string) error {
	*n.list = nil
	for _, part := range strings.Split(strings.ReplaceAll(s, ", ", "\x00"), ",") {
		*n.list = append(*n.list, strings.ReplaceAll(part, "\x00", ", "))
	}
	return nil
}

// numbers is a flag: a list with commas.
type numbers struct{ list *[]int }

func (n numbers) String() string {
	if n.list == nil {
		return ""
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(*n.list), " ", ","), "[]")
}

func (n numbers) Set(s string) error {
	*n.list = nil
	for _, part := range strings.Split(s, ",") {
		v, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil {
			return err
		}
		*n.list = append(*n.list, v)
	}
	return nil
}

// durations is a flag: a list with commas.
type durations struct{ list *[]time.Duration }

func (n durations) String() string {
	if n.list == nil {
		return ""
	}
	all := make([]string, len(*n.list))
	for i, d := range *n.list {
		all[i] = d.String()
	}
	return strings.Join(all, ",")
}

func (n durations) Set(s string) error {
	*n.list = nil
	for _, part := range strings.Split(s, ",") {
		d, err := time.ParseDuration(strings.TrimSpace(part))
		if err != nil {
			return err
		}
		*n.list = append(*n.list, d)
	}
	return nil
}
