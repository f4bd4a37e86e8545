package main

// ofCalls are faults of calls, of handles and their releases.
var ofCalls = []mutant{}
