// Package rsemaphore limits how many may do something at the same time, and has them wait for each other, across
// processes, through Redis or Valkey.
//
// It stands on the same wait loop, watchdog and hub as the locks of rlock: nobody waits by spinning, nobody waits for
// ever because a message was lost, and what a crashed process held comes back after one lease.
package rsemaphore
