// Package profiles says what the servers and proxies of providers refuse, by their documents, and makes a proxy of the
// tests refuse the same. It stands in for what cannot be had here: what is behind it is a redis-server, so it shows
// what the library does about a refusal, and nothing else of a provider.
//
// What users reported, and a provider's documents do not say, names the report. What neither says is Assumed.
package profiles

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/redistest"
)

// Profile is what a provider refuses.
type Profile struct {
	Name string
	// Source are the pages and reports, with the dates that they bear, or on which their stored copies were read.
	Source string
	// Refuses are the commands of those that redlatch sends, or its rueidis client.
	Refuses []Refusal
	// Literal: a script is refused where it does not name its commands and the elements of KEYS in its calls.
	Literal bool
	// OneSlot is the error's text for a script with keys of several slots; "": it runs, or nothing is known.
	OneSlot string
	// Limits are what else the documents say that is not tried here.
	Limits string

	// Lacks are the commands in pubsub.Stats.Lacks after the core of the tests has run, in their order.
	Lacks []string
	// Open is what the error of redlatch.Open says, "" where it works, and MinReplicas that of Open with MinReplicas.
	Open, MinReplicas string
	// Fails is what the error of the features says that work nowhere but by a refused command; by feature, "all" for all.
	Fails map[string]string
}

// Refusal is one command, and what becomes of it.
type Refusal struct {
	Command string // with a subcommand or first arguments: "CLIENT TRACKING"
	// Says is the error's text; in it %s is the command, or its first word for what ends with a subcommand of its own.
	// "" with Fate.
	Says string
	// Fate, if there is no error: LoseRequest closes the connection, LoseRequestSilently has nothing answered on it.
	Fate redistest.Fate
	// Assumed: no document says so.
	Assumed bool
}

//go:embed profiles.json
var file []byte

// All are the profiles.
var All = read()

// read reads profiles.json. There Refuses and Assumed have the commands by the error's text; Loses and Silent are
// commands of which no document says what becomes of them.
func read() (all []Profile) {
	var documents []struct {
		Profile
		Refuses, Assumed map[string][]string
		Loses, Silent    []string
	}
	in := json.NewDecoder(bytes.NewReader(file))
	in.DisallowUnknownFields()
	if err := in.Decode(&documents); err != nil {
		panic(err)
	}
	for _, d := range documents {
		p := d.Profile
		add := func(commands []string, r Refusal) {
			for _, r.Command = range commands {
				p.Refuses = append(p.Refuses, r)
			}
		}
		for says, commands := range d.Refuses {
			add(commands, Refusal{Says: says})
		}
		for says, commands := range d.Assumed {
			add(commands, Refusal{Says: says, Assumed: true})
		}
		add(d.Loses, Refusal{Fate: redistest.LoseRequest, Assumed: true})
		add(d.Silent, Refusal{Fate: redistest.LoseRequestSilently, Assumed: true})
		all = append(all, p)
	}
	return all
}

// Before starts a proxy in front of a server that refuses what p refuses.
func (p *Profile) Before(t testing.TB, server *redistest.Server) *redistest.Server {
	t.Helper()
	proxy := redistest.NewProxy(t, server)
	for _, r := range p.Refuses {
		fate := r.Fate
		if r.Says != "" {
			fate = redistest.RefuseRequest
		}
		proxy.Trap(&redistest.Trap{Match: redistest.Command(r.Command), Fate: fate, Every: true,
			Says: func(words []string) string { return r.text(words) }})
	}
	if p.OneSlot != "" {
		proxy.Trap(&redistest.Trap{Every: true, Fate: redistest.RefuseRequest, Match: redistest.SeveralSlots,
			Says: func([]string) string { return p.OneSlot }})
	}
	if p.Literal {
		proxy.Trap(&redistest.Trap{Every: true, Fate: redistest.RefuseRequest,
			Match: func(words []string) bool {
				return redistest.Command("EVAL")(words) && len(words) > 1 && !literal(words[1])
			},
			Says: func([]string) string { return notLiteral }})
	}
	return proxy.Server()
}

// text is the answer to a call.
func (r *Refusal) text(words []string) string {
	if !strings.Contains(r.Says, "%s") {
		return r.Says
	}
	command := strings.ToLower(words[0])
	if strings.HasPrefix(r.Says, "NOPERM") && len(words) > 1 && len(r.Command) > len(words[0]) {
		command += "|" + strings.ToLower(words[1])
	} else if !strings.HasPrefix(r.Says, "NOPERM") {
		command = words[0]
	}
	return fmt.Sprintf(r.Says, command)
}

// notLiteral is the text of Alibaba Cloud.
const notLiteral = "ERR bad lua script for redis cluster, all the keys that the script uses should be passed using " +
	"the KEYS array"

var (
	call    = regexp.MustCompile(`redis\.p?call\s*(\()?\s*([^,)]*)(?:,\s*([^,)]*))?`)
	quoted  = regexp.MustCompile(`^(?:'(\w+)'|"(\w+)")$`)
	keyless = map[string]bool{"time": true, "publish": true, "spublish": true, "pubsub": true, "info": true}
)

// literal reports whether each call of a script names its command, and its first key as an element of KEYS.
func literal(script string) bool {
	for _, m := range call.FindAllStringSubmatch(script, -1) {
		name := quoted.FindStringSubmatch(strings.TrimSpace(m[2]))
		if m[1] == "" || name == nil {
			return false
		}
		if !keyless[strings.ToLower(name[1]+name[2])] && !strings.HasPrefix(strings.TrimSpace(m[3]), "KEYS[") {
			return false
		}
	}
	return true
}
