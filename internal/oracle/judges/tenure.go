package judges

import "slices"

// TenureOwner is one of a process's owners, by a number from 1. The zero TenureOwner stands for no owner.
type TenureOwner struct{ Process, Number int }

// TenureServer is a reference of the scripts by which a process gets and keeps a tenure of a lock: acquire.lua, its
// transfer and release.lua, with the hand-over of lib/handover.lua. The lock has no labels, all owners listen, and the
// test ends the lease.
type TenureServer struct {
	holder TenureOwner
	queue  []TenureOwner
	grants []TenureOwner // published since the last Look
}

// TenureReply is that to a request. After an Ask or a Transfer, Granted, Queued and TooLate say what became of its
// owner, and after a Release, what became of the next.
type TenureReply struct {
	Found   bool // a Release found its owner
	Granted bool
	Queued  bool
	TooLate bool
	Others  bool // a Release granted the next although others are queued
}

// Ask is acquire.lua. A second run of it grants what its owner holds already.
func (s *TenureServer) Ask(o TenureOwner, tooLate bool) TenureReply {
	switch {
	case tooLate:
		return TenureReply{TooLate: true}
	case s.holder == o:
		return TenureReply{Granted: true}
	case s.holder == TenureOwner{} && !s.handOver(o):
		s.take(o)
		return TenureReply{Granted: true}
	}
	s.enter(o)
	return TenureReply{Queued: true}
}

// Release is release.lua. Only the run that finds its owner and is not too late names the next, which may be the zero
// TenureOwner.
func (s *TenureServer) Release(o, next TenureOwner, tooLate bool) (r TenureReply) {
	r.Found = s.holder == o
	s.leave(o)
	if r.Found {
		s.holder = TenureOwner{}
	}
	waited := len(s.queue) > 0
	switch {
	case s.holder != TenureOwner{}:
		return r
	case next == TenureOwner{}, tooLate, !r.Found:
		s.handOver(TenureOwner{})
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
func (s *TenureServer) Transfer(o, from TenureOwner, tooLate bool) TenureReply {
	switch {
	case tooLate:
		return TenureReply{TooLate: true}
	case s.holder == o, s.holder == from:
		s.holder = o
		return TenureReply{Granted: true}
	}
	return TenureReply{}
}

// Expire ends the lease.
func (s *TenureServer) Expire() { s.holder = TenureOwner{} }

// Look returns the holder, the queue, and the owners that were published as granted since the last Look.
func (s *TenureServer) Look() (holder TenureOwner, queue, grants []TenureOwner) {
	grants, s.grants = s.grants, nil
	return s.holder, slices.Clone(s.queue), grants
}

// enter appends an owner to the queue. An owner that is in the queue keeps its place.
func (s *TenureServer) enter(o TenureOwner) {
	if !slices.Contains(s.queue, o) {
		s.queue = append(s.queue, o)
	}
}

func (s *TenureServer) leave(o TenureOwner) {
	s.queue = slices.DeleteFunc(s.queue, func(other TenureOwner) bool { return other == o })
}

func (s *TenureServer) take(o TenureOwner) {
	s.leave(o)
	s.holder = o
}

// handOver grants a free lock to the first in the queue, and reports whether it did: not if the queue is empty, or if
// the first is the owner that asks.
func (s *TenureServer) handOver(asks TenureOwner) bool {
	if len(s.queue) == 0 || s.queue[0] == asks {
		return false
	}
	first := s.queue[0]
	s.take(first)
	s.grants = append(s.grants, first)
	return true
}
