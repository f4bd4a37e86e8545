package main

import (
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// service is fragile: each call takes a while, and more calls at once than bears break it.
type service struct {
	url    string
	bears  int64
	server *http.Server

	inside, peak, served, broken atomic.Int64
}

// takes is how long one call takes: slots/takes is the best throughput there is.
const takes = 40 * time.Millisecond

func startService(bears int) (*service, error) {
	s := &service{bears: int64(bears)}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s.url = "http://" + listener.Addr().String()
	s.server = &http.Server{Handler: s, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = s.server.Serve(listener) }() // until Close
	return s, nil
}

func (s *service) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	inside := s.inside.Add(1)
	defer s.inside.Add(-1) // before the answer leaves
	for {
		p := s.peak.Load()
		if inside <= p || s.peak.CompareAndSwap(p, inside) {
			break
		}
	}
	if inside > s.bears {
		s.broken.Add(1)
		http.Error(w, "too many at once", http.StatusServiceUnavailable)
		return
	}
	time.Sleep(takes)
	s.served.Add(1)
}

// rate is how many calls per second were served during the next d.
func (s *service) rate(d time.Duration) float64 {
	began, before := time.Now(), s.served.Load()
	time.Sleep(d)
	return float64(s.served.Load()-before) / time.Since(began).Seconds()
}

func (s *service) close() { s.server.Close() }
