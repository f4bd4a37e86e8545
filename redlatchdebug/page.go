package redlatchdebug

import (
	"cmp"
	"context"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/accessor"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/hold"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/session"
	"github.com/redlatch/redlatch/pubsub"
)

// page is the content of the page: see the package comment.
type page struct {
	query         `json:"-"`
	At            time.Time     `json:"at"`
	Process       string        `json:"process"`
	Open          millis        `json:"open_ms"`
	Closed        bool          `json:"closed"`
	Mode          string        `json:"mode"`
	Nodes         []string      `json:"nodes"`
	Waits         list[waiting] `json:"waits"`
	Holds         list[held]    `json:"holds"`
	Pending       list[pending] `json:"pending_releases"`
	Limits        list[limit]   `json:"limits"`
	Policies      []policy      `json:"policies"`
	Server        *answer       `json:"server"`
	Clients       []clientState `json:"clients"`
	Subscriptions subscriptions `json:"subscriptions"`
	Lacks         []lack        `json:"lacks"`
	Errors        []recentError `json:"errors"`
	Failing       int           `json:"-"` // renewals, of all clients
}

// list has the first elements of a list, and the number of all.
type list[T any] struct {
	Total int `json:"total"`
	Shown []T `json:"shown"`
}

// More returns how many elements are not shown.
func (l list[T]) More() int { return l.Total - len(l.Shown) }

type waiting struct {
	Client  string  `json:"client"`
	Kind    string  `json:"kind"`
	Name    string  `json:"name"`
	For     millis  `json:"waiting_ms"`
	GivesUp *millis `json:"gives_up_ms"`
	Refused bool    `json:"refused"`
	Before  int     `json:"before"`
	Ticket  int64   `json:"ticket,omitempty"`
	Permits int64   `json:"permits,omitempty"`
	Error   string  `json:"error,omitempty"`
}

type held struct {
	Client    string  `json:"client"`
	Kind      string  `json:"kind"`
	Name      string  `json:"name"`
	Owner     string  `json:"owner"`
	Label     string  `json:"label,omitempty"`
	Permits   int64   `json:"permits,omitempty"`
	Handles   int     `json:"handles,omitempty"`
	For       millis  `json:"held_ms"`
	Safe      millis  `json:"safe_ms"`
	Lease     millis  `json:"lease_ms"`
	Whole     millis  `json:"-"` // the time of which Safe is left
	Beats     bool    `json:"-"` // Whole is the time for which a heartbeat is trusted
	Renewed   bool    `json:"renewed"`
	Confirmed millis  `json:"confirmed_ms"`
	Failing   bool    `json:"failing"`
	MaxHold   *millis `json:"max_hold_ms"`
	Forgotten bool    `json:"forgotten"`
}

type pending struct {
	Client  string `json:"client"`
	Name    string `json:"name"`
	GivenUp millis `json:"given_up_ms"`
}

// limit is a rate limit that refused a request lately.
type limit struct {
	Client  string `json:"client"`
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Key     string `json:"key"`
	Units   int64  `json:"units"`
	Burst   int64  `json:"burst"`
	Refused millis `json:"refused_ms"`
	Passes  millis `json:"passes_ms"`
}

// policy answers for a rate limiter in place of the server.
type policy struct {
	Name   string `json:"name"`
	Policy string `json:"policy"`
	Last   millis `json:"last_ms"`
}

type clientState struct {
	Client    string  `json:"client"`
	Closed    bool    `json:"closed"`
	Holds     bool    `json:"-"` // the client can hold something
	Held      int     `json:"held"`
	Renewed   int     `json:"renewed"`
	Failing   int     `json:"failing"`
	Waiting   int     `json:"waiting"`
	Calls     int     `json:"calls"`
	Tracking  string  `json:"tracking,omitempty"`
	HandOvers int64   `json:"hand_overs"`
	Heartbeat *millis `json:"heartbeat_ms"`
	Beaten    *millis `json:"beaten_ms"`
	Missed    bool    `json:"missed"`
	Slept     *millis `json:"slept_ms"`
	Clock     *clock  `json:"clock"`
	Options   options `json:"options"`
}

