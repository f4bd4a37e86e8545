// Package hold keeps what the program holds: from a grant to its confirmed release.
//
//	keeper     the holds of one client, and its waiting calls                        [Keeper]
//	handle     the hold of one owner, its handles, and their release                 [Holding], [Handle]
//	retrier    releases that the server has not confirmed yet                        [Retrier]
//	life       one handle: whether it lasts, and the contexts that end with it       [Life]
//	recent     the holders that the error of a call names                            [Holders]
//
// A keeper starts the watchdog of package lease (renewal) and the waiters of package wait (queues).
//
// # Release
//
//	Unlock          handle              lease              server
//	----------->    contexts end with
//	                ErrReleased
//	                                    Remove
//	                                                       release, with the count that remains
//	                                                       reply: confirmed, or gone
//	<-----------    nil, or ErrLost
//	                (no reply while ctx lasts: an error, and a pending release)
//
// The steps are:
//
//  1. The hold's contexts end with ErrReleased, so that no work goes on while the lock is released.
//  2. The owner leaves the watchdog before anything is sent. If its deadline had passed, the result is ErrLost, and the
//     remains of the key are released in the background.
//  3. The release is sent with the count that remains, again and again until it is answered, ctx ends or the lease is
//     over.
//  4. A release that is not confirmed while ctx lasts becomes a pending release.
//
// The release of the last handle returns, and leaves to the background:
//
//	                                  returns                pending release
//	answered: the hold was there      nil                    none (1)
//	answered: it was not there        ErrLost                none (1)
//	the same, after an attempt        nil                    none (1)
//	without a reply
//	the key has another type or owner ErrLost, ErrWrongType  none (1)
//	over by the local clock           ErrLost                until it is answered
//	no reply while ctx lasts          ErrUnavailable or      until it is answered
//	                                  ErrUnknownOutcome
//	refused, as for want of a right   that error             until it is answered
//
// (1) A pending release is left if a request of the acquisition was never answered and may still run.
// TestRelease_Disturbed_SaysWhatBecameOfIt runs these cases and more with every kind of hold.
//
// A release with the hold's own context gets a second of its own: `defer hold.Unlock(ctx)` inside the work has the
// context that the release itself ends first.
//
// # Pending releases
//
// A request whose outcome is unknown may have acquired, or may acquire yet:
//
//	acquire                          server                       retrier
//	request 1: no reply
//	request 2: no reply
//	gives up: ErrUnknownOutcome  -------------------------------> release: answered, "nothing here"
//	                                 runs request 2: granted
//	                                                              release again, after the last instant at which
//	                                                              a request may run (its not-after): answered
//
// The rules are:
//
//  1. These leave a pending release: an acquisition that ends without a grant, after a request of unknown outcome; a
//     release that was not confirmed; a release whose acquisition had an earlier request that was never answered. In
//     the last case that request, on another connection, could take the lock for an owner that has been released.
//  2. The [Retrier] sends the release until it is answered after the last instant at which a request may still be
//     granted, or until the lease would be over. Up to 32 calls are under way, however many releases are pending. The
//     release that has been due for longest comes first.
//  3. If the reply to a request comes late, and grants, the grant is released then ([Holding.Late]).
//
// An owner is never used again, not even for the same lock by the same goroutine. Otherwise a release of unknown
// outcome could arrive late and remove the owner's second hold.
//
// # Close
//
// The Close of a session ends waiters first, then the contexts of the holds. It waits for releases, for calls under way
// and for pending releases until its ctx ends. An acquisition that crosses Close checks for it after it was registered,
// and gives its grant back:
//
//	acquire                          Close
//	request: granted
//	                                 ends all holds
//	registers with the watchdog
//	closed? gives it back            (without this check the hold would never end)
package hold
