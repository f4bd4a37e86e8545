// Command chaos has processes use every primitive on real servers while one thing after the other goes wrong, and holds
// what each of them was answered against what docs/safety.md promises.
//
//	go -C internal/chaos run .                                               # every fault on every deployment: about a quarter of an hour
//	go -C internal/chaos run . -deployments "one node,Cluster" -faults "client paused,FLUSHALL" -primitives fenced,stock
//	go -C internal/chaos run . -resume cells.jsonl                           # what is in the file is not run again; what is run is added
//	go -C internal/chaos run . -resume cells.jsonl -markdown ../../docs/chaos.md -html chaos.html
//	go -C internal/chaos run . -soak 1h -chart soak.svg                      # steady work: memory, connections and keys must not grow
//	go -C internal/chaos run . -faults none -break late                      # a client that breaks the rules is found: the exit code is 1
//
// A cell is one fault on one deployment. Three clients, each this program run again, use all primitives side by side
// through proxies. The fault befalls the servers, the network or the clients, again and again. Then all heals, and
// every primitive has to work again. Each client writes down what it does before it does it and what it was answered.
// From that the program judges: exclusion until each holder's own deadline (and, by porcupine, whether a lock can have
// this history), capacities, unique ordinals, one answer for each claimant, exact counts, tokens that grow, keys that
// end. What a cell may violate is in the table of expect.go, and in the report.
//
// A cell that fails leaves its history and its plan in a directory (-failures), and the exit code is 1.
package main

import "github.com/redlatch/redlatch/internal/chaos/cells"

func main() { cells.Main() }
