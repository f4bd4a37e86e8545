// Package bench holds redlatch's own benchmarks, next to the floors they stand on:
//
//	go -C bench test -run '^$' -bench . .
//
// They run on a private redis-server if one is in PATH, otherwise on the embedded server of the tests, and say which in
// a line "server: …"; on the embedded one there are no counts of server commands. Figures of two runs cannot be
// compared on a machine that others use, ratios within a run can.
//
// What is reported besides ns/op:
//
//	cmds/op     commands the server ran for one operation, those inside scripts included
//	scripts/op  script calls, each a round trip
//	p50-us      times of one operation: lock and unlock where no other worker contends, otherwise from asking to holding
//	p99-us
//	jain        Jain's index of what each worker got: 1 is equal, 1/n is one got all
//	longest-us  the longest wait; worst-window  the rate of the slowest tenth of a second, as a share of the median one's
//
// bench/peers, a module of its own, measures other libraries next to redlatch; bench/report draws what it found.
// bench/herd prints what an acquisition costs the server as more and more processes wait for one name. bench/scale
// measures large numbers: names, held locks, waiters, processes, clients; bench/places what a cycle costs through TLS,
// in a Cluster, behind Sentinel and elsewhere.
package bench
