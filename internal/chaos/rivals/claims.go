package main

import (
	"time"

	"github.com/redlatch/redlatch/internal/chaos/cells"
)

// atOnce is what "at once" may take on a busy machine.
const atOnce = 50 * time.Millisecond

// aThird is of a lease.
const aThird = time.Second / 3

var (
	ofClients = []string{"none", "holder killed", "holder paused", "requests lost", "replies lost", "network lost",
		"lost reply"}
	ofServers = []string{"server paused", "server stalls", "server killed"}
	// exempt are the faults in which docs/safety.md allows two holders on one server, or behind Sentinel.
	exempt = []string{"restart empty", "FLUSHALL", "clock forward", "failover", "failover that forgets", "split brain"}
	// answered are those in which no reply is lost. Where one is, a release that is sent again finds the lock gone.
	answered = append(append([]string{"none", "holder killed", "holder paused", "requests lost", "network lost"},
		ofServers...), exempt...)
	// kept are those in which no key is lost and no clock is set.
	kept = append(append([]string{"clock back"}, ofClients...), ofServers...)
)

// Pages that have no versions, as they were in August 2026.
const (
	redisPage    = "Redis's page \"Distributed Locks with Redis\""
	redissonPage = "Redisson's page \"Locks and synchronizers\""
)

// claims are what documents say of the locks, in our words, and what in these cells shows that it is so or not.
var claims = []cells.Claim{
	{
		Library: "redlatch", Doc: "docs/guarantees.md", Faults: kept, Shows: cells.TwoHolders,
		Text: "one owner at a time, if each stops at `Hold.Until` or with its context",
	},
	{
		Library: "redlatch", Doc: "docs/safety.md", Faults: exempt, Shows: cells.TwoHolders, Warns: true,
		Text: "lost keys, a replica that lacks writes, and a clock that jumps ahead let two hold it",
	},
	{
		Library: "redlatch", Doc: "docs/guarantees.md", Faults: ofClients, Shows: cells.Stalls,
		Text: "a dead holder blocks others for its lease, and a free lock is taken at once",
	},
	{
		Library: "redlatch-quorum", Doc: "docs/guarantees.md", Faults: kept, Shows: cells.TwoHolders,
		Text: "one owner at a time, with a minority of the servers failing",
	},
	{
		Library: "redsync", Doc: "redsync's README", Shows: cells.AnyLoss, Faults: answered,
		Text: "after `Lock` no other obtains the lock before `Unlock`",
	},
	{
		Library: "redsync", Doc: "redsync's reference (`Until`)", Faults: kept, Shows: cells.TwoHolders,
		Text: "an acquired lock is valid until `Until`",
	},
	{
		Library: "redsync-quorum", Doc: redisPage + ", to which redsync's README refers", Faults: kept,
		Shows: cells.TwoHolders,
		Text: "with a majority of independent servers one client at a time holds the lock, if it ends its work within the " +
			"lock's validity",
	},
	{
		Library: "redsync-quorum", Doc: redisPage, Faults: []string{"restart empty"},
		Shows: cells.TwoHolders, Warns: true,
		Text: "a server that restarts without its data, before all leases have ended, can let a second client in",
	},
	{
		Library: "redsync-quorum", Doc: redisPage, Faults: []string{"clock forward"},
		Shows: cells.TwoHolders, Warns: true,
		Text: "servers expire keys by their wall clock: a step of it can let a second client in",
	},
	{
		Library: "redislock", Doc: "redislock's README (watchdog)", Shows: cells.TwoHolders,
		Faults: append([]string{"FLUSHALL", "restart empty", "clock forward"}, kept...), Within: aThird + atOnce,
		Text: "work under the watchdog's context stops when the lock cannot be refreshed, which is tried at each third of " +
			"a lease",
	},
	{
		Library: "rueidislock", Doc: "rueidislock's README",
		Faults: append([]string{"FLUSHALL", "restart empty"}, ofServers...), Shows: cells.TwoHolders, Within: atOnce,
		Text: "the context ends at once when Redis is down or the key was deleted",
	},
	{
		Library: "rueidislock", Doc: "rueidislock's README", Faults: ofClients, Shows: cells.TwoHolders, Within: atOnce,
		Text: "the context ends at once when the lock is not held any more, for any other reason",
	},
	{
		Library: "rueidislock", Doc: "rueidislock's README", Shows: cells.Stalls,
		Text: "a waiting `WithContext` tries again at once when the lock was released",
	},
	{
		Library: "redisson", Doc: redissonPage, Shows: cells.AnyLoss,
		Faults: []string{"none", "requests lost", "network lost"},
		Text:   "the watchdog prolongs the lock as long as the Redisson instance that holds it is alive",
	},
	{
		Library: "redisson", Doc: "Redisson's page \"Configuration\" (`lockWatchdogTimeout`)",
		Faults: []string{"holder killed"}, Shows: cells.Stalls,
		Text: "the lock of a holder that crashed ends with the watchdog's timeout",
	},
	{
		Library: "redisson", Doc: redissonPage + ", fencing", Faults: []string{"holder paused"},
		Shows: cells.TwoHolders, Warns: true,
		Text: "a client that paused may believe that it holds the lock; the resource must check the token of an RFencedLock",
	},
	{
		Library: "redisson", Doc: redissonPage + ", `checkLockSyncedSlaves`",
		Faults: []string{"failover", "failover that forgets", "split brain"}, Shows: cells.TwoHolders,
		Text: "by default a lock that replicas have not confirmed within a second is not kept, so that no failover loses it",
	},
	{
		Library: "redisson", Doc: "Java's `Lock`, whose specification " + redissonPage + " refers to",
		Shows: cells.TwoHolders,
		Text:  "commonly, one thread at a time acquires it",
	},
	{
		Library: "etcd", Doc: "etcd's page \"etcd versus other key-value stores\" (v3.6), on locks and leases",
		Faults: ofClients, Shows: cells.TwoHolders, Warns: true,
		Text: "a lease alone does not exclude, as client and server measure it by clocks of their own: what is written " +
			"must be conditional on a revision",
	},
	{
		Library: "etcd", Doc: "etcd's reference (`Session.Done`)", Faults: append([]string{"none"}, ofServers...),
		Shows: cells.TwoHolders,
		Text:  "`Done` is closed when the lease is orphaned, has run out, or is not refreshed",
	},
}
