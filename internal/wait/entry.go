package wait

import (
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/script"
)

// EntryMode is the kind of lock or permit for which a waiter waits.
type EntryMode byte

// The modes of entries.
const (
	EntryHash    EntryMode = 'x' // a lock that is a hash
	EntryString  EntryMode = 'p' // a lock that is a string
	EntryReader  EntryMode = 'r'
	EntryWriter  EntryMode = 'w'
	EntryPermits EntryMode = 'n'
	EntryShare   EntryMode = 't' // permits of a tenant
)

// entryVersion is the version of the layout of an entry. The fields of version 1 keep their meaning in later versions.
const entryVersion = "1"

// Entry is the content of a waiter's entry in a queue on the server. entry.lua of package script has the layout.
type Entry struct {
	Mode     EntryMode
	Amount   int           // of permits; 0 for a lock, written as 1
	First    time.Duration // the lease that a hand-over writes; EntryString: how long a free lock is reserved
	Stale    time.Duration // the entry counts as dead after this time without a request
	LeavesAt int64         // server's ms; the waiter is handed nothing from then on; 0: not known
	Process  string        // 36 bytes
	Rest     string        // the end of the owner's id; for permits base, share of a tenant and label
}

// processLength is the length of a process's id.
const processLength = 36

// OwnerEntry returns the entry of an owner of a lock. The id of its process begins the owner's id.
func OwnerEntry(mode EntryMode, owner string, first, stale time.Duration) Entry {
	end := min(processLength, len(owner))
	return Entry{Mode: mode, First: first, Stale: stale, Process: owner[:end], Rest: owner[end:]}
}

// Owner returns the id of a lock's owner.
func (e *Entry) Owner() string { return e.Process + e.Rest }

// Text returns the entry as it is written into the queue.
func (e *Entry) Text() string {
	var room [192]byte
	text := append(append(room[:0], entryVersion+" "...), byte(e.Mode))
	text = strconv.AppendInt(append(text, ' '), int64(max(1, e.Amount)), 10)
	text = script.AppendMillis(append(text, ' '), e.First)
	text = script.AppendMillis(append(text, ' '), e.Stale)
	text = strconv.AppendInt(append(text, ' '), e.LeavesAt, 10)
	text = append(append(text, ' '), e.Process...)
	text = append(text, " - "...) // the owners that the waiter's context carries: none yet
	return string(append(text, e.Rest...))
}

// ReadEntry reads an entry of this or a later version. ok is false for any other text.
func ReadEntry(text string) (entry Entry, ok bool) {
	const fieldCount = 9
	fields := strings.SplitN(text, " ", fieldCount)
	if len(fields) != fieldCount || len(fields[1]) != 1 {
		return Entry{}, false
	}
	if _, err := strconv.ParseUint(fields[0], 10, 16); err != nil {
		return Entry{}, false
	}
	var numbers [4]int64
	for i := range numbers {
		number, err := strconv.ParseInt(fields[2+i], 10, 64)
		if err != nil || number < 0 {
			return Entry{}, false
		}
		numbers[i] = number
	}
	return Entry{
		Mode:     EntryMode(fields[1][0]),
		Amount:   int(numbers[0]),
		First:    script.Duration(numbers[1]),
		Stale:    script.Duration(numbers[2]),
		LeavesAt: numbers[3],
		Process:  fields[6],
		Rest:     fields[8],
	}, true
}
