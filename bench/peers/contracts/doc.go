// Package contracts runs the tests of other libraries on adapters that are made of redlatch. The tests are taken from
// the module cache, and from the Go tree, when it runs. REDLATCH_LONG=1 has them do all that they can.
//
// Files that are not of locks, semaphores and the like are not run: sync's Once, Map and Pool, the backoff of
// redislock, the scripts and error types of redsync. A test that fails is tried again, up to twenty times, because some
// of these tests allow 10 ms for what they do, which a busy machine misses.
//
// What the adapters add: where a peer releases by name or amount, the adapter keeps the handles. A latch stands for
// sync's WaitGroup; Cond is sync's own, on a Mutex that is a locker.Locker. To acquire 0 of x/sync's semaphore asks no
// server, and to acquire more than there is waits for the end of ctx (redlatch refuses both). redislock's token is the
// label of the owner, and a caller that obtains with a token that holds the lock joins that hold (WithOwner); a ttl
// under 10 ms is taken for 10 ms. redsync's Mutex is a Quorum over four or eight embedded servers.
package contracts
