package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/redlatch/redlatch/internal/chaos/cells"
)

// writeLate writes the table, and the page if it has a name.
func writeLate(markdown string, results []lateResult, out io.Writer) error {
	if markdown == "" {
		_, err := io.WriteString(out, lateTable(results))
		return err
	}
	if err := os.MkdirAll(filepath.Dir(markdown), 0o755); err != nil {
		return err
	}
	return os.WriteFile(markdown, []byte(latePage(results)), 0o644)
}

// number is a number with commas.
func number(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return number(n/1000) + fmt.Sprintf(",%03d", n%1000)
}

func lateTable(results []lateResult) string {
	var b strings.Builder
	b.WriteString("| lock | the resource checks | trials | stopped after its last look | stopped, then looks | " +
		"packet late |\n|---|---|--:|--:|--:|--:|\n")
	for _, r := range results {
		name, check := r.row.lib.Name, checks[r.row.check]
		if r.notRun != nil {
			fmt.Fprintf(&b, "| %s | %s | not run: %s | | | |\n", name, check,
				strings.NewReplacer("\n", " ", "|", "/").Replace(r.notRun.Error()))
			continue
		}
		fmt.Fprintf(&b, "| %s | %s | %s", name, check, number(r.trials()))
		for _, kind := range lateKinds {
			switch c := r.counts[kind]; {
			case c == nil:
				b.WriteString(" | –")
			case c.Lost == 0:
				b.WriteString(" | **0**")
			default:
				b.WriteString(" | " + number(c.Lost))
			}
		}
		b.WriteString(" |\n")
	}
	return b.String()
}

// checks are what a resource checks, to read.
var checks = map[string]string{
	nothing: "nothing",
	guard:   "the token, by `contrib/fence`",
	owner:   "the lock's key, by `IsOwner`",
}

func latePage(results []lateResult) string {
	var b strings.Builder
	fmt.Fprintf(&b, lateHead, cells.Machine())
	b.WriteString(lateTable(results))
	b.WriteString(lateBody)
	b.WriteString("| lock | the resource checks | late writes | taken | refused | withheld | lost |\n" +
		"|---|---|---|--:|--:|--:|--:|\n")
	for _, r := range results {
		for _, kind := range lateKinds {
			if c := r.counts[kind]; c != nil {
				fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", r.row.lib.Name, checks[r.row.check],
					what[kind], number(c.Taken), number(c.Refused), number(c.Withheld), number(c.Lost))
			}
		}
	}
	var releases []string
	for _, r := range results {
		if r.row.check == nothing && r.release != "" {
			releases = append(releases, r.row.lib.Name+" "+r.release)
		}
	}
	if releases != nil {
		fmt.Fprintf(&b, "\nReleases: %s.\n", strings.Join(releases, ", "))
	}
	return b.String()
}

// what are the kinds of late writes, to read.
var what = map[string]string{
	stopped: "stopped after its last look",
	looks:   "stopped, then looks",
	packet:  "packet late",
}

const lateHead = `# Late writes

A holder is stopped (SIGSTOP) until its lease has ended and another holder has the lock. Then its write comes. Locks are
those of [rivals.md](rivals.md), used as it says there, with leases of 1 s. %s.
Written by

` + "```sh" + `
go -C internal/chaos/rivals run . late -markdown ../../../docs/chaos/late.md
` + "```" + `

In a trial the holder acquires a lock, reads an account, and writes one more than it has read. The next holder does the
same. A quarter of the late writes comes before it reads, a quarter between its reading and its writing, a quarter after
both, and a quarter at the same time. An update is lost if the account has less than what was acknowledged.

- **Stopped after its last look:** the holder has the lock, is stopped, and writes.
- **Stopped, then looks:** it is stopped, asks its library, and writes if that says that it holds the lock. What it asks
  is a deadline or a signal in its own process, as in rivals.md. Redisson has none.
- **Packet late:** it has sent its write before it is stopped. A proxy keeps the packet back until the next holder has
  the lock. Packets that are minutes late under a lease of 30 s are the same: what matters is that the lease is over.

Accounts are keys of a Redis of their own; with ` + "`IsOwner`" + ` they are keys of the etcd that has the locks.

## Lost updates

`

const lateBody = `
No lock can prevent this, and none of these libraries is at fault for it. To look before each write helps with redlatch
and redsync, whose deadline passes in the holder's own process: then only what is stopped, or late, after the look is
lost. The signals of the others may come after the look. Only a check where the write is done prevents all of it.

## What each offers for that

| library | token of a holder | check at the resource |
|---|---|---|
| redlatch | ` + "`Fenced`" + ` | [contrib/fence](../fencing.md) |
| redlatch-quorum | if its members are ` + "`Fenced`" + ` | the same |
| redsync | none | none |
| redislock | none in v0.10.0; ` + "`FenceToken`" + ` came after it (pull request 94, June 2026) | none |
| rueidislock | none | none |
| Redisson | ` + "`RFencedLock.lockAndGetToken`" + ` | left to the service |
| etcd | ` + "`Mutex.Header().Revision`" + ` | of its own keys: a transaction with ` + "`Mutex.IsOwner`" + ` |

The tokens of Redisson and of etcd grow from holder to holder, too: our guard checks them as well as ours.
` + "`IsOwner`" + ` refuses every write of a holder whose lease has ended; a guard admits it until the next holder has
advanced.

## All trials

`
