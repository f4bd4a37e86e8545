package contracts

// suite is tests of a peer, and what they are run on.
type suite struct {
	name    string
	module  string            // of which the tests are; "" is the Go tree
	dir     string            // the tests' folder in it
	files   []string          // there
	adapter string            // our folder, in which they are compiled
	imports map[string]string // what they import -> what they are given
	text    map[string]string // what stands in them -> what is to stand there; "ADDR" is the server's address
	left    []left
	differ  []differ
}

// left is tests, or what they are made of, that cannot even be compiled: they are of something that redlatch has no
// counterpart of.
type left struct {
	decls []string
	why   string
}

// differ is a test that fails, and should.
type differ struct {
	test, says string // what its output has
	why        string
}

const ours = "github.com/redlatch/redlatch/bench/peers/contracts/"

var suites = []suite{
	{
		name: "sync: Mutex, RWMutex, WaitGroup, Cond", dir: "src/sync",
		files: []string{"mutex_test.go", "rwmutex_test.go", "waitgroup_test.go", "cond_test.go"}, adapter: "gosync",
		imports: map[string]string{"sync": ours + "gosync", "internal/testenv": ours + "testenv"},
		left:    []left{{[]string{"HammerSemaphore", "TestSemaphore"}, "of the runtime's own semaphore"}},
		differ: []differ{
			{"TestMutexMisuse", "did not find failure",
				"Unlock of what is not locked panics here, and there it ends the process: a panic can be recovered"},
			{"TestWaitGroupMisuse", "Should panic", "to count down a latch that is open does nothing, as in Redisson"},
			{"TestWaitGroupRace", "a latch that is closed keeps its count",
				"nothing raises the count of a latch that is closed"},
		},
	},
	{
		name: "x/sync: semaphore.Weighted", module: "golang.org/x/sync", dir: "semaphore",
		files:   []string{"semaphore_test.go"},
		adapter: "xsemaphore", imports: map[string]string{"golang.org/x/sync/semaphore": ours + "xsemaphore"},
	},
	{
		name: "redislock", module: "github.com/bsm/redislock", dir: ".",
		files:   []string{"redislock_test.go", "example_test.go"},
		adapter: "redislock", imports: map[string]string{"github.com/bsm/redislock": ours + "redislock"},
		text: map[string]string{"127.0.0.1:6379": "ADDR"},
		differ: []differ{
			{"TestLock_Refresh", "expected ~1m0s", "Extend never shortens a lease"},
			{"TestLock_Refresh_retry_success", "expected ~1m0s", "the same"},
			{"TestLock_Refresh_retry_transient_error", "remaining",
				"the fault is put into go-redis, which redlatch does not use"},
			{"TestLock_Refresh_retry_transient_error_exhausted", "injected failure", "the same"},
		},
	},
	{
		name: "redsync: Mutex, as a Quorum", module: "github.com/go-redsync/redsync/v4", dir: ".",
		files:   []string{"mutex_test.go", "redsync_test.go"},
		adapter: "redsync",
		left: []left{{[]string{"servers", "testCase", "makeCases", "ServerPools", "TestMain", "testRunner",
			"newMockPoolsRedigo", "newMockPoolsGoredis",
			"newMockPoolsGoredisV7", "newMockPoolsGoredisV8", "newMockPoolsGoredisV9", "newMockPoolsRueidis"},
			"their servers and drivers, for which ours stand"}},
		differ: []differ{
			{"TestSetNXOnExtendAcquiresLockWhenKeyIsExpired", "mutex didn't extend",
				"a hold that was lost stays lost: an owner in between would not be noticed"},
			{"TestMutexLockUnlockSplit", "this Mutex holds nothing",
				"a hold is released by its handle; another process has to join it first, by WithOwner"},
		},
	},
}
