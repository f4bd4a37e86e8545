// Package redlatchriver inserts periodic jobs of River, each tick once, from one of the processes of a service.
//
//	manager, err := redlatchriver.NewManager(red.Elections().Election("reports"), client, jobs,
//		redlatchriver.Options{})
//	err = manager.Run(ctx, "10.0.0.7") // in each process of the service
//
// River has periodic jobs of its own. They are those of its leader, which it elects among all clients of a schema, and
// are due from when that was elected. That is enough, and needs no Redis, if one service uses the schema and its jobs
// may miss a tick. A Manager is for the other cases:
//
//   - Several services share a schema. Each has an election of its own, and so its own periodic jobs.
//   - A tick must not be missed. A new leader inserts again what was due in the last Options.CatchUp, and the
//     uniqueness of River's jobs (kind, arguments and the tick) leaves out what is there.
//
// # What is guaranteed
//
//   - Each tick of a job is inserted at most once, whatever leaders die and however their clocks differ, as long as
//     River keeps the job: by default for a day after it was done.
//   - A tick is inserted late rather than not at all if a process leads, and reaches the database, within CatchUp after
//     it.
//
// # What is not guaranteed
//
//   - River runs a job at least once.
//   - A tick is inserted when the leader's clock says so.
//
// In the repository, docs/adapters.md has more.
package redlatchriver
