// Package redlatchgocron has a [gocron.Locker] and a [gocron.Elector] for jobs that several processes schedule.
//
//	hourly, err := redlatchgocron.NewLocker(red.Locks(), 50*time.Minute)
//	_, err = scheduler.NewJob(gocron.CronJob("0 * * * *", false), gocron.NewTask(report), gocron.WithName("report"),
//		gocron.WithDistributedJobLocker(hourly))
//
// A [Locker] runs each job in one process at a time, and at most once in a period. A lock that is released when the job
// ends does not: a process whose clock is behind, or that started at another time, comes to the lock when it is free
// again, and runs the same tick again (go-co-op/gocron#841). So the lock of a Locker stays taken until the period that
// began with the job is over, in the server's time, whether the process lives or not.
//
// An [Elector] has one process run all jobs, and another take over if that dies. It does not make ticks unique: if the
// leader changes just after a tick, a successor whose clock is behind runs that tick again, and if it dies just before
// one, that tick is not run.
//
// gocron does not pass the lock to the job, so a job does not learn that its lock was lost. A job that must stop then
// has no Locker, and calls rlock's Lock.DoOnce itself, or works under [Elector.Leadership].
//
// In the repository, docs/adapters.md says which to choose.
package redlatchgocron
