package pubsub

import "github.com/redlatch/redlatch/internal/inside"

// Observer is a set of functions that are told what happens, for metrics. Nil functions are skipped. They run on the goroutine
// where it happens, most of them on the connection's reader, with the hub's lock held: they must return at once, and must not
// call the hub or its subscriptions. A panic in one of them is logged and otherwise ignored. They get no context, because
// what they tell is no caller's doing.
type Observer struct {
	// Subscribed: the server confirmed a channel. again: it had been confirmed before, and was down meanwhile.
	Subscribed func(channel string, again bool)
	// Refused: the server refused to subscribe a channel.
	Refused func(channel string, err error)
	// Lost: a connection with subscriptions ended, or could not be made. The hub tries another. node is its address in a Cluster.
	Lost func(node string, err error)
	// Dropped: a message was dropped, because Options.Buffer others waited for a subscriber. A Gap stands in its place.
	Dropped func(channel string)
}

// guarded returns o with every function safe to call: never nil, its panics caught. What goes wrong is also added to t.
func (o Observer) guarded(report func(any), t *inside.Troubles) Observer {
	safe := func() {
		if p := recover(); p != nil {
			report(p)
		}
	}
	o = Observer{
		Refused: func(c string, err error) { t.Add("subscribe", c, err) },
		Lost:    func(n string, err error) { t.Add("subscriptions", n, err) },
	}.And(o)
	return Observer{
		Subscribed: func(c string, again bool) { defer safe(); o.Subscribed(c, again) },
		Refused:    func(c string, err error) { defer safe(); o.Refused(c, err) },
		Lost:       func(n string, err error) { defer safe(); o.Lost(n, err) },
		Dropped:    func(c string) { defer safe(); o.Dropped(c) },
	}
}

// And returns an Observer that tells o and then next, for example one for metrics and one for traces. If o panics, next is not
// told.
func (o Observer) And(next Observer) Observer {
	o, next = o.whole(), next.whole()
	return Observer{
		Subscribed: func(c string, again bool) { o.Subscribed(c, again); next.Subscribed(c, again) },
		Refused:    func(c string, err error) { o.Refused(c, err); next.Refused(c, err) },
		Lost:       func(n string, err error) { o.Lost(n, err); next.Lost(n, err) },
		Dropped:    func(c string) { o.Dropped(c); next.Dropped(c) },
	}
}

// whole returns o without nil functions.
func (o Observer) whole() Observer {
	if o.Subscribed == nil {
		o.Subscribed = func(string, bool) {}
	}
	if o.Refused == nil {
		o.Refused = func(string, error) {}
	}
	if o.Lost == nil {
		o.Lost = func(string, error) {}
	}
	if o.Dropped == nil {
		o.Dropped = func(string) {}
	}
	return o
}
