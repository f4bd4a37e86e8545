//go:build !race

package redistest

// RaceEnabled: the race detector is on. It allocates by itself, and has sync.Pool drop what it is given at random.
const RaceEnabled = false
