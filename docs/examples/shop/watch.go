package main

import (
	"context"
	"fmt"
	"time"
)

const lookEvery = 100 * time.Millisecond

// watch looks at the stock until ctx ends, and shows what it sees.
func (s *sale) watch(ctx context.Context) {
	begun := time.Now()
	var last level
	for first := true; pause(ctx, lookEvery); {
		now, err := s.look(ctx)
		if err != nil {
			continue // the server is down for a moment
		}
		if now != last || first {
			s.news.tell(event{Stock: &now})
		}
		last, first = now, false
		s.console.progress(s.line(now, time.Since(begun)))
	}
}

func (s *sale) look(ctx context.Context) (level, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	st, err := s.stock.Inspect(ctx)
	if err != nil {
		return level{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.most = max(s.most, st.Sold+st.Held)
	return level{Left: st.Remaining, Held: st.Held, Sold: st.Sold}, nil
}

// line is the line of progress.
func (s *sale) line(l level, since time.Duration) string {
	line := fmt.Sprintf("%5.1f s   %d sold, %d held, %d left   %d of %d customers are done", since.Seconds(), l.Sold,
		l.Held, l.Left, s.left.Load(), s.customers)
	if n := s.faults.Load(); n > 0 {
		line += fmt.Sprintf("   %d faults", n)
	}
	return line
}
