package rsemaphore_test

import (
	"fmt"
	"testing"
)

// barrierKeys are the keys of a row about a barrier.
func barrierKeys(i int) (map[string]string, []string) {
	key := fmt.Sprintf("{b%d}:barrier", i)
	return map[string]string{"KEY": key, "CHANNEL": fmt.Sprintf("redlatch_barrier:{b%d}", i)}, []string{key}
}

func TestBarrierScriptTable(t *testing.T) {
	t.Parallel()
	// of a party that knows where it arrived
	args := func(verb, party, id, gen string) []string {
		return []string{verb, party, id, gen, "3", "300000", "0", "3600000", "CHANNEL", "PUBLISH"}
	}
	arrive := func(party string) []string { return args("arrive", party, "", "0") }
	late := arrive("p1")
	late[6] = "NOW-600000"
	two := arrive("p1")
	two[4] = "2"
	// two of three wait in generation 4
	waiting := []string{"HSET KEY id x gen 4 parties 3 n 2 lease 300000 soon NOW+200000 m:a NOW+200000 m:b NOW+290000",
		"PEXPIRE KEY 3900000"}
	full := []string{"HSET KEY id x gen 4 parties 3 n 3 act c lease 300000 soon NOW+200000 m:a NOW+200000 m:b " +
		"NOW+290000? m:c NOW+290000?", "PEXPIRE KEY 3900000"}
	idle := func(extra string) []string {
		return []string{"HSET KEY id x gen 5 parties 3" + extra, "PEXPIRE KEY 3600000"}
	}
	is := func(text string) map[string]string { return map[string]string{"KEY": text} }
	kept := map[string]int64{"KEY": 3_900_000}
	rested := map[string]int64{"KEY": 3_600_000}
	runCases(t, "barrier", barrierKeys, []scriptCase{
		{name: "the first arrives, once", args: arrive("p1"), reply: []string{"0", "p1", "1", "1", "300000", "T", "3"},
			after: is("gen=1, id=p1, lease=300000, m:p1=T?, n=1, parties=3, soon=T"), ttl: kept},
		{name: "the next arrives", before: idle(""), args: arrive("p1"),
			reply: []string{"0", "x", "5", "1", "300000", "T", "3"},
			after: is("gen=5, id=x, lease=300000, m:p1=T?, n=1, parties=3, soon=T"), ttl: kept},
		{name: "the last arrives, and acts", before: waiting, args: arrive("p1"),
			reply: []string{"1", "x", "4", "3", "210000", "T", "3"},
			after: is("act=p1, gen=4, id=x, lease=300000, m:a=T, m:b=T, m:p1=T?, n=3, parties=3, soon=T"), ttl: kept},
		{name: "too late does nothing", before: waiting, args: late, reply: []string{"2", "", "0", "0", "0", "T", "0"},
			after: is("gen=4, id=x, lease=300000, m:a=T, m:b=T, n=2, parties=3, soon=T"), ttl: kept},
		{name: "another number of parties is refused while some wait", before: waiting, args: two,
			reply: []string{"4", "x", "4", "2", "210000", "T", "3"},
			after: is("gen=4, id=x, lease=300000, m:a=T, m:b=T, n=2, parties=3, soon=T"), ttl: kept},
		{name: "and taken when none do", before: idle(""), args: two,
			reply: []string{"0", "x", "5", "1", "300000", "T", "2"},
			after: is("gen=5, id=x, lease=300000, m:p1=T?, n=1, parties=2, soon=T"), ttl: kept},
		{name: "a full generation takes no more", before: full, args: arrive("p1"),
			reply: []string{"3", "x", "4", "3", "210000", "T", "3"},
			after: is("act=c, gen=4, id=x, lease=300000, m:a=T, m:b=T?, m:c=T?, n=3, parties=3, soon=T"), ttl: kept},
		{name: "an arrival whose generation is over is told where it was", before: idle(" r:p1 NOW+100000_4"),
			args: arrive("p1"), reply: []string{"0", "x", "4", "0", "0", "T", "3"},
			after: is("gen=5, id=x, parties=3, r:p1=T 4"), ttl: rested},
		{name: "an arrival finds somebody's lease over: that generation broke, this is the next",
			before: []string{"HSET KEY id x gen 4 parties 3 n 2 lease 300000 soon NOW-1000 m:a NOW-1000 m:b NOW+290000?",
				"PEXPIRE KEY 3900000"},
			args: arrive("p1"), reply: []string{"0", "x", "5", "1", "300000", "T", "3"},
			after: is("b:4=T, gen=5, id=x, lease=300000, m:p1=T?, n=1, parties=3, r:b=T 4, soon=T"), ttl: kept,
			told: []string{"x 4 broken"}},
		{name: "a lease that has been renewed is not over, whatever was expected",
			before: []string{"HSET KEY id x gen 4 parties 3 n 2 lease 300000 soon NOW-1000 m:a NOW+250000 m:b NOW+290000",
				"PEXPIRE KEY 3900000"},
			args: args("look", "a", "x", "4"), reply: []string{"0", "x", "4", "2", "270000", "T", "3"},
			after: is("gen=4, id=x, lease=300000, m:a=T, m:b=T, n=2, parties=3, soon=T"), ttl: kept},

		{name: "leases further ahead than they can be, after the clock was set back, end a lease from now",
			before: []string{"HSET KEY id x gen 4 parties 3 n 2 lease 300000 soon NOW+9200000 m:a NOW+9200000? m:b NOW+9290000",
				"PEXPIRE KEY 3900000"},
			args: args("look", "b", "x", "4"), reply: []string{"0", "x", "4", "2", "300000", "T", "3"},
			after: is("gen=4, id=x, lease=300000, m:a=T?, m:b=T, n=2, parties=3, soon=T"), ttl: kept},
		{name: "a look says wait, and shows that the party knows", before: full, args: args("look", "b", "x", "4"),
			reply: []string{"0", "x", "4", "3", "210000", "T", "3"},
			after: is("act=c, gen=4, id=x, lease=300000, m:a=T, m:b=T, m:c=T?, n=3, parties=3, soon=T"), ttl: kept},
		{name: "or not for good, while another request of it to arrive may come", before: full,
			args: append(args("look", "b", "x", "4"), "1"), reply: []string{"0", "x", "4", "3", "210000", "T", "3"},
			after: is("act=c, gen=4, id=x, lease=300000, m:a=T, m:b=T?, m:c=T?, n=3, parties=3, soon=T"), ttl: kept},
		{name: "a look at what is over: it tripped", before: idle(" r:a NOW+100000_4"), args: args("look", "a", "x", "4"),
			reply: []string{"5", "x", "4", "0", "0", "T", "3"}, after: is("gen=5, id=x, parties=3"), ttl: rested},
		{name: "or broke", before: idle(" b:4 NOW+100000"), args: args("look", "a", "x", "4"),
			reply: []string{"6", "x", "4", "0", "0", "T", "3"}, after: is("b:4=T, gen=5, id=x, parties=3"), ttl: rested},
		{name: "an earlier one tripped, though a later one broke", before: idle(" b:4 NOW+100000"),
			args: args("look", "a", "x", "3"), reply: []string{"5", "x", "3", "0", "0", "T", "3"},
			after: is("b:4=T, gen=5, id=x, parties=3"), ttl: rested},
		{name: "another life of the key knows nobody", before: idle(""), args: args("look", "a", "y", "4"),
			reply: []string{"7", "x", "5", "0", "0", "T", "3"}, after: is("gen=5, id=x, parties=3"), ttl: rested},
		{name: "nor does one that is gone", args: args("look", "a", "x", "4"),
			reply: []string{"7", "", "0", "0", "0", "T", "0"}},
		{name: "one who is not in it waits for nothing", before: waiting, args: args("look", "z", "x", "4"),
			reply: []string{"7", "x", "4", "2", "210000", "T", "3"},
			after: is("gen=4, id=x, lease=300000, m:a=T, m:b=T, n=2, parties=3, soon=T"), ttl: kept},

		{name: "the last arriver trips it", before: full, args: args("trip", "c", "x", "4"),
			reply: []string{"5", "x", "4", "0", "0", "T", "3"}, after: is("gen=5, id=x, parties=3, r:b=T 4"), ttl: kept,
			told: []string{"x 4 tripped"}},
		{name: "and stays known, while another request of it to arrive may come", before: full,
			args: append(args("trip", "c", "x", "4"), "1"), reply: []string{"5", "x", "4", "0", "0", "T", "3"},
			after: is("gen=5, id=x, parties=3, r:b=T 4, r:c=T 4"), ttl: kept, told: []string{"x 4 tripped"}},
		{name: "nobody else does", before: full, args: args("trip", "a", "x", "4"),
			reply: []string{"7", "x", "4", "3", "210000", "T", "3"},
			after: is("act=c, gen=4, id=x, lease=300000, m:a=T, m:b=T?, m:c=T?, n=3, parties=3, soon=T"), ttl: kept},
		{name: "a trip that comes too late finds it broken", before: idle(" b:4 NOW+100000"),
			args: args("trip", "c", "x", "4"), reply: []string{"6", "x", "4", "0", "0", "T", "3"},
			after: is("b:4=T, gen=5, id=x, parties=3"), ttl: rested},

		{name: "who leaves breaks it for all", before: waiting, args: args("leave", "a", "x", "4"),
			reply: []string{"6", "x", "4", "0", "0", "T", "3"}, after: is("b:4=T, gen=5, id=x, parties=3"), ttl: kept,
			told: []string{"x 4 broken"}},
		{name: "also while the last one acts", before: full, args: args("leave", "a", "x", "4"),
			reply: []string{"6", "x", "4", "0", "0", "T", "3"}, after: is("b:4=T, gen=5, id=x, parties=3, r:b=T 4, r:c=T 4"),
			ttl: kept, told: []string{"x 4 broken"}},
		{name: "too late to leave what has tripped", before: idle(""), args: args("leave", "a", "x", "4"),
			reply: []string{"5", "x", "4", "0", "0", "T", "3"}, after: is("gen=5, id=x, parties=3"), ttl: rested},
		{name: "a stranger breaks nothing", before: waiting, args: args("leave", "z", "x", "4"),
			reply: []string{"7", "x", "4", "2", "210000", "T", "3"},
			after: is("gen=4, id=x, lease=300000, m:a=T, m:b=T, n=2, parties=3, soon=T"), ttl: kept},
		{name: "who does not know whether it arrived leaves if it did", before: waiting, args: args("leave", "a", "", "0"),
			reply: []string{"6", "x", "5", "0", "0", "T", "3"}, again: []string{"7", "x", "5", "0", "0", "T", "3"},
			after: is("b:4=T, gen=5, id=x, parties=3"), ttl: kept, told: []string{"x 4 broken"}},
		{name: "and does nothing if not", before: waiting, args: args("leave", "z", "", "0"),
			reply: []string{"7", "x", "4", "2", "210000", "T", "3"},
			after: is("gen=4, id=x, lease=300000, m:a=T, m:b=T, n=2, parties=3, soon=T"), ttl: kept},
		{name: "and stays known, while its request to arrive may come", before: idle(" r:z NOW+100000_4"),
			args: append(args("leave", "z", "", "0"), "1"), reply: []string{"7", "x", "5", "0", "0", "T", "3"},
			after: is("gen=5, id=x, parties=3, r:z=T 4"), ttl: rested},
		{name: "marks that nobody can need go with the end of a generation",
			before: []string{"HSET KEY id x gen 4 parties 3 n 1 lease 300000 soon NOW+200000 m:a NOW+200000 b:2 NOW-1000 b:3 " +
				"NOW+1000 r:z NOW-1000_2 r:y NOW+1000_3", "PEXPIRE KEY 3900000"},
			args: args("leave", "a", "x", "4"), reply: []string{"6", "x", "4", "0", "0", "T", "3"},
			after: is("b:3=T, b:4=T, gen=5, id=x, parties=3, r:y=T 3"), ttl: kept, told: []string{"x 4 broken"}},

		{name: "the state of nothing", args: args("state", "", "", "0"), reply: []string{"0", "", "0", "0", "0", "T", "0"}},
		{name: "the state of one that gathers", before: waiting, args: args("state", "", "", "0"),
			reply: []string{"0", "x", "4", "2", "210000", "T", "3"},
			after: is("gen=4, id=x, lease=300000, m:a=T, m:b=T, n=2, parties=3, soon=T"), ttl: kept},
		{name: "the state of one that acts", before: full, args: args("state", "", "", "0"),
			reply: []string{"1", "x", "4", "3", "210000", "T", "3"},
			after: is("act=c, gen=4, id=x, lease=300000, m:a=T, m:b=T?, m:c=T?, n=3, parties=3, soon=T"), ttl: kept},
	})
}

