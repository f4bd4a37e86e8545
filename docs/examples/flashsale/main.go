// Command flashsale sells 5,000 units to 10,000 users: first come, first served, one unit to a user. Four worker
// processes sell them, and each may be killed at any moment.
//
//	go -C docs/examples run ./flashsale                      embedded server, nothing else needed
//	go -C docs/examples run ./flashsale -redis 127.0.0.1:6379
//
// It takes 20 s. Meanwhile kill any worker with kill -9: the program prints their process ids. Another worker starts,
// and is asked again for each user whose answer is missing. A repeated order gets the same answer, so asking again is
// the whole recovery: no unit is sold twice, no user has two, and none is lost.
//
// Only open and work use redlatch. The rest plays the crowd, keeps the workers running and prints the progress. At the
// end the program compares the answers with the server's count, and ends with status 1 if they differ. A sale whose
// units are paid for is in the example shop.
package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/docs/examples/internal/stage"
	"github.com/redlatch/redlatch/rcounter/stock"
)

const (
	users, units = 10_000, 5_000
	perSecond    = 500 // users who come
	workers      = 4
	window       = 32               // users that a worker has been sent and not answered, at most
	silence      = 10 * time.Second // after which a worker counts as dead
	maxDeaths    = 10               // of a worker, without an answer in between
)

func main() {
	option := stage.Redis()
	var err error
	if stage.Role() == "" {
		err = sell(option)
	} else {
		err = work(option, stage.Role())
	}
	if err != nil {
		log.Fatal("flashsale: ", err)
	}
}

// open connects to the sale, and opens it if no other process has.
func open(ctx context.Context, option rueidis.ClientOption, name string) (*redlatch.Client, *stock.Sale, error) {
	red, err := redlatch.Open(ctx, option, redlatch.Options{RetryTimeout: silence})
	if err != nil {
		return nil, nil, err
	}
	sale := red.Sales().Sale(name)
	return red, sale, sale.Open(ctx, stock.Spec{Limit: units, OpenFor: time.Hour, Retain: time.Hour})
}

// work is a worker process. It reads users, and prints which unit each of them has: 0 if all are sold.
func work(option rueidis.ClientOption, name string) error {
	ctx := context.Background()
	red, sale, err := open(ctx, option, name)
	if err != nil {
		return err
	}
	defer red.Close(ctx)
	var orders sync.WaitGroup
	defer orders.Wait()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		user := in.Text()
		orders.Go(func() {
			a, err := sale.Buy(ctx, stock.Order{User: user})
			switch {
			case a.Won():
				fmt.Println(user, a.Lines[0].Ordinal)
			case a.Why == stock.SoldOut:
				fmt.Println(user, 0)
			default:
				log.Fatal("flashsale: worker: ", cmp.Or(err, errors.New(a.Why)))
			}
		})
	}
	return nil
}

// sale is what the parent process knows.
type sale struct {
	name   string
	begun  time.Time
	crowd  chan string // users, as they come
	failed chan error

	mu   sync.Mutex
	has  map[string]int64 // the answers: the unit of each user, 0 for none
	sold map[int64]string // and the user of each unit
	took []time.Duration  // how long the answers took
	pids []int            // of all workers that were started
}

// sell runs the sale.
func sell(option rueidis.ClientOption) error {
	ctx := context.Background()
	s := &sale{name: fmt.Sprintf("flashsale-%d", time.Now().UnixNano()), crowd: make(chan string), has: map[string]int64{},
		failed: make(chan error, workers), sold: map[int64]string{}}
	red, shelf, err := open(ctx, option, s.name)
	if err != nil {
		return err
	}
	defer red.Close(ctx)
	defer func() { _ = shelf.Delete(ctx) }() // so that nothing is left on your server
	var running sync.WaitGroup
	for n := range workers {
		running.Go(func() { s.keepWorker(n + 1) })
	}
	s.begun = time.Now()
	go s.arrive()
	over := make(chan struct{})
	go func() { running.Wait(); close(over) }()
	progress := time.NewTicker(2 * time.Second)
	defer progress.Stop()
	for {
		select {
		case <-progress.C:
			s.progress()
		case err := <-s.failed:
			return err
		case <-over:
			now, err := shelf.Inspect(ctx)
			if err != nil {
				return err
			}
			return s.check(now.Items[""].Sold)
		}
	}
}

