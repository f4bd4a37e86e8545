//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
	"github.com/spf13/pflag"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/script"
)

// search finds the names of what is held, by SCAN.
type search struct {
	*tool
	match     string
	rate, max int
}

func (s *search) flags(f *pflag.FlagSet) {
	s.rate, s.max = 20_000, 1000
	f.StringVar(&s.match, "match", "*", "without names: glob `pattern` of names, as in SCAN")
	f.Var(between(&s.rate, 1, 10_000_000), "rate", "without names: most `keys` to scan a second, on each node")
	f.Var(between(&s.max, 1, 1_000_000), "max", "without names: most `names` to show")
}

var globChars = strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `\`, `\\`)

// names are those of the locks and semaphores that are held, sorted; with an error those that were found before it.
func (s *search) names(ctx context.Context, c rueidis.Client) ([]string, error) {
	found := map[string]bool{} // SCAN may tell a key twice
	pause := pageOf * time.Second / time.Duration(s.rate)
	began := time.Now()
	err := eachPage(ctx, c, globChars.Replace(s.server.prefix)+s.match,
		func(node rueidis.Client, keys []string) (bool, error) {
			held, err := s.held(ctx, node, keys)
			for _, key := range held {
				found[strings.TrimPrefix(key, s.server.prefix)] = true
			}
			if err != nil || len(found) >= s.max {
				return false, err
			}
			script.Pause(ctx, time.Until(began.Add(pause)))
			began = time.Now()
			return true, ctx.Err()
		})
	if len(found) >= s.max {
		s.say("stopped after --max %d names; there may be more", s.max)
	}
	if errors.Is(err, redlatch.ErrDenied) {
		err = fmt.Errorf("%w: without names, inspect also needs +scan (redlatch acl --only inspect)", err)
	}
	return slices.Sorted(maps.Keys(found)), err
}

// pageOf is over how many keys a server goes in a call of SCAN.
const pageOf = 500

// eachPage calls do with the keys that match a glob pattern, page by page, on every primary. It goes on while
// do returns more.
func eachPage(ctx context.Context, c rueidis.Client, match string,
	do func(node rueidis.Client, keys []string) (more bool, err error)) error {
	for _, node := range c.Nodes() {
		info, err := node.Do(ctx, node.B().Info().Section("replication").Build()).ToString()
		if err != nil {
			return script.Explain("INFO", err)
		}
		if strings.Contains(info, "role:slave") {
			continue // its primary is among the nodes
		}
		for cursor, more := uint64(0), true; more; more = more && cursor > 0 {
			words := []string{"SCAN", strconv.FormatUint(cursor, 10), "MATCH", match, "COUNT", strconv.Itoa(pageOf)}
			page, err := node.Do(ctx, node.B().Arbitrary(words...).Build()).AsScanEntry()
			if err != nil {
				return script.Explain("SCAN", err)
			}
			if more, err = do(node, page.Elements); err != nil || !more {
				return err
			}
			cursor = page.Cursor
		}
	}
	return nil
}

// ownerText is an owner as this library and Redisson write it.
var ownerText = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}:`)

// longest is how long a string can be that is a lock: an owner with a label, escaped.
const longest = 1024

// held are those of the keys that look like locks that are held, or semaphores of which permits are out. Of each key it
// reads a few bytes, as a hash and as a string, in two batches for the page.
func (s *search) held(ctx context.Context, node rueidis.Client, keys []string) (names []string, err error) {
	keys = slices.DeleteFunc(keys, func(k string) bool {
		return strings.HasPrefix(k, "redlatch_") || strings.HasPrefix(k, "redisson_") || strings.HasPrefix(k, "rc:") ||
			keyname.Check(k) != nil
	})
	var looks, exists rueidis.Commands
	for _, k := range keys {
		looks = append(looks, node.B().Hscan().Key(k).Cursor(0).Count(8).Build(),
			node.B().Getrange().Key(k).Start(0).End(longest).Build())
	}
	var maybe []string
	for i, r := range node.DoMulti(ctx, looks...) {
		k := keys[i/2]
		texts := []string{""}
		if i%2 == 0 {
			var page rueidis.ScanEntry
			page, err = r.AsScanEntry()
			texts = page.Elements // fields and their values
		} else {
			texts[0], err = r.ToString()
		}
		switch {
		case err != nil && strings.HasPrefix(err.Error(), "WRONGTYPE"):
		case err != nil:
			return nil, script.Explain("read", err)
		case slices.ContainsFunc(texts, ownerText.MatchString):
			names = append(names, k)
		case i%2 == 1 && texts[0] != "" && strings.Trim(texts[0], "-0123456789") == "": // permits, if another key says so
			maybe = append(maybe, k)
			exists = append(exists, node.B().Exists().Key(keyname.Suffix(keyname.Own(k), "timeout")).Build())
		}
	}
	for i, r := range node.DoMulti(ctx, exists...) {
		if n, err := r.AsInt64(); err == nil && n > 0 {
			names = append(names, maybe[i])
		}
	}
	return names, nil
}
