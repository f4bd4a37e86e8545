package pubsub

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

// guarded returns o with every function safe to call: never nil, its panics caught.
func (o Observer) guarded(report func(any)) Observer {
	safe := func() {
		if p := recover(); p != nil {
			report(p)
		}
	}
	g := Observer{Subscribed: func(string, bool) {}, Refused: func(string, error) {}, Lost: func(string, error) {}, Dropped: func(string) {}}
	if f := o.Subscribed; f != nil {
		g.Subscribed = func(c string, again bool) { defer safe(); f(c, again) }
	}
	if f := o.Refused; f != nil {
		g.Refused = func(c string, err error) { defer safe(); f(c, err) }
	}
	if f := o.Lost; f != nil {
		g.Lost = func(n string, err error) { defer safe(); f(n, err) }
	}
	if f := o.Dropped; f != nil {
		g.Dropped = func(c string) { defer safe(); f(c) }
	}
	return g
}
