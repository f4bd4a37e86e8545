package concurrency_test

// The peer's tests find these in place of those of its main_test.go, which starts a cluster of etcd.
var (
	_ = exampleEndpoints
	_ = forUnitTestsRunInMockedContext
)

func exampleEndpoints() []string { return nil }

func forUnitTestsRunInMockedContext(_, example func()) { example() }