func TestBarrierRenewScriptTable(t *testing.T) {
	t.Parallel()
	args := func(party, id, gen string) []string { return []string{party + " " + id + " " + gen, "300000"} }
	is := func(text string) map[string]string { return map[string]string{"KEY": text} }
	ttl := map[string]int64{"KEY": 660_000}
	runCases(t, "barrier_renew", barrierKeys, []scriptCase{
		{name: "nothing there", args: args("a", "x", "4"), reply: []string{"0"}},
		{name: "a waiting party, which thereby shows that it knows",
			before: []string{"HSET KEY id x gen 4 n 1 m:a NOW+1000?", "PEXPIRE KEY 100000"}, args: args("a", "x", "4"),
			reply: []string{"1"}, after: is("gen=4, id=x, m:a=T, n=1"), ttl: ttl},
		{name: "a longer lease is not shortened",
			before: []string{"HSET KEY id x gen 4 n 1 m:a NOW+900000", "PEXPIRE KEY 3600000"}, args: args("a", "x", "4"),
			reply: []string{"1"}, after: is("gen=4, id=x, m:a=T, n=1"), ttl: map[string]int64{"KEY": 3_600_000}},
		{name: "a lease that is over stays over",
			before: []string{"HSET KEY id x gen 4 n 1 m:a NOW-1", "PEXPIRE KEY 3600000"}, args: args("a", "x", "4"),
			reply: []string{"0"}, after: is("gen=4, id=x, m:a=T, n=1"), ttl: map[string]int64{"KEY": 3_600_000}},
		{name: "a stranger", before: []string{"HSET KEY id x gen 4 n 1 m:a NOW+1000", "PEXPIRE KEY 3600000"},
			args: args("z", "x", "4"), reply: []string{"0"}, after: is("gen=4, id=x, m:a=T, n=1"),
			ttl: map[string]int64{"KEY": 3_600_000}},
		{name: "another life of the key", before: []string{"HSET KEY id y gen 4 n 1 m:a NOW+1000", "PEXPIRE KEY 3600000"},
			args: args("a", "x", "4"), reply: []string{"0"}, after: is("gen=4, id=y, m:a=T, n=1"),
			ttl: map[string]int64{"KEY": 3_600_000}},
		{name: "a generation that tripped counts as renewed", before: []string{"HSET KEY id x gen 5", "PEXPIRE KEY 3600000"},
			args: args("a", "x", "4"), reply: []string{"1"}, after: is("gen=5, id=x"), ttl: map[string]int64{"KEY": 3_600_000}},
		{name: "one that broke too, and is known as broken for as long",
			before: []string{"HSET KEY id x gen 5 b:4 NOW+1000", "PEXPIRE KEY 100000"}, args: args("a", "x", "4"),
			reply: []string{"1"}, after: is("b:4=T, gen=5, id=x"), ttl: ttl},
		{name: "another type", before: []string{"SET KEY x EX 1000"}, args: args("a", "x", "4"), reply: []string{"-2"},
			after: is("x"), ttl: map[string]int64{"KEY": 1_000_000}},
	})
}
