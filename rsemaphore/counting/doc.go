// Package counting is Redisson's RSemaphore, for sharing one with Java. [Semaphore] says what it is, and what is lost
// in a crash. Where no Java process shares it, use a Semaphore of package rsemaphore, whose permits have leases.
//
//	imports := counting.New(semaphores, "imports") // semaphores is an *rsemaphore.Client
//	if err := imports.Acquire(ctx, 2); err != nil {
//		return err
//	}
//	defer imports.Release(ctx, 2)
package counting
