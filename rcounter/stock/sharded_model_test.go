package stock_test

import "fmt"

// The model of a sharded stock: two shards, two processes that open it, any number that claim and move units. One step is one
// run of one script at one server, as the script is written, or something that happens to a server. Whatever was sent once
// stays in the network, and may arrive again at any moment and any number of times; a process may stop for good after any
// step.
//
// Each server has one replica, which follows at any distance, and a failover puts the replica's state in the place of the
// primary's. As with Options.MinReplicas, a process takes an answer of a claim, a debit or a credit only when the replica has
// what it says.
//
// Not in the model: the window and its clocks, holds, returns, and the loss of a part of a shard's keys, which every script
// refuses (see stock.lua).

// modelRules are the rules of the scripts; the zero value is those that are used. Each field breaks one.
type modelRules struct {
	namedByEpoch  bool // sharded_prepare.lua: all shards made in one opening have one name
	namedByCaller bool // sharded_prepare.lua: the call that makes a shard names it
	unfixed       bool // sharded_phase.lua keeps no names: an opener activates the shards that it was told
	fixedAgain    bool // sharded_phase.lua: the last opener's names stand, not the first one's
	planUnsure    bool // shards are activated before replicas have the plan's names
	liveAny       bool // sharded_live.lua does not compare the name
	debitAny      bool // sharded_debit.lua compares neither the name nor the state
	debitOver     bool // sharded_debit.lua begins a transfer though another is on its way
	debitBlank    bool // sharded_debit.lua does not write down what is on its way
	debitUnsure   bool // a debit is credited before replicas have it
	creditEach    bool // sharded_credit.lua adds every copy
	creditOther   bool // sharded_credit.lua refuses only the number that came last
	creditUnsure  bool // a credit is acknowledged before replicas have it
	ackEarly      bool // a transfer is acknowledged before it is credited
	ackAny        bool // sharded_ack.lua does not compare the number
	claimUnsure   bool // a claim is answered before replicas have it
	deserted      bool // a sweep does not complete the transfers of others
}

// modelSize bounds a search.
type modelSize struct {
	units     uint8 // that each shard begins with, 1 or 2
	transfers uint8 // from each shard to the other, 0 to 2
	losses    uint8 // of a shard with its replica
	failovers uint8 // of a server, those of the plan's too
}

type modelPlan struct {
	phase uint8 // 1 its shards are being made, 2 they have names, 3 all sell
	names [2]uint8
}

type modelShard struct {
	name         uint8 // 0: there is no shard
	live         bool
	left         uint8
	unsure       uint8 // units sold that the replica does not know
	number, away uint8 // the last transfer to the other shard, and how many units of that are on their way
	last         uint8 // the last transfer that came from there
}

// modelState is everything in one moment. The replicas are only kept while there may be a failover.
type modelState struct {
	plan, planReplica modelPlan
	shards, replicas  [2]modelShard
	openers           [2]modelOpener

	// The network: what has been sent. A shard's names are bits of a byte. What an opener sends follows from the opener.
	enliven, debit [2]uint8
	credit         [2]uint32 // to this shard: bit 4*name + 2*(number-1) + n-1
	ack            [2]uint16 // to this shard: bit 2*name + number-1

	// What the properties are about.
	made    [2]uint8 // how many shards were made
	wasLive [2]bool
	seller  [2]uint8 // the name of the shard that sold first
	second  bool     // another of the same number has sold
	sold    uint8    // as their claimants know

	losses, failovers uint8 // how many more there may be
}

// modelOpener is a process that read the plan in phase 1: the names that it was told, 0 for none yet, and whether one of those
// shards sells.
type modelOpener struct {
	names [2]uint8
	sells bool
}

func firstState(size modelSize) modelState {
	s := modelState{plan: modelPlan{phase: 1}, losses: size.losses, failovers: size.failovers}
	if s.failovers > 0 {
		s.planReplica = s.plan // a plan that is lost in phase 1 is another opening: nothing has sold
	}
	return s
}

// durable is what stays of shard i whatever fails over: all, if nothing will.
func (s *modelState) durable(i int) modelShard {
	if s.failovers == 0 {
		return s.shards[i]
	}
	return s.replicas[i]
}

// prepare is sharded_prepare.lua.
func (s *modelState) prepare(r modelRules, size modelSize, opener, i int) (name uint8, sells bool) {
	sh := &s.shards[i]
	if sh.name == 0 {
		s.made[i]++
		*sh = modelShard{name: s.made[i], left: size.units}
		switch {
		case r.namedByEpoch:
			sh.name = 1
		case r.namedByCaller:
			sh.name = uint8(opener) + 1
		}
	}
	return sh.name, sh.live
}

// fix is sharded_phase.lua with phase 2.
func (s *modelState) fix(r modelRules, o modelOpener) {
	if s.plan.phase == 1 {
		if !o.sells {
			s.plan = modelPlan{phase: 2, names: o.names}
		}
	} else if r.fixedAgain {
		s.plan.names = o.names
	}
}

