package rsemaphore_test

import (
	"fmt"
	"testing"
)

// latchKeys are the keys of a row about a latch.
func latchKeys(i int) (map[string]string, []string) {
	key := fmt.Sprintf("l%d", i)
	return map[string]string{"KEY": key, "RECORD": "{" + key + "}:latch",
			"CHANNEL": "redisson_countdownlatch__channel__{" + key + "}"},
		[]string{key, "{" + key + "}:latch", "{" + key + "}:timeout"}
}

func latchIs(count, record string) map[string]string {
	m := map[string]string{}
	if count != "" {
		m["KEY"] = count
	}
	if record != "" {
		m["RECORD"] = record
	}
	return m
}

func TestLatchSetScriptTable(t *testing.T) {
	t.Parallel()
	args := func(count, ttl string) []string {
		return []string{count, ttl, "call1", "60000", "CHANNEL", "PUBLISH", "0٠"}
	}
	minute := map[string]int64{"RECORD": 60_000}
	runCases(t, "latch_set", latchKeys, []scriptCase{
		{name: "a free name, without end", args: args("3", "0"), reply: []string{"1"},
			after: latchIs("3", "before=open , gen=1, opens=0٠, set=call1, until=0"), ttl: minute, told: []string{"1"}},
		{name: "with a TTL its record lasts for as long again", args: args("3", "300000"), reply: []string{"1"},
			after: latchIs("3", "before=open , gen=1, opens=0٠, set=call1, until=T"),
			ttl:   map[string]int64{"KEY": 300_000, "RECORD": 600_000}, told: []string{"1"}},
		{name: "what is closed stays as it is", before: []string{"SET KEY 2"}, args: args("3", "300000"),
			reply: []string{"0"}, after: latchIs("2", "")},
		{name: "Redisson's latch stays as it is", before: []string{"SET KEY 0"}, args: args("3", "0"), reply: []string{"0"},
			after: latchIs("0", "")},
		{name: "one that expired is set again, by the next generation",
			before: []string{"HSET RECORD gen 4 set other until NOW-5000 p:a 4_x", "PEXPIRE RECORD 500000"},
			args:   args("3", "0"), reply: []string{"1"},
			after: latchIs("3", "before=expired other, gen=5, opens=0٠, p:a=4 x, set=call1, until=0"), ttl: minute,
			told: []string{"1"}},
		{name: "participants of the last two counts stay, those of earlier ones go",
			before: []string{"HSET RECORD gen 8 set other p:a 3_x p:b 4_x p:c 5_x p:d 7_x p:e 8_x", "PEXPIRE RECORD 500000"},
			args:   args("3", "0"), reply: []string{"1"},
			after: latchIs("3", "before=open other, gen=9, opens=0٠, p:c=5 x, p:d=7 x, p:e=8 x, set=call1, until=0"),
			ttl:   minute, told: []string{"1"}},
		{name: "it remembers which one was before", before: []string{"HSET RECORD gen 4 set other", "PEXPIRE RECORD 500000"},
			args: args("3", "0"), reply: []string{"1"},
			after: latchIs("3", "before=open other, gen=5, opens=0٠, set=call1, until=0"), ttl: minute, told: []string{"1"}},
		{name: "a call that has set it says so again, also once it is open",
			before: []string{"HSET RECORD gen 2 set call1", "PEXPIRE RECORD 60000"}, args: args("3", "0"), reply: []string{"1"},
			after: latchIs("", "gen=2, set=call1"), ttl: minute},
	})
}

