package election_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock/election"
)

// On every node a leader is shown, followed and succeeded by who waits.
func TestElection_InACluster_IsFollowedOnEveryNode(t *testing.T) {
	t.Parallel()
	s := redistest.Cluster(t)
	first, second, third := start(t, s, patient), start(t, s, patient), start(t, s, patient)
	for _, name := range []string{"a", "b", "c", "d", "e", "{tag}:f", "g{}h"} {
		t.Run(name, func(t *testing.T) {
			e := second.elections.Election(name)
			if name == "g{}h" {
				_, err := e.Campaign(within(t), "")
				require.ErrorIs(t, err, errs.ErrInvalidName, "its keys would be in several slots")
				return
			}
			l := elect(t, first.elections.Election(name), "first")
			next := make(chan *election.Leadership, 1)
			go func() {
				l, err := e.Campaign(within(t), "second")
				next <- l
				if err != nil {
					t.Error(err)
				}
			}()
			var seen []string
			for leader, err := range third.elections.Election(name).Observe(within(t)) {
				require.NoError(t, err)
				if !leader.Elected() {
					continue
				}
				seen = append(seen, leader.Value)
				if leader.Value == "second" {
					require.Greater(t, leader.Token, l.Token())
					break
				}
				require.Equal(t, l.Token(), leader.Token)
				require.NoError(t, l.Resign(within(t)))
			}
			require.Equal(t, []string{"first", "second"}, seen)
			successor := <-next
			require.NotNil(t, successor)
			require.NoError(t, successor.Resign(within(t)))
		})
	}
}

var beating = election.Options{Heartbeat: 250 * time.Millisecond, WatchdogTimeout: 5 * time.Minute,
	CallTimeout: 10 * time.Second}

// The shards of one name are on several nodes; whoever has them, they go to the next.
func TestShards_InACluster_GoToTheNextWorker(t *testing.T) {
	t.Parallel()
	s := redistest.Cluster(t)
	const n = 6
	tokens := map[int]int64{}
	for _, name := range []string{"first", "second"} {
		p := start(t, s, beating)
		shards := p.elections.Shards("jobs", n)
		has := make(chan *election.Shard, n)
		ran := make(chan error, 1)
		ctx, cancel := context.WithCancel(within(t))
		go func() {
			ran <- shards.Run(ctx, name, func(ctx context.Context, s *election.Shard) error {
				has <- s
				<-ctx.Done()
				return nil
			})
		}()
		for range n {
			s := <-has
			require.Greater(t, s.Token(), tokens[s.Index()])
			tokens[s.Index()] = s.Token()
		}
		require.Len(t, tokens, n)
		workers := redistest.NoError(shards.Workers(within(t)))(t)
		require.Len(t, workers, 1, fmt.Sprint(workers))
		require.Equal(t, name, workers[0].Name)
		cancel()
		require.ErrorIs(t, <-ran, context.Canceled)
	}
}
