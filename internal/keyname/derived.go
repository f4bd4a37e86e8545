package keyname

import (
	"slices"
	"strings"
)

// Derived are the prefixes of the keys and channels that objects have besides their main key, ours and Redisson's.
// Prefix puts one before the name of the object. TestKeys_Prefixes_AreListed finds prefixes that are missing here.
var Derived = []string{
	// locks and elections
	"redlatch_queue", // permits, too
	"redlatch_plain",
	"redlatch_fair",
	"redlatch_rw",
	"redlatch_rwq",
	"redlatch_kept",
	"redlatch_blocked",
	"redlatch_alive",
	"redlatch_grant",
	"redlatch_fence", // contrib/fence
	"redlatch_k8s",   // contrib/k8s
	"redlatch_leader",
	"redlatch_workers",
	"redisson_lock__channel",
	"redisson_lock_queue",
	"redisson_lock_timeout",
	"redisson_lock_token",
	"redisson_rwlock",
	"redisson_unlock_latch",
	// permits, latches and barriers
	"redisson_sc",
	"redisson_countdownlatch__channel__",
	"redlatch_barrier",
	// sales, red packets, limits, and the records of counters
	"rc",
}

// Endings are the suffixes of such keys. Suffix puts one behind the name of the object. TestKeys_Suffixes_AreListed
// finds suffixes that are missing here.
var Endings = []string{
	"timeout", "notes", "token", // permits
	"weights", "weighted",
	"shares", "weighted_shares",
	"latch",
	"barrier",
	"once", "answer",
}

// readerTimeouts stands behind the name and the owner in the keys of the holds of Redisson's readers.
const readerTimeouts = ":rwlock_timeout:"

// Mark returns the counting channel for a channel of Redisson's, and "" for every other channel. A process of this
// library subscribes to both, so that a script can tell its subscription from a Java process's (lua/listeners.lua of
// package script). Both channels are in the same slot.
func Mark(channel string) string {
	switch prefix, _, _ := strings.Cut(channel, ":"); prefix {
	case "redisson_lock__channel", "redisson_rwlock", "redisson_sc":
		return grantPrefix + channel
	}
	return ""
}

// grantPrefix is the prefix of the counting channels, and of the channels on which a process receives grants.
const grantPrefix = "redlatch_grant:"

// Counted reports whether scripts count the subscribers of a channel.
func Counted(channel string) bool {
	return strings.HasPrefix(channel, grantPrefix) || Mark(channel) != ""
}

// ownerReason says how key shows that it belongs to another object besides that object's main key, such as "ends with
// :timeout"; "" if it does not. Except for heartbeats, the name of that object is in braces, or has braces:
// "order:7:timeout" is not a key of a semaphore, and "{order:7}:timeout" is.
func ownerReason(key string) string {
	for _, prefix := range Derived {
		rest, ok := strings.CutPrefix(key, prefix)
		if !ok {
			continue
		}
		name, colon := strings.CutPrefix(rest, ":")
		if colon && (strings.IndexByte(name, '{') >= 0 || prefix == "redlatch_alive") ||
			!colon && prefix == "redisson_countdownlatch__channel__" && strings.HasPrefix(rest, "{") {
			return "begins with " + prefix
		}
	}
	name, ending := key, ""
	if colonAt := strings.LastIndexByte(key, ':'); colonAt >= 0 {
		name, ending = key[:colonAt], key[colonAt+1:]
	}
	switch {
	case strings.IndexByte(name, '{') < 0:
	case slices.Contains(Endings, ending):
		return "ends with :" + ending
	case strings.Contains(key[strings.IndexByte(key, '{'):], readerTimeouts):
		return "has " + readerTimeouts + " in it"
	}
	return ""
}
