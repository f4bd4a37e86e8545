package contract_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// verbColumns are the primitives, in the order of the columns of the second table of testdata/promises.md.
var verbColumns = []string{"reentrant", "non-reentrant", "fenced", "fair", "read", "write", "plain", "spin", "multi",
	"quorum", "semaphore", "weighted", "counting", "latch", "barrier", "election", "shards", "once", "counter", "sale",
	"packet", "limiter"}

// primitiveOf is whose verb it is: "Lock.Lock of Fair" is fair's.
func primitiveOf(verb string) string {
	typ, _, _ := strings.Cut(verb, ".")
	_, kind, _ := strings.Cut(verb, " of ")
	switch typ {
	case "Lock", "Hold":
		if lockKinds[kind] != nil {
			return columnOf(kind)
		}
		return "reentrant"
	case "Election", "Leadership":
		return "election"
	case "Shards":
		return "shards"
	case "Semaphore", "Permit":
		if kind == "weights" {
			return "weighted"
		}
		return "semaphore"
	case "CountingSemaphore":
		return "counting"
	case "CountDownLatch":
		return "latch"
	case "CyclicBarrier":
		return "barrier"
	case "Limiter", "Reservation", "Charge", "Client":
		return "limiter"
	}
	return strings.ToLower(typ) // Once, Counter, Packet, Sale; Hub has no column
}

// verbPromise is a promise of all verbs: the test that shows it, and whose verbs that calls.
type verbPromise struct {
	promise string
	test    func(t *testing.T)
	of      []string
}

// verbPromises are the rows of the second table of testdata/promises.md.
func verbPromises(t *testing.T) []verbPromise {
	red := open(t, redistest.Embedded(t), redlatch.Options{})
	owners := func(all ...verbs) (of []string) {
		for _, v := range all {
			for verb := range v {
				of = append(of, primitiveOf(verb))
			}
		}
		return of
	}
	none := func(context.Context) error { return nil }
	asked := unwaiting(t, red, red)
	waits, gives := waiting(red, lasting, none), releases(t, open(t, redistest.Embedded(t), redlatch.Options{}))
	var used, spoilt []string
	for _, u := range usesOf(t.Context(), red, "x") {
		used = append(used, u.primitive)
		if spoils[u.primitive] != nil || packageOf(u.primitive) == "rlock" {
			spoilt = append(spoilt, u.primitive)
		}
	}
	var argued, hostile []string
	for _, tables := range []map[string]map[error]refusals{badOfLocks(t, red), badOfPermits(t, red), badOfSales(t, red),
		badOfCounts(t, red, red)} {
		argued = slices.AppendSeq(argued, maps.Keys(tables))
	}
	for _, kinds := range []map[string]scenes{lockPairs(), semaphoreKinds(), counterKinds()} {
		for kind := range kinds {
			hostile = append(hostile, hostileColumns(kind)...)
		}
	}
	return []verbPromise{
		{"a bad name is refused, and nothing is sent", TestVerb_BadName_IsRefusedUnsent, used},
		{"a bad argument is named with its value, and nothing is sent", TestVerb_BadArgument_IsNamedUnsent, argued},
		{"a context that has ended ends it, and its cause is named", TestVerb_ContextEnded_NamesTheCause, used},
		{"a closed client or hub is ErrClosed, and nothing is sent", TestVerb_ClientOrHubClosed_IsErrClosed, used},
		{"no name has a key of another's, and calls are of one slot", TestNames_KeysOfEveryKind_AreNoOtherNames, used},
		{"a key of another type is ErrWrongType, and nothing is made", TestVerb_KeyOfAnotherType_IsErrWrongType, spoilt},
		{"a hostile value under its keys is an error, and works afterwards", TestHostileValues_EveryKind_AreErrWrongType,
			hostile},
		{"a withdrawn right is ErrDenied", TestRights_Withdrawn_EveryVerbIsErrDenied, owners(asked, waits)},
		{"a reply of another kind is an error", TestVerb_ReplyOfAnotherKind_IsAnError, owners(asked, gives)},
		{"a server that is away is said within one CallTimeout", TestOutage_CallDoesNotWait_EndsWithinOneCallTimeout,
			owners(asked)},
		{"a call that waits ends in time while the server is away", TestOutage_CallWaits_EndsInTimeAndGrantsNothing,
			owners(waits)},
		{"of a lost request or reply it acts once, or says that it may", TestLostReply_EveryVerb_ActsOnceOrSaysSo,
			owners(asked)},
		{"a call is made in its caller's context", TestSpan_EveryCall_IsOfItsCallersContext, owners(asked, gives, waits)},
		{"it makes one call, or as many as its doc says", TestCost_EveryVerb_IsOneRoundTrip, owners(asked, gives)},
	}
}

// hostileColumns are the primitives of a kind of objects with hostile values.
func hostileColumns(kind string) []string {
	switch kind = columnOf(kind); kind {
	case "readwrite", "writeread":
		return []string{"read", "write"}
	case "stored", "sliding", "fixed":
		return []string{"limiter"}
	}
	return []string{kind}
}

// whyNot are the reasons for what the second table does not show, by primitive; "" is for all others.
var whyNot = map[string]string{
	"quorum": "The calls of a Quorum are those of its members, which are non-reentrant locks of several servers.",
	"":       "It has no such verbs, or they are those of another primitive, or another row shows it.",
}

// verbTable is promise × the primitives whose verbs it covers.
func verbTable(t *testing.T) string {
	page := promiseTable{columns: verbColumns}
	for _, p := range verbPromises(t) {
		page.add(p.promise, func(column int) (prefix, why string) {
			if slices.Contains(p.of, verbColumns[column]) {
				return "", ""
			}
			if why, own := whyNot[verbColumns[column]]; own {
				return "", why
			}
			return "", whyNot[""]
		})
	}
	return page.text("every verb")
}