type clock struct {
	Ahead   millis `json:"ahead_ms"`
	Within  millis `json:"within_ms"`
	Age     millis `json:"age_ms"`
	Servers int    `json:"servers"`
}

// Off returns the server's clock offset as a text for people.
func (c clock) Off() string {
	if c.Ahead == 0 {
		return "0 ms ahead"
	}
	if c.Ahead < 0 {
		return (-c.Ahead).String() + " behind"
	}
	return c.Ahead.String() + " ahead"
}

type options struct {
	KeyPrefix       string  `json:"key_prefix"`
	CallTimeout     millis  `json:"call_timeout_ms"`
	WatchdogTimeout *millis `json:"watchdog_timeout_ms"`
	PollCap         *millis `json:"poll_cap_ms"`
	MaxHold         *millis `json:"max_hold_ms"`
	MinReplicas     int     `json:"min_replicas"`
}

type subscriptions struct {
	Channels    int `json:"channels"`
	Confirmed   int `json:"confirmed"`
	Connections int `json:"connections"`
}

// lack is a command that the server refuses.
type lack struct {
	Command string `json:"command"`
	Effect  string `json:"effect"`
	Error   string `json:"error"`
}

type recentError struct {
	Client string    `json:"client"`
	At     time.Time `json:"at"`
	Ago    millis    `json:"-"`
	What   string    `json:"what"`
	Name   string    `json:"name"`
	Reason string    `json:"reason"`
	Error  string    `json:"error"`
	Count  int       `json:"count"`
}

// client is one of the clients of a redlatch.Client.
type client struct {
	name string
	*session.Session
	keeper *hold.Keeper    // nil: it keeps no holds
	limits accessor.Limits // of rate limits; else nil
}

func clientsOf(red *redlatch.Client) []*client {
	return []*client{
		keeping("locks", accessor.Of[*hold.Keeper](red.Locks())),
		keeping("elections", accessor.Of[*hold.Keeper](red.Elections())),
		keeping("semaphores", accessor.Of[*hold.Keeper](red.Semaphores())),
		{name: "counters", Session: accessor.Of[*session.Session](red.Counters())},
		{name: "sales", Session: accessor.Of[*session.Session](red.Sales())},
		{name: "red_packets", Session: accessor.Of[*session.Session](red.RedPackets())},
		{name: "limiters", Session: accessor.Of[*session.Session](red.Limiters()),
			limits: accessor.Of[accessor.Limits](red.Limiters())},
	}
}

// keeping returns a client that keeps holds.
func keeping(name string, keeper *hold.Keeper) *client {
	return &client{name: name, Session: keeper.Session, keeper: keeper}
}

// page collects the content of the page.
func (h *handler) page(ctx context.Context, q query) *page {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	locks, hub := h.clients[0], h.red.Hub()
	p := &page{query: q, At: time.Now(), Process: host + ":" + strconv.Itoa(os.Getpid()), Open: since(locks.Base),
		Closed: locks.Closed(),
		Waits:  list[waiting]{Shown: []waiting{}}, Holds: list[held]{Shown: []held{}},
		Pending: list[pending]{Shown: []pending{}},
		Limits:  list[limit]{Shown: []limit{}}, Policies: []policy{}, Errors: []recentError{}}
	p.Mode = modes[hub.Client().Mode()]
	for address := range hub.Client().Nodes() {
		p.Nodes = append(p.Nodes, address)
	}
	slices.Sort(p.Nodes)
	match := func(name string) bool { return strings.Contains(name, q.Name) }
	shown := slices.Concat(p.waits(h.clients, match), p.holds(h.clients, match), p.limits(h.clients, match))
	for _, c := range h.clients {
		p.Clients = append(p.Clients, c.state())
		p.Failing += p.Clients[len(p.Clients)-1].Failing
		p.addErrors(c.name, c.RecentErrors())
		if c.keeper == nil {
			continue
		}
		for _, r := range c.keeper.Retrier.All() {
			if match(r.Name) {
				p.Pending.add(pending{c.name, r.Name, until(r.Until)}, q.N)
			}
		}
	}
	p.addErrors("hub", accessor.Of[accessor.Hub[*pubsub.Subscription]](hub).RecentErrors())
	slices.SortStableFunc(p.Errors, func(a, b recentError) int { return b.At.Compare(a.At) })
	s := hub.Stats()
	p.Subscriptions = subscriptions{s.Channels, s.Confirmed, s.Connections}
	for _, l := range s.Lacks {
		p.Lacks = append(p.Lacks, lack{l.Command, l.Effect, l.Err.Error()})
	}
	p.ask(ctx, h.clients, shown)
	return p
}