func TestLatchDownScriptTable(t *testing.T) {
	t.Parallel()
	args := func(who string) []string {
		return []string{who, "call1", "86400000", "60000", "CHANNEL", "PUBLISH"}
	}
	minute, day := map[string]int64{"RECORD": 60_000}, map[string]int64{"RECORD": 86_400_000}
	runCases(t, "latch_down", latchKeys, []scriptCase{
		{name: "Redisson's countDown, at every run", before: []string{"SET KEY 3"}, args: args(""),
			reply: []string{"1", "2"}, again: []string{"1", "1"}, after: latchIs("2", ""), later: latchIs("1", "")},
		{name: "at zero the key goes and everybody is told", before: []string{"SET KEY 1"}, args: args(""),
			reply: []string{"1", "0"}, again: []string{"0", "0"}, told: []string{"0"}},
		{name: "an open latch stays missing", args: args(""), reply: []string{"0", "0"}},
		{name: "an expiry is kept",
			before: []string{"SET KEY 3 PX 100000", "HSET RECORD gen 1 until NOW+100000", "PEXPIRE RECORD 500000"},
			args:   args(""), reply: []string{"1", "2"}, again: []string{"1", "1"}, after: latchIs("2", "gen=1, until=T"),
			later: latchIs("1", "gen=1, until=T"), ttl: map[string]int64{"KEY": 100_000, "RECORD": 500_000}},
		{name: "a latch of zero goes, as Redisson has it", before: []string{"SET KEY 0"}, args: args(""),
			reply: []string{"1", "0"}, again: []string{"0", "0"}, told: []string{"0"}},
		{name: "no integer", before: []string{"SET KEY 1.5"}, args: args(""), reply: []string{"3", "0"},
			after: latchIs("1.5", "")},
		{name: "the last of one with a TTL ends that in the record",
			before: []string{"SET KEY 1 PX 300000", "HSET RECORD gen 1 until NOW+300000", "PEXPIRE RECORD 600000"},
			args:   args(""), reply: []string{"1", "0"}, again: []string{"0", "0"}, after: latchIs("", "gen=2"), ttl: minute,
			told: []string{"0"}},
		{name: "the message of the opening is the one that was set with it, once",
			before: []string{"SET KEY 1", "HSET RECORD gen 1 until 0 opens 0٠", "PEXPIRE RECORD 50000"}, args: args(""),
			reply: []string{"1", "0"}, again: []string{"0", "0"}, after: latchIs("", "gen=2"),
			ttl: map[string]int64{"RECORD": 50_000}, told: []string{"0٠"}},
		{name: "a latch that Java has set since has none",
			before: []string{"SET KEY 1", "HSET RECORD gen 1 until NOW-5000 opens 0٠", "PEXPIRE RECORD 50000"}, args: args(""),
			reply: []string{"1", "0"}, again: []string{"0", "0"}, after: latchIs("", "gen=3"),
			ttl: map[string]int64{"RECORD": 50_000}, told: []string{"0"}},
		{name: "one that expired is not counted down",
			before: []string{"HSET RECORD gen 1 until NOW-5000", "PEXPIRE RECORD 500000"}, args: args(""),
			reply: []string{"4", "0"}, after: latchIs("", "gen=1, until=T"), ttl: map[string]int64{"RECORD": 500_000}},

		{name: "a participant counts once", before: []string{"SET KEY 3"}, args: args("a"), reply: []string{"1", "2"},
			again: []string{"2", "2"}, after: latchIs("2", "gen=0, p:a=0 call1, until=0"), ttl: day},
		{name: "another call of the same participant does not count",
			before: []string{"SET KEY 2", "HSET RECORD gen 0 until 0 p:a 0_call0", "PEXPIRE RECORD 86400000"}, args: args("a"),
			reply: []string{"2", "2"}, after: latchIs("2", "gen=0, p:a=0 call0, until=0"), ttl: day},
		{name: "another participant does",
			before: []string{"SET KEY 2", "HSET RECORD gen 0 until 0 p:a 0_call0", "PEXPIRE RECORD 86400000"}, args: args("b"),
			reply: []string{"1", "1"}, again: []string{"2", "1"},
			after: latchIs("1", "gen=0, p:a=0 call0, p:b=0 call1, until=0"), ttl: day},
		{name: "a participant of the generation before counts in this one",
			before: []string{"SET KEY 2", "HSET RECORD gen 3 until 0 p:a 2_call0", "PEXPIRE RECORD 86400000"}, args: args("a"),
			reply: []string{"1", "1"}, again: []string{"2", "1"}, after: latchIs("1", "gen=3, p:a=3 call1, until=0"), ttl: day},
		{name: "a call that counted in the generation before does not count in this one",
			before: []string{"SET KEY 2", "HSET RECORD gen 3 until 0 p:a 2_call1", "PEXPIRE RECORD 86400000"}, args: args("a"),
			reply: []string{"1", "0"}, after: latchIs("2", "gen=3, p:a=2 call1, until=0"), ttl: day},
		{name: "generation 1 is not taken for 11",
			before: []string{"SET KEY 2", "HSET RECORD gen 1 until 0 p:a 11_call0", "PEXPIRE RECORD 86400000"}, args: args("a"),
			reply: []string{"1", "1"}, again: []string{"2", "1"}, after: latchIs("1", "gen=1, p:a=1 call1, until=0"), ttl: day},
		{name: "the last participant opens it, and its second run finds that", before: []string{"SET KEY 1"},
			args: args("a"), reply: []string{"1", "0"}, after: latchIs("", "gen=1, p:a=0 call1"), ttl: minute,
			told: []string{"0"}},
		{name: "a participant of one with a TTL leaves the record's own",
			before: []string{"SET KEY 2 PX 300000", "HSET RECORD gen 1 until NOW+300000", "PEXPIRE RECORD 600000"},
			args:   args("a"), reply: []string{"1", "1"}, again: []string{"2", "1"},
			after: latchIs("1", "gen=1, p:a=1 call1, until=T"), ttl: map[string]int64{"KEY": 300_000, "RECORD": 600_000}},
		{name: "set by Java after one that expired: the next generation",
			before: []string{"SET KEY 2", "HSET RECORD gen 1 until NOW-5000 p:a 1_call0", "PEXPIRE RECORD 600000"},
			args:   args("a"), reply: []string{"1", "1"}, again: []string{"2", "1"},
			after: latchIs("1", "gen=2, p:a=2 call1, until=0"), ttl: day},
		{name: "opened by Java, who does not know the record: the participants are forgotten",
			before: []string{"HSET RECORD gen 1 until 0 p:a 1_call0", "PEXPIRE RECORD 86400000"}, args: args("a"),
			reply: []string{"0", "0"}, after: latchIs("", "gen=2, p:a=1 call0"), ttl: minute},
		{name: "expired for a participant too",
			before: []string{"HSET RECORD gen 1 until NOW-5000 p:a 1_call1", "PEXPIRE RECORD 500000"}, args: args("a"),
			reply: []string{"4", "0"}, after: latchIs("", "gen=1, p:a=1 call1, until=T"),
			ttl: map[string]int64{"RECORD": 500_000}},
	})
}

