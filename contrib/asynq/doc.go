// Package redlatchasynq enqueues the periodic tasks of asynq once, although several processes have the same schedule.
//
//	manager, err := redlatchasynq.NewManager(red.Elections().Election("periodic-tasks"), client, provider,
//		redlatchasynq.Options{})
//	err = manager.Run(ctx, "10.0.0.7") // in each process
//
// It takes the place of asynq.PeriodicTaskManager, of which only one may run, and has the same provider of tasks. One
// of the processes leads an election, and enqueues. The id of a task has the time at which it was due, so asynq refuses
// a second one. Therefore a new leader enqueues again what was due in the last Options.CatchUp: what its predecessor
// could not enqueue, because it was killed or cut off, is enqueued a few seconds late.
//
// # What is guaranteed
//
//   - Each tick of a task is enqueued at most once, whatever leaders die and however their clocks differ, as long as
//     asynq remembers the tick: from its enqueuing until the task has been kept for Retention after it was done.
//   - A tick is enqueued late rather than not at all if a process leads, and reaches Redis, within CatchUp after it.
//
// # What is not guaranteed
//
//   - A task that is deleted by hand within CatchUp is forgotten, and can be enqueued again. So can one that asynq's
//     Redis loses in a failover.
//   - asynq runs a task at least once: it may run a task again whose worker died.
//   - A tick is enqueued when the leader's clock says so.
//
// In the repository, docs/adapters.md has more.
package redlatchasynq
