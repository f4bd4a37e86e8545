//go:build unix

package main

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"
	"github.com/spf13/pflag"

	"github.com/redlatch/redlatch/internal/keyname"
)

// search finds the names of what is held, by SCAN.
type search struct {
	*tool
	match            string
	count, rate, max int
}

func (s *search) flags(f *pflag.FlagSet) {
	f.StringVar(&s.match, "match", "*", "without names: only names that match this glob `pattern`, as in SCAN")
	f.IntVar(&s.count, "count", 500, "without names: go over so many keys in a call")
	f.IntVar(&s.rate, "rate", 20000, "without names: go over so many keys a second at most, on each node")
	f.IntVar(&s.max, "max", 1000, "without names: stop after so many")
}

// check refuses flags and names that cannot be used.
func (s *search) check(names []string, given func(flag string) bool) error {
	for _, name := range names {
		if err := keyname.Check(s.server.prefix + name); err != nil {
			return usage("name %q: %w", name, err)
		}
		if given("match") {
			return usage("--match %q is for a search, which takes no names", s.match)
		}
	}
	for _, n := range []struct {
		flag  string
		value int
		most  int
	}{{"count", s.count, 10_000}, {"rate", s.rate, 10_000_000}, {"max", s.max, 1_000_000}} {
		if n.value < 1 || n.value > n.most {
			return usage("--%s %d: must be from 1 to %d", n.flag, n.value, n.most)
		}
	}
	return nil
}

var globChars = strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `\`, `\\`)

// names are those of the locks and semaphores that are held, sorted; with an error those that were found before it.
func (s *search) names(ctx context.Context, c rueidis.Client) ([]string, error) {
	found := map[string]bool{} // SCAN may tell a key twice
	err := primaries(ctx, c, func(node rueidis.Client) error { return s.scan(ctx, node, found) })
	if len(found) >= s.max {
		s.say("stopped after --max %d names; there may be more", s.max)
	}
	return slices.Sorted(maps.Keys(found)), err
}

// primaries calls do with every node that is not a replica, until an error.
func primaries(ctx context.Context, c rueidis.Client, do func(node rueidis.Client) error) error {
	for _, node := range c.Nodes() {
		info, err := node.Do(ctx, node.B().Info().Section("replication").Build()).ToString()
		if err != nil {
			return fmt.Errorf("INFO: %w", denied(err))
		}
		if strings.Contains(info, "role:slave") {
			continue // its primary is among the nodes
		}
		if err := do(node); err != nil {
			return err
		}
	}
	return nil
}

func (s *search) scan(ctx context.Context, node rueidis.Client, found map[string]bool) error {
	pause := time.Duration(s.count) * time.Second / time.Duration(s.rate)
	for cursor := uint64(0); ; {
		began := time.Now()
		page, err := node.Do(ctx,
			node.B().Scan().Cursor(cursor).Match(globChars.Replace(s.server.prefix)+s.match).Count(int64(s.count)).Build()).
			AsScanEntry()
		if err != nil {
			err = denied(err)
			if exitCode(err) == exitDenied {
				err = fmt.Errorf("%w: to search, the user needs +scan besides the rights of programs (redlatch acl --only "+
					"inspect); with names inspect does not search", err)
			}
			return fmt.Errorf("SCAN: %w", err)
		}
		held, err := s.held(ctx, node, page.Elements)
		if err != nil {
			return err
		}
		for _, key := range held {
			found[strings.TrimPrefix(key, s.server.prefix)] = true
		}
		if cursor = page.Cursor; cursor == 0 || len(found) >= s.max {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Until(began.Add(pause))):
		}
	}
}

// ownerText is an owner as this library and Redisson write it.
var ownerText = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}:`)

// longest is how long a string can be that is a lock: an owner with a label, escaped.
const longest = 1024

// held are those of the keys that look like locks that are held, or semaphores of which permits are out. Of each key it
// reads a few bytes, in two batches for the page.
func (s *search) held(ctx context.Context, node rueidis.Client, keys []string) (names []string, err error) {
	keys = slices.DeleteFunc(keys, func(k string) bool {
		return strings.HasPrefix(k, "redlatch_") || strings.HasPrefix(k, "redisson_") || strings.HasPrefix(k, "rc:") ||
			keyname.Check(k) != nil
	})
	var types rueidis.Commands
	for _, k := range keys {
		types = append(types, node.B().Type().Key(k).Build())
	}
	var asked []string
	var looks rueidis.Commands
	for i, r := range node.DoMulti(ctx, types...) {
		kind, err := r.ToString()
		if err != nil {
			return nil, fmt.Errorf("TYPE: %w", denied(err))
		}
		switch k := keys[i]; kind {
		case "hash":
			asked, looks = append(asked, k), append(looks, node.B().Hscan().Key(k).Cursor(0).Count(8).Build())
		case "string":
			asked, looks = append(asked, k), append(looks, node.B().Getrange().Key(k).Start(0).End(longest).Build())
		}
	}
	var maybe []string
	var exists rueidis.Commands
	for i, r := range node.DoMulti(ctx, looks...) {
		lock, permits, err := looksHeld(r)
		if err != nil {
			return nil, err
		}
		switch k := asked[i]; {
		case lock:
			names = append(names, k)
		case permits:
			maybe, exists = append(maybe, k), append(exists, node.B().Exists().Key(keyname.Suffix(k, "timeout")).Build())
		}
	}
	for i, r := range node.DoMulti(ctx, exists...) {
		if n, err := r.AsInt64(); err == nil && n > 0 {
			names = append(names, maybe[i])
		}
	}
	return names, nil
}

// looksHeld says of a key's first fields, or its text, whether they are those of a lock, or of a semaphore if another
// key says so too.
func looksHeld(r rueidis.RedisResult) (lock, permits bool, err error) {
	if e, err := r.AsScanEntry(); err == nil {
		for f := 0; f < len(e.Elements); f += 2 {
			if ownerText.MatchString(e.Elements[f]) {
				return true, false, nil
			}
		}
		return false, false, nil
	}
	text, err := r.ToString()
	switch {
	case err == nil || rueidis.IsRedisNil(err):
		return ownerText.MatchString(text), text != "" && strings.Trim(text, "-0123456789") == "", nil
	case strings.HasPrefix(err.Error(), "WRONGTYPE"): // it changed meanwhile
		return false, false, nil
	}
	return false, false, denied(err)
}

// denied gives the server's refusal of a right its exit code; what else it is remains a failure of the server.
func denied(err error) error {
	if strings.HasPrefix(err.Error(), "NOPERM") {
		return coded{exitDenied, err}
	}
	if e, ok := rueidis.IsRedisErr(err); ok {
		return coded{exitSoftware, e}
	}
	return coded{exitServer, err}
}
