// Package redlatchk8s has a lock of Kubernetes' leader election whose record is in Redis or Valkey, not in an API
// server: a [resourcelock.Interface] for controller-runtime's managers and for client-go's LeaderElector.
//
//	lock, err := redlatchk8s.New(red.Hub().Client(), "my-operator", redlatchk8s.Options{})
//	mgr, err := ctrl.NewManager(config, ctrl.Options{
//		LeaderElection:                      true,
//		LeaderElectionResourceLockInterface: lock,
//	})
//
// It is for managers of several Kubernetes clusters that elect one leader among them, for programs that run outside of
// a cluster or may not write Leases, and to take the load of elections off an API server. It is client-go's election:
// leaders are those that client-go elects from the record, by its own timers (LeaseDuration, RenewDeadline,
// RetryPeriod). A program that is free to choose uses package rlock/election, which replaces a crashed leader in 3 to
// 4 s, not 15 s, and has fencing tokens.
//
// # What is guaranteed
//
//   - A record is written only if it is the one that this [Lock] has last read or written: of several candidates that
//     have read the same record one succeeds, and the others get a conflict (apierrors.IsConflict) or, if there was
//     none, AlreadyExists. Each write has a random version, so a record that has become equal again is another one.
//   - A write may run twice: one whose reply was lost, or that arrives late, changes nothing that another candidate has
//     written since.
//   - No clock of the server or of another machine decides who leads. A record is kept for a day after the last write.
//
// # What is not guaranteed
//
//   - Two leaders may act at once if the record is lost, by FLUSHALL, DEL, eviction or a failover to a replica that
//     lacked it: the next candidate that looks leads, and the former leader stops at its next renewal or after
//     RenewDeadline, 10 s by default. So they may after a pause of the process that is longer than LeaseDuration.
//   - While the server cannot be reached no leader can renew: leaders stop after RenewDeadline.
//
// In the repository, docs/adapters.md has more.
package redlatchk8s
