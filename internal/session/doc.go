// Package session holds what the clients of all primitives share.
//
//	session    New, the options that all have, names, owner ids, questions, Close    [Session]
//	calls      the session of a client that holds nothing: counters, stocks          [Calls]
//	inflight   what is under way and held, which Close waits for                     [Inflight]
//	handle     what one owner holds, its handles, and how it is released             [Holding], [Handle]
//	retrier    releases that the server has not confirmed yet                        [Retrier]
//	life       one handle: whether it lasts, and the contexts that end with it       [Life]
//
// The engines that it starts are in packages lease (renewal) and wait (queues).
package session