var modes = map[rueidis.ClientMode]string{
	rueidis.ClientModeStandalone: "standalone", rueidis.ClientModeSentinel: "sentinel",
	rueidis.ClientModeCluster: "cluster",
}

// row is a hold, a waiting call or a refusal, with its beginning and its object.
type row[T any] struct {
	is     T
	since  time.Time
	object *object
}

// oldest puts the oldest rows of all into to, count at most, and returns their objects.
func oldest[T any](to *list[T], count int, all []row[T]) (objects []*object) {
	slices.SortStableFunc(all, func(a, b row[T]) int { return a.since.Compare(b.since) })
	for _, r := range all[:min(len(all), count)] {
		to.Shown = append(to.Shown, r.is)
		objects = append(objects, r.object)
	}
	return objects
}

// waits adds the calls that have waited longest, and returns their objects.
func (p *page) waits(clients []*client, match func(string) bool) (objects []*object) {
	var all []row[waiting]
	for _, c := range clients {
		if c.keeper == nil {
			continue
		}
		first, n := c.keeper.Waiters.Waits(p.N, match)
		p.Waits.Total += n
		for _, w := range first {
			o := c.object(w.Object, w.Name)
			x := waiting{Client: c.name, Kind: o.Kind, Name: w.Name, For: since(w.Began), Refused: w.Refused, Before: w.Before,
				Ticket:  w.Ticket,
				Permits: permits(w.Object), Error: masked(w.Failure)}
			if !w.Until.IsZero() {
				x.GivesUp = some(until(w.Until))
			}
			all = append(all, row[waiting]{x, w.Began, o})
		}
	}
	return oldest(&p.Waits, p.N, all)
}

// holds adds the oldest holds, and returns their objects.
func (p *page) holds(clients []*client, match func(string) bool) (objects []*object) {
	var all []row[held]
	for _, c := range clients {
		if c.keeper == nil {
			continue
		}
		views := slices.DeleteFunc(c.keeper.Engine.Views(), func(v lease.View) bool { return !match(v.Name) })
		slices.SortFunc(views, func(a, b lease.View) int {
			return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Owner, b.Owner))
		})
		p.Holds.Total += len(views)
		for _, v := range views[:min(len(views), p.N)] {
			o := c.object(v.Of, v.Name)
			all = append(all, row[held]{holdOf(c, v, o), v.Since, o})
		}
	}
	return oldest(&p.Holds, p.N, all)
}

// limits adds the limits with the latest refusals, and returns the objects of those that are shown.
func (p *page) limits(clients []*client, match func(string) bool) (objects []*object) {
	for _, c := range clients {
		if c.limits == nil {
			continue
		}
		for _, r := range c.limits.Refused(match) {
			if len(p.Limits.Shown) < p.N {
				objects = append(objects, c.limit(r))
			}
			p.Limits.add(limit{c.name, r.Algorithm, r.Name, r.Key, r.N, r.Burst, since(r.At), max(0, until(r.Passes))}, p.N)
		}
		for _, a := range c.limits.Answering() {
			if match(a.Name) {
				p.Policies = append(p.Policies, policy{a.Name, a.Policy, since(a.Last)})
			}
		}
	}
	return objects
}

func holdOf(c *client, v lease.View, o *object) held {
	x := held{Client: c.name, Kind: o.Kind, Name: v.Name, Owner: short(v.Of.Shown()), Permits: permits(v.Of),
		For:  since(v.Since),
		Safe: max(0, until(v.Until)), Lease: millis(v.Length), Whole: millis(v.Length), Renewed: v.Auto,
		Confirmed: since(v.Renewed), Failing: v.Failing}
	if x.Beats = v.Trust > 0 && v.Trust < v.Length; x.Beats {
		x.Whole = millis(v.Trust)
	}
	if !v.MaxHold.IsZero() {
		x.MaxHold = some(until(v.MaxHold))
	}
	if of, ok := v.Of.(interface{ Label() string }); ok {
		x.Label = of.Label()
	}
	if of, ok := v.Of.(interface {
		Count() int
		InUse() bool
	}); ok {
		x.Handles, x.Forgotten = of.Count(), !of.InUse()
	}
	return x
}