// advance is sharded_phase.lua with phase 3.
func (s *modelState) advance() {
	if s.plan.phase == 2 {
		s.plan.phase = 3
	}
}

// activate is sharded_live.lua.
func (s *modelState) activate(r modelRules, i int, name uint8) {
	if sh := &s.shards[i]; sh.name != 0 && (sh.name == name || r.liveAny) {
		sh.live = true
	}
}

// claim is claim.lua for a claimant who has nothing yet.
func (s *modelState) claim(r modelRules, i int) {
	sh := &s.shards[i]
	sh.left--
	if s.seller[i] == 0 {
		s.seller[i] = sh.name
	}
	s.second = s.second || s.seller[i] != sh.name
	if s.failovers == 0 || r.claimUnsure {
		s.sold++
		return
	}
	sh.unsure++
}

// take is sharded_debit.lua.
func (s *modelState) take(r modelRules, size modelSize, i int, name uint8) {
	sh := &s.shards[i]
	if sh.name == 0 || sh.left == 0 || sh.number == size.transfers || sh.away > 0 && !r.debitOver ||
		(sh.name != name || !sh.live) && !r.debitAny {
		return
	}
	n := (sh.left + 1) / 2
	sh.left, sh.number, sh.away = sh.left-n, sh.number+1, n
	if r.debitBlank {
		sh.away = 0
		s.sendCredit(i, sh.number, n)
	}
}

// add is sharded_credit.lua.
func (s *modelState) add(r modelRules, j int, name, number, n uint8) {
	sh := &s.shards[j]
	if sh.name == 0 || sh.name != name {
		return
	}
	if fresh := number > sh.last || r.creditEach || r.creditOther && number != sh.last; fresh {
		sh.left, sh.last = sh.left+n, number
	}
}

// acknowledge is sharded_ack.lua.
func (s *modelState) acknowledge(r modelRules, i int, name, number uint8) {
	if sh := &s.shards[i]; sh.name != 0 && sh.name == name && (sh.number == number || r.ackAny) {
		sh.away = 0
	}
}

// sendCredit sends the units of a transfer from shard i, to the other shard by each name that a plan had.
func (s *modelState) sendCredit(i int, number, n uint8) {
	for name := uint8(1); name < 8; name++ {
		if s.debit[1-i]>>name&1 == 1 {
			s.credit[1-i] |= 1 << (4*name + 2*(number-1) + n - 1)
		}
	}
}

// send puts into the network what some process may send by now: Go's side of the protocol, in sharded.go and sharded_sweep.go.
func (s *modelState) send(r modelRules) {
	// complete: who hears the names lets the shards sell
	plan := s.plan
	if s.failovers > 0 && !r.planUnsure {
		plan = s.planReplica
	}
	for i := range 2 {
		if r.unfixed {
			for _, o := range s.openers {
				if s.plan.phase >= 2 && o.names[0] != 0 && o.names[1] != 0 {
					s.enliven[i] |= 1 << o.names[i]
				}
			}
		} else if plan.phase >= 2 {
			s.enliven[i] |= 1 << plan.names[i]
		}
		s.wasLive[i] = s.wasLive[i] || s.shards[i].live
		if s.plan.phase == 3 { // sweep
			s.debit[i] |= 1 << s.plan.names[i]
		}
	}
	for i, giver := range s.shards { // move
		if sure := s.durable(i); giver.away > 0 && (r.debitAny || s.debit[i]>>giver.name&1 == 1) &&
			(r.debitUnsure || sure.name == giver.name && sure.number == giver.number && sure.away > 0) {
			s.sendCredit(i, giver.number, giver.away)
		}
		receiver := s.durable(1 - i)
		if r.creditUnsure {
			receiver = s.shards[1-i]
		}
		last := receiver.last
		if s.debit[1-i]>>receiver.name&1 == 0 {
			last = 0 // another shard of that number: the credit was refused
		}
		if r.ackEarly {
			last = giver.number
		}
		for number := uint8(1); number <= last; number++ {
			for name := uint8(1); name < 8; name++ {
				if s.debit[i]>>name&1 == 1 {
					s.ack[i] |= 1 << (2*name + number - 1)
				}
			}
		}
	}
	if s.failovers == 0 { // a state without replicas
		s.planReplica = modelPlan{}
		for i := range s.shards {
			s.sold += s.shards[i].unsure
			s.shards[i].unsure = 0
		}
		s.replicas = [2]modelShard{}
	}
	// The two openers are alike unless they give names, and so of two states that differ in their order one will do.
	if a, b := s.openers[0], s.openers[1]; !r.namedByCaller && (a.names[0] > b.names[0] || a.names[0] == b.names[0] &&
		(a.names[1] > b.names[1] || a.names[1] == b.names[1] && a.sells && !b.sells)) {
		s.openers[0], s.openers[1] = b, a
	}
}

