// Package tenuremodel is a reference of the scripts by which a process gets and keeps a tenure of a lock: acquire.lua,
// its transfer and release.lua, with the hand-over of lib/handover.lua. It is for tests.
//
// A [Server] has a lock without labels, whose owners all listen, and whose lease ends when the test says so.
package tenuremodel

import "slices"

// Owner is one of a process's owners, by a number from 1. The zero Owner is none.
type Owner struct{ Process, Number int }

// Server is a lock and its queue.
type Server struct {
	holder Owner
	queue  []Owner
	grants []Owner // published since the last Look
}

// Reply is that to a request. After an Ask or a Transfer, Granted, Queued and TooLate say what became of its owner,
// and after a Release, what became of the next.
type Reply struct {
	Found   bool // a Release found its owner
	Granted bool
	Queued  bool
	TooLate bool
	Others  bool // a Release granted the next although others are queued
}

// Ask is acquire.lua. A second run of it grants what its owner holds already.
func (s *Server) Ask(o Owner, tooLate bool) Reply {
	switch {
	case tooLate:
		return Reply{TooLate: true}
	case s.holder == o:
		return Reply{Granted: true}
	case s.holder == Owner{} && !s.handOver(o):
		s.take(o)
		return Reply{Granted: true}
	}
	s.enter(o)
	return Reply{Queued: true}
}

// Release is release.lua. Only the run that finds its owner and is not too late names the next, which may be the zero
// Owner.
func (s *Server) Release(o, next Owner, tooLate bool) (r Reply) {
	r.Found = s.holder == o
	s.leave(o)
	if r.Found {
		s.holder = Owner{}
	}
	waited := len(s.queue) > 0
	switch {
	case s.holder != Owner{}:
		return r
	case next == Owner{}, tooLate, !r.Found:
		s.handOver(Owner{})
		return r
	case waited:
		s.enter(next)
		if s.handOver(next) {
			r.Queued = true
			return r
		}
	}
	s.take(next)
	r.Granted, r.Others = true, waited
	return r
}

// Transfer is acquire.lua with the owner that o replaces. The queue stays as it is.
func (s *Server) Transfer(o, from Owner, tooLate bool) Reply {
	switch {
	case tooLate:
		return Reply{TooLate: true}
	case s.holder == o, s.holder == from:
		s.holder = o
		return Reply{Granted: true}
	}
	return Reply{}
}

// Expire ends the lease.
func (s *Server) Expire() { s.holder = Owner{} }

// Look returns the holder, the queue, and to whom grants were published since the last Look.
func (s *Server) Look() (holder Owner, queue, grants []Owner) {
	grants, s.grants = s.grants, nil
	return s.holder, slices.Clone(s.queue), grants
}

// enter appends an owner to the queue. An owner that is in the queue keeps its place.
func (s *Server) enter(o Owner) {
	if !slices.Contains(s.queue, o) {
		s.queue = append(s.queue, o)
	}
}

func (s *Server) leave(o Owner) {
	s.queue = slices.DeleteFunc(s.queue, func(other Owner) bool { return other == o })
}

func (s *Server) take(o Owner) {
	s.leave(o)
	s.holder = o
}

// handOver grants a free lock to the first in the queue. It reports false if the queue is empty, or its first is the
// owner that asks.
func (s *Server) handOver(asks Owner) bool {
	if len(s.queue) == 0 || s.queue[0] == asks {
		return false
	}
	first := s.queue[0]
	s.take(first)
	s.grants = append(s.grants, first)
	return true
}