func TestLatchLookScriptTable(t *testing.T) {
	t.Parallel()
	long := map[string]int64{"RECORD": 500_000}
	runCases(t, "latch_look", latchKeys, []scriptCase{
		{name: "never set is open", args: []string{"-", "60000"}, reply: []string{"0", "0", "0", " ", ""}},
		{name: "closed, without end", before: []string{"SET KEY 3"}, args: []string{"-", "60000"},
			reply: []string{"1", "3", "-1", " ", ""}, after: latchIs("3", "")},
		{name: "zero is open", before: []string{"SET KEY 0"}, args: []string{"-", "60000"},
			reply: []string{"0", "0", "0", " ", ""}, after: latchIs("0", "")},
		{name: "no integer", before: []string{"SET KEY x"}, args: []string{"-", "60000"},
			reply: []string{"3", "0", "0", " ", ""}, after: latchIs("x", "")},
		{name: "expired", before: []string{"HSET RECORD gen 1 until NOW-5000", "PEXPIRE RECORD 500000"},
			args: []string{"-", "60000"}, reply: []string{"4", "0", "0", " ", ""}, after: latchIs("", "gen=1, until=T"),
			ttl: long},
		{name: "gone before its TTL was opened, and that is written down",
			before: []string{"HSET RECORD gen 1 until NOW+300000", "PEXPIRE RECORD 500000"}, args: []string{"-", "60000"},
			reply: []string{"0", "0", "0", " ", ""}, after: latchIs("", "gen=2"), ttl: long},
		{name: "set by Java after one that expired: that is over",
			before: []string{"SET KEY 2", "HSET RECORD gen 1 until NOW-5000", "PEXPIRE RECORD 500000"},
			args:   []string{"-", "60000"}, reply: []string{"1", "2", "-1", " ", ""}, after: latchIs("2", "gen=2"), ttl: long},
		{name: "gone without a TTL was opened", before: []string{"HSET RECORD gen 1 until 0", "PEXPIRE RECORD 500000"},
			args: []string{" ", "60000"}, reply: []string{"0", "0", "0", " ", ""}, after: latchIs("", "gen=2"), ttl: long},
		{name: "a deletion before the first look is history",
			before: []string{"HSET RECORD gen 1 deleted d1", "PEXPIRE RECORD 500000"}, args: []string{"-", "60000"},
			reply: []string{"0", "0", "0", "d1 ", ""}, after: latchIs("", "deleted=d1, gen=1"), ttl: long},
		{name: "one that was known at the first look too",
			before: []string{"SET KEY 2", "HSET RECORD gen 1 deleted d1", "PEXPIRE RECORD 500000"},
			args:   []string{"d1 ", "60000"}, reply: []string{"1", "2", "-1", "d1 ", ""},
			after: latchIs("2", "deleted=d1, gen=1"), ttl: long},
		{name: "one since the first look is told", before: []string{"HSET RECORD gen 1 deleted d2", "PEXPIRE RECORD 500000"},
			args: []string{"d1 ", "60000"}, reply: []string{"5", "0", "0", "d2 ", ""}, after: latchIs("", "deleted=d2, gen=1"),
			ttl: long},
		{name: "also if the latch has been set anew",
			before: []string{"SET KEY 2", "HSET RECORD gen 1 deleted d2", "PEXPIRE RECORD 500000"},
			args:   []string{" ", "60000"}, reply: []string{"5", "0", "0", "d2 ", ""}, after: latchIs("2", "deleted=d2, gen=1"),
			ttl: long},
		{name: "the call that set it is part of the mark",
			before: []string{"SET KEY 3", "HSET RECORD gen 1 set s1 until 0 deleted d1", "PEXPIRE RECORD 500000"},
			args:   []string{"-", "60000"}, reply: []string{"1", "3", "-1", "d1 s1", ""},
			after: latchIs("3", "deleted=d1, gen=1, set=s1, until=0"), ttl: long},
		{name: "the same is still closed",
			before: []string{"SET KEY 3", "HSET RECORD gen 1 set s1 until 0 before open_s0", "PEXPIRE RECORD 500000"},
			args:   []string{" s1", "60000"}, reply: []string{"1", "3", "-1", " s1", ""},
			after: latchIs("3", "before=open s0, gen=1, set=s1, until=0"), ttl: long},
		{name: "the message of its opening is told, and the record kept",
			before: []string{"SET KEY 3", "HSET RECORD gen 1 set s1 until 0 opens 0٠", "PEXPIRE RECORD 20000"},
			args:   []string{"-", "60000"}, reply: []string{"1", "3", "-1", " s1", "0٠"},
			after: latchIs("3", "gen=1, opens=0٠, set=s1, until=0"), ttl: map[string]int64{"RECORD": 60_000}},
		{name: "of one that Java has set since it is not",
			before: []string{"SET KEY 3", "HSET RECORD gen 1 set s1 until NOW-5000 opens 0٠", "PEXPIRE RECORD 500000"},
			args:   []string{"-", "60000"}, reply: []string{"1", "3", "-1", " s1", ""}, after: latchIs("3", "gen=2, set=s1"),
			ttl: long},
		{name: "another is there: the caller's opened",
			before: []string{"SET KEY 3", "HSET RECORD gen 1 set s2 until 0 before open_s1", "PEXPIRE RECORD 500000"},
			args:   []string{" s1", "60000"}, reply: []string{"6", "0", "0", " s2", ""},
			after: latchIs("3", "before=open s1, gen=1, set=s2, until=0"), ttl: long},
		{name: "and may have been Java's, without a record",
			before: []string{"SET KEY 3", "HSET RECORD gen 1 set s2 until 0 before open_", "PEXPIRE RECORD 500000"},
			args:   []string{" ", "60000"}, reply: []string{"6", "0", "0", " s2", ""},
			after: latchIs("3", "before=open , gen=1, set=s2, until=0"), ttl: long},
		{name: "another has opened as well",
			before: []string{"HSET RECORD gen 2 set s2 before open_s1", "PEXPIRE RECORD 500000"},
			args:   []string{" s1", "60000"}, reply: []string{"6", "0", "0", " s2", ""},
			after: latchIs("", "before=open s1, gen=2, set=s2"), ttl: long},
		{name: "another is there: the caller's expired",
			before: []string{"SET KEY 3", "HSET RECORD gen 1 set s2 until 0 before expired_s1", "PEXPIRE RECORD 500000"},
			args:   []string{" s1", "60000"}, reply: []string{"7", "0", "0", " s2", ""},
			after: latchIs("3", "before=expired s1, gen=1, set=s2, until=0"), ttl: long},
		{name: "there was one in between: how the caller's ended is not known",
			before: []string{"SET KEY 3", "HSET RECORD gen 1 set s3 until 0 before expired_s2", "PEXPIRE RECORD 500000"},
			args:   []string{" s1", "60000"}, reply: []string{"8", "0", "0", " s3", ""},
			after: latchIs("3", "before=expired s2, gen=1, set=s3, until=0"), ttl: long},
		{name: "the caller's was deleted, and another is there",
			before: []string{"SET KEY 3", "HSET RECORD gen 1 set s2 until 0 before open_s1 deleted d2 gone s1",
				"PEXPIRE RECORD 500000"}, args: []string{"d1 s1", "60000"}, reply: []string{"5", "0", "0", "d2 s2", ""},
			after: latchIs("3", "before=open s1, deleted=d2, gen=1, gone=s1, set=s2, until=0"), ttl: long},
		{name: "another was deleted: the caller's had opened",
			before: []string{"HSET RECORD gen 1 set s2 before open_s1 deleted d2 gone s2", "PEXPIRE RECORD 500000"},
			args:   []string{"d1 s1", "60000"}, reply: []string{"6", "0", "0", "d2 s2", ""},
			after: latchIs("", "before=open s1, deleted=d2, gen=1, gone=s2, set=s2"), ttl: long},
		{name: "deleted, when nothing was known of it any more",
			before: []string{"HSET RECORD gen 1 deleted d2", "PEXPIRE RECORD 500000"}, args: []string{"d1 s1", "60000"},
			reply: []string{"5", "0", "0", "d2 ", ""}, after: latchIs("", "deleted=d2, gen=1"), ttl: long},
		{name: "over, and nothing is remembered", args: []string{" s1", "60000"}, reply: []string{"8", "0", "0", " ", ""}},
		{name: "a deletion that is forgotten is none", args: []string{"d1 ", "60000"},
			reply: []string{"0", "0", "0", " ", ""}},
	})
}

