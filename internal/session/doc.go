// Package session is the part that the clients of all primitives share.
//
//	session    New, the options that all have, names, reads, errors                  [Session]
//	calls      calls of a client without holds: counters, sales                      [Session.RemoveAfter]
//	once       calls whose outcome cannot be found out afterwards                    [Session.DoOnce]
//	inflight   the calls and holds that Close waits for                              [Inflight]
//	tell       the events of a client, for the Observer and the debug page           [Session.Tell]
//	close      what Close ends and waits for, in which order                         [Session.Close]
//
// A client that holds something for a time, or waits, has a keeper of package hold besides.
package session
