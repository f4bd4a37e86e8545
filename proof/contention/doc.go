// Package contention has the test that pprof reads the contention profile of package redlatchdebug, and that its sum is
// that of the metric redlatch_acquire_seconds. The test needs the reader of pprof, which users of redlatch should not
// have among their modules.
package contention
