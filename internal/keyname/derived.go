package keyname

import (
	"slices"
	"strings"
)

// Derived are the prefixes of the keys and channels that objects have besides their main key, ours and Redisson's:
// Prefix puts one before the name of the object. TestKeys_Prefixes_AreListed finds those that are missing here.
var Derived = []string{
	// of locks and elections
	"redlatch_queue", // also of permits
	"redlatch_plain",
	"redlatch_fair",
	"redlatch_rw",
	"redlatch_rwq",
	"redlatch_kept",
	"redlatch_alive",
	"redlatch_grant",
	"redlatch_fence", // of contrib/fence
	"redlatch_k8s",   // of contrib/k8s
	"redlatch_leader",
	"redlatch_workers",
	"redisson_lock__channel",
	"redisson_lock_queue",
	"redisson_lock_timeout",
	"redisson_lock_token",
	"redisson_rwlock",
	"redisson_unlock_latch",
	// of permits, latches and barriers
	"redisson_sc",
	"redisson_countdownlatch__channel__",
	"redlatch_barrier",
	// of stocks, red packets, limits and what counters remember
	"rc",
	"redlatch_stock",
}

// Endings are what other keys of that sort end with: Suffix puts one behind the name of the object.
// TestKeys_Suffixes_AreListed finds those that are missing here.
var Endings = []string{
	"timeout", "notes", "token", // of permits
	"weights", "weighted",
	"latch",
	"barrier",
}

// reader is what the keys of the holds of Redisson's readers have behind the name and the owner.
const reader = ":rwlock_timeout:"

// Mark returns the channel to which a process of this library subscribes together with a channel of Redisson's, so that
// a script can tell its listening from a Java process's (lua/listeners.lua of package script). It is in the same slot.
// For all other channels it is "".
func Mark(channel string) string {
	switch prefix, _, _ := strings.Cut(channel, ":"); prefix {
	case "redisson_lock__channel", "redisson_rwlock", "redisson_sc":
		return grant + channel
	}
	return ""
}

// grant is what stands before the marks, and before what a process listens to for what it is handed.
const grant = "redlatch_grant:"

// Counted reports whether scripts ask who listens to a channel.
func Counted(channel string) bool { return strings.HasPrefix(channel, grant) || Mark(channel) != "" }

// derived says how key shows that another object has it besides its own key, such as "ends with :timeout"; "" if none
// has. The name of that object is in braces, or has braces, but for heartbeats: "order:7:timeout" is not a key of a
// semaphore, and "{order:7}:timeout" is.
func derived(key string) string {
	for _, p := range Derived {
		rest, ok := strings.CutPrefix(key, p)
		if !ok {
			continue
		}
		name, colon := strings.CutPrefix(rest, ":")
		if colon && (strings.IndexByte(name, '{') >= 0 || p == "redlatch_alive") ||
			!colon && p == "redisson_countdownlatch__channel__" && strings.HasPrefix(rest, "{") {
			return "begins with " + p
		}
	}
	name, ending := key, ""
	if i := strings.LastIndexByte(key, ':'); i >= 0 {
		name, ending = key[:i], key[i+1:]
	}
	switch {
	case strings.IndexByte(name, '{') < 0:
	case slices.Contains(Endings, ending):
		return "ends with :" + ending
	case strings.Contains(key[strings.IndexByte(key, '{'):], reader):
		return "has " + reader + " in it"
	}
	return ""
}
