// Package counting is Redisson's RSemaphore, for semaphores that Java uses. The comment of [Semaphore] says what is
// lost in a crash. If no Java process uses the semaphore, use a Semaphore of package rsemaphore, whose permits have
// leases.
//
//	imports := counting.New(semaphores, "imports") // semaphores is an *rsemaphore.Client
//	if err := imports.Acquire(ctx, 2); err != nil {
//		return err
//	}
//	defer imports.Release(ctx, 2)
package counting
