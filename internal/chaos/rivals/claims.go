package main

import "github.com/redlatch/redlatch/internal/chaos/cells"

// claims are what documents say of the locks, and what in our cells would show otherwise.
var claims = []cells.Claim{}
