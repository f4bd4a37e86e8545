// Package session holds what the clients of all primitives share: what is under way and held by a client, which its Close
// waits for ([Inflight]), the releases that the server has not confirmed yet ([Retrier]), what one owner holds and how that
// is released ([Holding], [Handle]), and the life of one handle with the contexts that end with it ([Life]).
package session