func TestLatchDeleteScriptTable(t *testing.T) {
	t.Parallel()
	args := []string{"call1", "60000", "CHANNEL", "PUBLISH"}
	runCases(t, "latch_delete", latchKeys, []scriptCase{
		{name: "nothing there", args: args, reply: []string{"0"}},
		{name: "removed, told as Redisson does, and said again", before: []string{"SET KEY 3"}, args: args,
			reply: []string{"1"}, after: latchIs("", "deleted=call1, gen=1, gone="), ttl: map[string]int64{"RECORD": 60_000},
			told: []string{"1"}},
		{name: "one with a TTL",
			before: []string{"SET KEY 3 PX 300000", "HSET RECORD gen 7 set s1 until NOW+300000", "PEXPIRE RECORD 600000"},
			args:   args, reply: []string{"1"}, after: latchIs("", "deleted=call1, gen=8, gone=s1, set=s1"),
			ttl: map[string]int64{"RECORD": 60_000}, told: []string{"1"}},
		{name: "one that expired is forgotten",
			before: []string{"HSET RECORD gen 7 until NOW-5000", "PEXPIRE RECORD 500000"}, args: args, reply: []string{"0"},
			after: latchIs("", "gen=8"), ttl: map[string]int64{"RECORD": 500_000}},
		{name: "a second run does not remove what was set since",
			before: []string{"SET KEY 2", "HSET RECORD gen 2 deleted call1", "PEXPIRE RECORD 60000"}, args: args,
			reply: []string{"1"}, after: latchIs("2", "deleted=call1, gen=2"), ttl: map[string]int64{"RECORD": 60_000}},
	})
}