// next calls visit with every state that may follow, and whether a process that comes new would take that step: the others
// are late copies and accidents.
func (s modelState) next(r modelRules, size modelSize, visit func(act modelAct, anew bool, t modelState)) {
	do := func(act modelAct, anew bool, step func(t *modelState)) {
		t := s
		step(&t)
		t.send(r)
		if t != s {
			visit(act, anew, t)
		}
	}
	s.nextOpening(r, size, do)
	s.nextTransfer(r, size, do)
	for i, sh := range s.shards {
		if sh.live && sh.left > 0 {
			do(modelAct{"claim at", i, 0}, true, func(t *modelState) { t.claim(r, i) })
		}
		if s.failovers > 0 {
			do(modelAct{"replicate", i, 0}, true, func(t *modelState) {
				t.sold += t.shards[i].unsure
				t.shards[i].unsure = 0
				t.replicas[i] = t.shards[i]
			})
			do(modelAct{"fail over", i, 0}, false, func(t *modelState) { t.shards[i] = t.replicas[i]; t.failovers-- })
		}
		if sh.name != 0 && s.losses > 0 {
			do(modelAct{"lose", i, 0}, false, func(t *modelState) {
				t.shards[i], t.replicas[i] = modelShard{}, modelShard{}
				t.sold += sh.unsure // their claimants may have heard
				t.losses--
			})
		}
	}
	if s.failovers > 0 {
		do(modelAct{"replicate the plan", -1, 0}, true, func(t *modelState) { t.planReplica = t.plan })
		do(modelAct{"fail the plan over", -1, 0}, false, func(t *modelState) { t.plan = t.planReplica; t.failovers-- })
	}
}

func (s *modelState) nextOpening(r modelRules, size modelSize, do func(modelAct, bool, func(*modelState))) {
	for o, opener := range s.openers {
		for i := range 2 {
			do(modelAct{"a late copy makes", i, 0}, false, func(t *modelState) { t.prepare(r, size, o, i) })
			if opener.names[i] == 0 {
				do(modelAct{"make", i, 0}, true, func(t *modelState) {
					name, sells := t.prepare(r, size, o, i)
					t.openers[o].names[i] = name
					t.openers[o].sells = t.openers[o].sells || sells
				})
			}
		}
		if opener.names[0] != 0 && opener.names[1] != 0 {
			do(modelAct{fmt.Sprintf("fix %v in the plan", opener.names), -1, 0}, true, func(t *modelState) { t.fix(r, opener) })
		}
	}
	if s.wasLive[0] && s.wasLive[1] {
		do(modelAct{"phase 3", -1, 0}, true, (*modelState).advance)
	}
	for i := range 2 {
		for name := uint8(1); name < 8; name++ {
			if s.enliven[i]>>name&1 == 1 {
				do(modelAct{"activate", i, name}, true, func(t *modelState) { t.activate(r, i, name) })
			}
		}
	}
}

func (s *modelState) nextTransfer(r modelRules, size modelSize, do func(modelAct, bool, func(*modelState))) {
	for i, giver := range s.shards {
		j := 1 - i
		for name := uint8(1); name < 8; name++ {
			if s.debit[i]>>name&1 == 1 {
				do(modelAct{"debit", i, name}, true, func(t *modelState) { t.take(r, size, i, name) })
			}
			for number := uint8(1); number <= size.transfers; number++ {
				for n := uint8(1); n <= 2; n++ {
					if s.credit[j]>>(4*name+2*(number-1)+n-1)&1 == 1 {
						anew := !r.deserted && giver.away == n && giver.number == number
						do(modelAct{fmt.Sprintf("credit transfer %d of %d to", number, n), j, name}, anew, func(t *modelState) { t.add(r, j, name, number, n) })
					}
				}
				if s.ack[i]>>(2*name+number-1)&1 == 1 {
					anew := !r.deserted && giver.away > 0 && giver.number == number
					do(modelAct{fmt.Sprintf("acknowledge transfer %d at", number), i, name}, anew, func(t *modelState) { t.acknowledge(r, i, name, number) })
				}
			}
		}
	}
}

// wrong says which property s does not have.
func (s *modelState) wrong(size modelSize) string {
	limit := 2 * size.units
	if s.sold > limit {
		return fmt.Sprintf("%d of %d sold", s.sold, limit)
	}
	if s.second {
		return "a shard that was made anew sells"
	}
	sum := s.sold
	for i, sh := range s.shards {
		if s.plan.phase < 2 || sh.name != s.plan.names[i] {
			return "" // not made yet, or lost: its units are not there
		}
		sum += sh.left + sh.unsure
		if other := s.shards[1-i]; sh.away > 0 && sh.number > other.last {
			sum += sh.away // as units in sharded_look.go
		}
	}
	if sum != limit {
		return fmt.Sprintf("%d units of %d, with those on their way", sum, limit)
	}
	return ""
}
