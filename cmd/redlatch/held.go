//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/redlatch/redlatch/rlock"
)

// heldEnv is the variable in which a command finds what its ancestors hold.
const heldEnv = "REDLATCH_HELD"

// held is a lock that an ancestor of this process holds.
type held struct {
	Place string      `json:"place"` // see server.place
	Lock  string      `json:"lock"`
	Owner rlock.Owner `json:"owner"`
	Token int64       `json:"token,omitempty"` // 0: the hold has none
}

func inherited(env string) (all []held, err error) {
	if env == "" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(env), &all); err != nil {
		return nil, fmt.Errorf("%q is not what redlatch run writes: %w", env, err)
	}
	return all, nil
}

// joined is the hold of an ancestor that this job joins.
func (j *job) joined() (held, bool) {
	for _, h := range j.inherited {
		if j.lock != "" && !j.apart && h.Lock == j.lock && h.Place == j.place {
			return h, true
		}
	}
	return held{}, false
}

// environ is what the command finds in its environment, besides what this process found in its own.
func (j *job) environ(c claim) (env []string) {
	if j.server.url != "" {
		env = append(env, "REDLATCH_REDIS="+j.server.url)
	}
	if j.semaphore != "" {
		return append(env, "REDLATCH_SEMAPHORE="+j.semaphore)
	}
	if j.election { // its lock is nothing that a command could join
		return append(env, "REDLATCH_ELECTION="+j.lock, "REDLATCH_TOKEN="+strconv.FormatInt(c.token(), 10))
	}
	mine := held{Place: j.place, Lock: j.lock, Owner: c.owner(), Token: c.token()}
	all := []held{mine}
	for _, h := range j.inherited {
		if h.Lock != mine.Lock || h.Place != mine.Place {
			all = append(all, h)
		}
	}
	text, _ := json.Marshal(all) // of strings and numbers
	token := ""                  // not that of another lock
	if mine.Token != 0 {
		token = strconv.FormatInt(mine.Token, 10)
	}
	return append(env, "REDLATCH_LOCK="+j.lock, "REDLATCH_OWNER="+string(mine.Owner), "REDLATCH_TOKEN="+token,
		heldEnv+"="+string(text))
}