func permits(of any) int64 {
	if p, ok := of.(interface{ Permits() int64 }); ok {
		return p.Permits()
	}
	return 0
}

func (c *client) state() clientState {
	s := clientState{Client: c.name, Closed: c.Closed(), Calls: c.Count(),
		Options: options{KeyPrefix: c.KeyPrefix, CallTimeout: millis(c.CallTimeout), MinReplicas: c.MinReplicas}}
	if e, n := c.Runner.Clock.Newest(); n > 0 {
		age := time.Since(e.At)
		// The server read its clock half-way between, give or take the other half.
		there := time.UnixMilli(e.Server).Add(age + e.Spread/2)
		s.Clock = &clock{Ahead: millis(time.Until(there.Round(0)).Round(time.Millisecond)),
			Within: millis(e.Spread/2 + time.Millisecond), Age: millis(age), Servers: n}
	}
	if c.keeper == nil {
		return s
	}
	w := c.keeper.Engine.State()
	s.Holds = true
	s.Tracking, s.Missed = w.Tracking, w.Missed
	for _, v := range c.keeper.Engine.Views() {
		s.Held++
		if v.Auto {
			s.Renewed++
		}
		if v.Failing {
			s.Failing++
		}
	}
	if c.name == "semaphores" {
		s.Tracking = "" // no permit is tracked, because other processes write its keys all the time
	}
	s.Waiting, s.HandOvers = c.keeper.Waiters.Count()
	s.Options.WatchdogTimeout, s.Options.PollCap = some(millis(c.WatchdogTimeout)), some(millis(c.PollCap))
	for _, f := range []struct {
		to *(*millis)
		d  time.Duration
	}{{&s.Heartbeat, w.Heartbeat}, {&s.Options.MaxHold, c.MaxHold}} {
		if f.d > 0 {
			*f.to = some(millis(f.d))
		}
	}
	if !w.Beaten.IsZero() {
		s.Beaten = some(since(w.Beaten))
	}
	if !w.Slept.IsZero() {
		s.Slept = some(since(w.Slept))
	}
	return s
}

func (p *page) addErrors(client string, t *errs.RecentErrors) {
	for _, x := range t.Last() {
		if !strings.Contains(x.Name, p.Name) {
			continue
		}
		p.Errors = append(p.Errors,
			recentError{client, x.At, since(x.At), x.What, mask(x.Name), redlatch.Reason(x.Err), masked(x.Err), x.Count})
	}
}

// full matches an owner, or the process's part of a channel's name. Anybody who knows the full text could join or
// release the owner's holds.
var full = lazily(`([0-9a-fA-F]{8})-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}`)

// permitID matches the text for permits: an id, and the number of further permits.
var permitID = lazily(`^([0-9a-f]{8})[0-9a-f]{20}([0-9a-f]{4})( and \d+ more)?$`)

// lazily returns an expression that the first page compiles.
func lazily(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

// mask removes from a text the parts that would let others act as an owner.
func mask(text string) string { return full().ReplaceAllString(text, "$1…") }

func masked(err error) string {
	if err == nil {
		return ""
	}
	return mask(err.Error())
}

// short returns an owner as the page shows it: enough to find it in the log, too little to join or release its hold.
func short(owner string) string {
	const enough = 8
	if m := permitID().FindStringSubmatch(owner); m != nil {
		return m[1] + "…" + m[2] // all permits of a client begin alike
	}
	id, rest, _ := strings.Cut(owner, ":")
	if len(id) > enough {
		id = strings.ToValidUTF8(id[:enough], "?") + "…"
	}
	if n, _, _ := strings.Cut(rest, ":"); n != "" { // without the label, which has a column of its own
		return id + ":" + strings.ToValidUTF8(n[:min(len(n), 24)], "?")
	}
	return id
}