// arrive has the users come, one after the other.
func (s *sale) arrive() {
	for n := range users {
		time.Sleep(time.Until(s.begun.Add(time.Duration(n) * time.Second / perSecond)))
		s.crowd <- fmt.Sprintf("user-%05d", n+1)
	}
	close(s.crowd)
}

// keepWorker keeps one worker running: when it dies, the next one is asked again what it has not answered.
func (s *sale) keepWorker(n int) {
	var again []string
	for deaths := 0; ; {
		p := stage.Start(s.name)
		s.started(n, p.Process.Pid, len(again))
		answered, left := s.serve(p, again)
		p.Wait()
		if again = left; len(again) == 0 && p.ProcessState.Success() {
			return
		}
		if deaths++; answered > 0 {
			deaths = 1
		}
		if deaths == maxDeaths {
			s.failed <- fmt.Errorf("worker %d died %d times without an answer", n, deaths)
			return
		}
		fmt.Printf("worker %d (pid %d) has died: %v\n", n, p.Process.Pid, p.ProcessState)
	}
}

// serve sends users to a worker, first those of again, until all have come and are answered, or it dies. It returns how
// many it has answered, and the users whom it has not.
func (s *sale) serve(p *stage.Process, again []string) (answered int, left []string) {
	lines := p.Lines()
	asked := map[string]time.Time{}
	for _, user := range again {
		asked[user] = time.Now()
		p.Say(user)
	}
	crowd := s.crowd
	for {
		from := crowd
		if len(asked) >= window {
			from = nil // it is busy
		}
		if crowd == nil && len(asked) == 0 {
			p.In.Close() // all users have come: it ends
		}
		select {
		case user, ok := <-from:
			if !ok {
				crowd = nil
				continue
			}
			asked[user] = time.Now()
			p.Say(user)
		case line, ok := <-lines:
			if !ok {
				return answered, slices.Collect(maps.Keys(asked))
			}
			s.enter(line, asked)
			answered++
		case <-time.After(silence): // it was stopped, perhaps
			if len(asked) > 0 {
				p.Process.Kill()
			}
		}
	}
}

// enter enters an answer, and removes its user from those who are asked for.
func (s *sale) enter(line string, asked map[string]time.Time) {
	var user string
	var unit int64
	if _, err := fmt.Sscan(line, &user, &unit); err != nil {
		log.Fatalf("flashsale: worker: %q: %v", line, err)
	}
	took := time.Since(asked[user])
	delete(asked, user)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.has[user] = unit; unit != 0 {
		s.sold[unit] = user
	}
	s.took = append(s.took, took)
}

// started says which processes there are to kill.
func (s *sale) started(n, pid, again int) {
	s.mu.Lock()
	s.pids = append(s.pids, pid)
	all := slices.Clone(s.pids)
	s.mu.Unlock()
	switch {
	case len(all) == workers:
		fmt.Printf("%d workers sell %s units to %s users: pids %s; try kill -9 %d\n", workers, group(units), group(users),
			strings.Trim(fmt.Sprint(all), "[]"), pid)
	case len(all) > workers:
		fmt.Printf("worker %d is pid %d now, and is asked again for %d users\n", n, pid, again)
	}
}

// progress prints how far the sale is.
func (s *sale) progress() {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Printf("%4.1f s: %6s users answered, %5s units sold\n", time.Since(s.begun).Seconds(), group(len(s.has)),
		group(len(s.sold)))
}

// check compares the answers with each other, and with the server's own count.
func (s *sale) check(server int64) error {
	slices.Sort(s.took)
	ms := func(percent int) float64 { return s.took[(len(s.took)-1)*percent/100].Seconds() * 1000 }
	fmt.Printf("%s users answered by %d workers, of which %d died; half within %.1f ms, 99 in 100 within %.1f ms\n",
		group(len(s.has)), len(s.pids), len(s.pids)-workers, ms(50), ms(99))
	winners := 0
	for _, unit := range s.has {
		winners += int(min(unit, 1))
	}
	last := slices.Max(slices.Collect(maps.Keys(s.sold)))
	if len(s.has) != users || winners != units || len(s.sold) != units || last != units || server != units {
		return fmt.Errorf("not exact: %d users have %d different units up to %d, and the server has sold %d", winners,
			len(s.sold), last, server)
	}
	fmt.Printf("exact: %s users have the units 1 to %s, one each; %s users have none; the server has sold %s\n",
		group(winners), group(units), group(users-units), group(int(server)))
	return nil
}

// group writes n with a comma before its thousands.
func group(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}
