package election_test

import (
	"context"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rlock/election"
)

// Each of three processes has one patient candidate, and others that give up.
func TestAnOfficeIsNotVacantWhileCandidatesGiveUp(t *testing.T) {
	t.Parallel()
	for way := range redistest.GiveUp {
		if way == "has a waitTime" {
			continue // no candidate has one
		}
		t.Run(way, func(t *testing.T) {
			s := redistest.Start(t)
			var processes []redistest.Take
			for range 3 {
				e := start(t, s, election.Options{CallTimeout: 5 * time.Second, PollCap: 10 * time.Second}).
					elections.Election("boss")
				processes = append(processes, func(ctx context.Context, _ time.Duration) (func(), error) {
					l, err := e.Campaign(ctx, "")
					if err != nil {
						return nil, err
					}
					return func() { l.Resign(context.Background()) }, nil
				})
			}
			redistest.NotIdle(t, 2*time.Second, way, processes...)
		})
	}
}
