package bench_test

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/bench/internal/load"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter"
	"github.com/redlatch/redlatch/rcounter/stock"
)

// What the client costs: the most common calls beside their own scripts and commands, sent by rueidis alone.
func BenchmarkCost(b *testing.B) { runs(b, costs) }

// costSubject is an operation. unique is the index of a word of its command that no two operations have in common: the
// id of a call, or a user. 0: there is none.
type costSubject struct {
	name   string
	of     maker
	unique int
}

var costSubjects = []costSubject{
	{"Lock", reentrant, 0},
	{"Permit", func(b *testing.B, s *redistest.Server) op {
		c := openSemaphores(b, s.Option())
		return cycle(func(ctx context.Context, name string) (load.Release, error) {
			return permit(ctx, c.Semaphore(name, 1))
		})
	}, 0},
	{"Incr", incr(1, rcounter.CounterOptions{}), 0},
	{"Allow", allow(1, 1e9), 4},
	{"Buy", buy(stock.Options{}, plenty, stock.Sold), 10},
}

var costs = func() (out []workload) {
	for _, subject := range costSubjects {
		for _, n := range []int{1, 8, 64} {
			out = append(out, workload{subject.name + "/" + strconv.Itoa(n), func(b *testing.B) {
				beside(b, n, start(b), subject.of, start(b), subject.sentRaw(n), "x-raw")
			}})
		}
	}
	return out
}()

// recorder is a client that keeps the commands of its calls.
type recorder struct {
	rueidis.Client
	mu       sync.Mutex
	commands [][]string
}

func (r *recorder) Do(ctx context.Context, command rueidis.Completed) rueidis.RedisResult {
	r.mu.Lock()
	r.commands = append(r.commands, slices.Clone(command.Commands()))
	r.mu.Unlock()
	return r.Client.Do(ctx, command)
}

// reset forgets the commands, and returns them.
func (r *recorder) reset() (commands [][]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	commands, r.commands = r.commands, nil
	return commands
}

// farAway is an instant of the server, ms: the year 2100. After its not-after instant a script does nothing.
const farAway = "4102444800000"

var instant = regexp.MustCompile(`^1\d{12}$`)

// sentRaw is the operation as it was recorded, once for each goroutine.
func (s *costSubject) sentRaw(goroutines int) maker {
	return func(b *testing.B, server *redistest.Server) op {
		var record recorder
		newClient = func(option rueidis.ClientOption) (client rueidis.Client, err error) {
			record.Client, err = rueidis.NewClient(option)
			return &record, err
		}
		defer func() { newClient = nil }()
		do, recorded := s.of(b, server), make([][][]string, goroutines)
		for goroutine := range goroutines {
			for n := range 2 { // the first has the script's text, and knows no time of the server
				record.reset()
				require.NoError(b, do(b.Context(), goroutine, -int64(2*goroutine+n+1)))
			}
			recorded[goroutine] = record.reset()
			for _, command := range recorded[goroutine] {
				for i, word := range command {
					command[i] = instant.ReplaceAllString(word, farAway)
				}
			}
		}
		client := server.Client(b)
		return func(ctx context.Context, goroutine int, n int64) error {
			for _, command := range recorded[goroutine] {
				key := 1
				if command[0] == "EVALSHA" {
					key = 3
				}
				// Without a key rueidis would send all commands on one connection.
				words := client.B().Arbitrary(command[:key]...).Keys(command[key])
				if s.unique > 0 {
					words = words.Args(command[key+1 : s.unique]...).Args(strconv.FormatInt(n, 10)).Args(command[s.unique+1:]...)
				} else {
					words = words.Args(command[key+1:]...)
				}
				if err := client.Do(ctx, words.Build()).Error(); err != nil {
					return err
				}
			}
			return nil
		}
	}
}
