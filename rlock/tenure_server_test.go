package rlock_test

import "slices"

// modelOwner is one of a process's owners, by a number from 1. The zero modelOwner is none.
type modelOwner struct{ Process, Number int }

// modelServer is a reference of the scripts by which a process gets and keeps a tenure of a lock: acquire.lua, its
// transfer and release.lua, with the hand-over of lib/handover.lua. It has a lock without labels, whose owners all
// listen, and whose lease ends when the test says so.
type modelServer struct {
	holder modelOwner
	queue  []modelOwner
	grants []modelOwner // published since the last Look
}

// modelReply is that to a request. After an Ask or a Transfer, Granted, Queued and TooLate say what became of its
// owner, and after a Release, what became of the next.
type modelReply struct {
	Found   bool // a Release found its owner
	Granted bool
	Queued  bool
	TooLate bool
	Others  bool // a Release granted the next although others are queued
}

// Ask is acquire.lua. A second run of it grants what its owner holds already.
func (s *modelServer) Ask(o modelOwner, tooLate bool) modelReply {
	switch {
	case tooLate:
		return modelReply{TooLate: true}
	case s.holder == o:
		return modelReply{Granted: true}
	case s.holder == modelOwner{} && !s.handOver(o):
		s.take(o)
		return modelReply{Granted: true}
	}
	s.enter(o)
	return modelReply{Queued: true}
}

// Release is release.lua. Only the run that finds its owner and is not too late names the next, which may be the zero
// modelOwner.
func (s *modelServer) Release(o, next modelOwner, tooLate bool) (r modelReply) {
	r.Found = s.holder == o
	s.leave(o)
	if r.Found {
		s.holder = modelOwner{}
	}
	waited := len(s.queue) > 0
	switch {
	case s.holder != modelOwner{}:
		return r
	case next == modelOwner{}, tooLate, !r.Found:
		s.handOver(modelOwner{})
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
func (s *modelServer) Transfer(o, from modelOwner, tooLate bool) modelReply {
	switch {
	case tooLate:
		return modelReply{TooLate: true}
	case s.holder == o, s.holder == from:
		s.holder = o
		return modelReply{Granted: true}
	}
	return modelReply{}
}

// Expire ends the lease.
func (s *modelServer) Expire() { s.holder = modelOwner{} }

// Look returns the holder, the queue, and to whom grants were published since the last Look.
func (s *modelServer) Look() (holder modelOwner, queue, grants []modelOwner) {
	grants, s.grants = s.grants, nil
	return s.holder, slices.Clone(s.queue), grants
}

// enter appends an owner to the queue. An owner that is in the queue keeps its place.
func (s *modelServer) enter(o modelOwner) {
	if !slices.Contains(s.queue, o) {
		s.queue = append(s.queue, o)
	}
}

func (s *modelServer) leave(o modelOwner) {
	s.queue = slices.DeleteFunc(s.queue, func(other modelOwner) bool { return other == o })
}

func (s *modelServer) take(o modelOwner) {
	s.leave(o)
	s.holder = o
}

// handOver grants a free lock to the first in the queue. It reports false if the queue is empty, or its first is the
// owner that asks.
func (s *modelServer) handOver(asks modelOwner) bool {
	if len(s.queue) == 0 || s.queue[0] == asks {
		return false
	}
	first := s.queue[0]
	s.take(first)
	s.grants = append(s.grants, first)
	return true
}
