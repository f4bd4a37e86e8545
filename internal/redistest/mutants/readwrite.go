package main

// ofReadWrite are faults of read-write locks.
var ofReadWrite = []mutant{
	{
		name: "a writer together with readers", file: "rlock/lua/rw_write.lua", pkg: "rlock",
		old: "local free = not mode and", new: "local free = mode ~= 'write' or",
		breaks: "a writer excludes readers", tests: "TestWriteAcquireScriptTable",
	},
	{
		name: "a write without a lease", file: "rlock/lua/rw_write.lua", pkg: "rlock",
		old: "'1')\n  redis.call('PEXPIRE', lock, ARGV[2])\n", new: "'1')\n",
		breaks: "no key is left without an end", tests: "TestWriteAcquireScriptTable",
	},
	{
		name: "a write that looks at its ends when it has the lock", file: "rlock/lua/rw_write.lua", pkg: "rlock",
		old:    "  redis.call('ZCARD', ends) -- a key of another type has to refuse the script while nothing has changed\n",
		new:    "",
		breaks: "a key of another type leaves no lock taken", tests: "TestALockBesideAKeyOfAnotherTypeIsNotLeftTaken",
	},
	{
		name: "a read that looks at its ends when it has the lock", file: "rlock/lua/rw_read.lua", pkg: "rlock",
		old: "redis.call('ZCARD', ends)\n", new: "",
		breaks: "a key of another type leaves no lock taken",
		tests:  "TestALockBesideAKeyOfAnotherTypeIsNotLeftTaken TestAHoldBesideAKeyOfAnotherTypeChangesNothing",
	},
	{
		name: "a token that is looked at when the lock is taken", file: "rlock/lua/fenced_acquire.lua", pkg: "rlock",
		old: "-- Read before the lock is taken:",
		new: "acquire(key, queue, owner, lease, now, us, which(key, queue), entry, publish, grants)\n-- Read before the " +
			"lock is taken:",
		breaks: "a key of another type leaves no lock taken", tests: "TestALockBesideAKeyOfAnotherTypeIsNotLeftTaken",
	},
	{
		name: "a reader of Redisson's that died keeps the lock", file: "rlock/release_script.go", pkg: "rlock",
		old: "		l.trim(ctx)\n", new: "",
		breaks: "a lock ends with the last of its holds", tests: "TestALockOfGoAndJavaReadersEndsWithItsLastReader",
	},
	{
		name: "an end of a reader that has read once more", file: "rlock/lua/lib/rw.lua", pkg: "rlock",
		old: "if not reader or reader.count ~= all[i + 1] then", new: "if not reader then",
		breaks: "no hold ends before its end", tests: "TestALockIsTrimmedOnlyIfAllItsReadersAreKnown",
	},
	{
		name: "an end of a reader that was not looked at", file: "rlock/lua/lib/rw.lua", pkg: "rlock",
		old: "  if look then\n    return false, true\n  end\n", new: "",
		breaks: "no hold ends before its end", tests: "TestALockIsTrimmedOnlyIfAllItsReadersAreKnown",
	},
	{
		name: "an entry with a lease that cannot be", file: "rlock/lua/lib/handover.lua", pkg: "rlock",
		old: "if owner and #lease < 16 and #stale < 16 then", new: "if owner then",
		breaks: "no value leaves a lock without an end, or has each release fail",
		tests:  "TestTextsInTheQueueThatAreNoEntriesAreTakenOut",
	},
	{
		name: "a job that shortens a reader's lease when it begins", file: "rlock/lua/rw_keep.lua", pkg: "rlock",
		old: "lease = math.max(lease, till and", new: "lease = math.min(lease, till and",
		breaks: "a hold that goes on lasts as long as it did", tests: "TestReadWriteKeepScriptTable",
	},
	{
		name: "a read of a free lock that goes past the queue", file: "rlock/lua/rw_read.lua", pkg: "rlock",
		old: "redis.call('EXISTS', lock, ends, queue) == 0 then", new: "redis.call('EXISTS', lock, ends) == 0 then",
		breaks: "a newcomer overtakes no waiter", tests: "TestReadWriteScriptsWithAQueue",
	},
	{
		name: "a write of a free lock that goes past the queue", file: "rlock/lua/rw_write.lua", pkg: "rlock",
		old: "redis.call('EXISTS', lock, ends, queue) == 0 then", new: "redis.call('EXISTS', lock, ends) == 0 then",
		breaks: "a newcomer overtakes no waiter", tests: "TestReadWriteScriptsWithAQueue",
	},
	{
		name: "a read of a free lock without an end", file: "rlock/lua/rw_read.lua", pkg: "rlock",
		old: "  redis.call('ZADD', ends, string.format('%.0f', now + lease), owner)\n", new: "",
		breaks: "every reader has a lease of its own", tests: "TestReadAcquireScriptTable",
	},
	{
		name: "a release that takes Redisson's readers along", file: "rlock/lua/rw_release.lua", pkg: "rlock",
		old: "redis.pcall('HLEN', lock) == 1 and", new: "redis.pcall('HLEN', lock) ~= 0 and",
		breaks: "a release takes its own owner out, and no other", tests: "TestReadWriteReleaseScriptTable",
	},
	{
		name: "a reader together with a writer", file: "rlock/lua/rw_read.lua", pkg: "rlock",
		old: "  if mode ~= 'write' and not first and not shut", new: "  if not first and not shut",
		breaks: "a writer excludes readers", tests: "TestReadAcquireScriptTable",
	},
	{
		name: "a reader that goes past a waiting writer", file: "rlock/lua/rw_read.lua", pkg: "rlock",
		old: "if mode ~= 'write' and not first and not shut and not rest and not (lined and others_wait(queue, " +
			"entry)) then",
		new:    "if mode ~= 'write' and not shut and not rest then",
		breaks: "new readers do not pass a waiting writer", tests: "TestReadWriteScriptsWithAQueue",
	},
	{
		name: "a dead reader that keeps writers out", file: "rlock/lua/lib/rw.lua", pkg: "rlock",
		old: "  if dead.err or #dead == 0 then\n", new: "  if true then\n",
		breaks: "a reader that died keeps writers out for its own lease",
		tests:  "TestWriteAcquireScriptTable TestADeadReaderNeitherEndsNorProlongsOthers",
	},
	{
		name: "an end of a reader that is lowered", file: "rlock/lua/lib/rw.lua", pkg: "rlock",
		old: "if not score or tonumber(score) < till then\n", new: "if true then\n",
		breaks: "no renewal shortens a lease", tests: "TestReadWriteRenewScriptTable TestReadAcquireScriptTable",
	},
	{
		name: "a renewal of a reader that is over", file: "rlock/lua/lib/rw.lua", pkg: "rlock",
		old:    "  elseif there == 0 or till and expired(till, now) then\n    return 0\n  end\n  return nil",
		new:    "  elseif there == 0 then\n    return 0\n  end\n  return nil",
		breaks: "what is over is not renewed", tests: "TestReadWriteRenewScriptTable",
	},
	{
		name: "a write hold that stays when its writer reads on", file: "rlock/lua/lib/rw.lua", pkg: "rlock",
		old: "  if writer then\n    redis.call('HSET', lock, 'mode', 'read')\n  end\n", new: "",
		breaks: "a writer that goes on as a reader lets readers in", tests: "TestReadWriteReleaseScriptTable",
	},
	{
		name: "a reader that is granted without its end", file: "rlock/lua/lib/rwqueue.lua", pkg: "rlock",
		old:    "    raise(lock, tonumber(lease))\n  end\n  last_until(ends, owner, now + lease, now)\n",
		new:    "    raise(lock, tonumber(lease))\n  end\n",
		breaks: "every reader has a lease of its own", tests: "TestReadWriteScriptsWithAQueue",
	},
	{
		name: "writers without an end", file: "rlock/lua/lib/rwqueue.lua", pkg: "rlock",
		old: "local spent = had >= MOST_WRITES or had > 0 and", new: "local spent = had > 1000000 and",
		breaks: "a reader waits for one phase of writers", tests: "TestReadWriteScriptsWithAQueue",
	},
	{
		name: "a listener of ours that is taken for Redisson's", file: "internal/script/lua/listeners.lua", pkg: "rlock",
		old: "  return all and all > marks\n", new: "  return all and all > 0\n",
		breaks: "readers make room for Java only while it waits",
		tests: "TestAListenerOfOursKeepsNoReaderOut TestReadWriteScriptsWithAQueue " +
			"TestSomeReleasesAreOpenWhileRedissonListens",
	},
	{
		name: "one of ours that hides Redisson's", file: "internal/script/lua/listeners.lua", pkg: "rlock",
		old: "  return all and all > marks\n", new: "  return all and all > 0 and marks == 0\n",
		breaks: "readers make room for a Java that waits together with a process of ours",
		tests:  "TestReadWriteScriptsWithAQueue",
	},
	{
		name: "a listener of ours without its mark", file: "pubsub/topic.go", pkg: "rlock",
		old: "mark != \"\" && !t.bare {", new: "false {",
		breaks: "scripts tell our listeners from Redisson's", tests: "TestAListenerOfOursKeepsNoReaderOut",
	},
	{
		name: "a phase of reading from long ago", file: "rlock/lua/rw_read.lua", pkg: "rlock",
		old: "    set_field(queue, 'readfrom', now)\n  end\nelse", new: "  end\nelse",
		breaks: "a phase of reading begins with its first reader", tests: "TestAPhaseOfReadingBeginsWithItsFirstReader",
	},
	{
		name: "a reader that is forgotten when its last millisecond begins", file: "rlock/lua/lib/rw.lua", pkg: "rlock",
		old: "redis.pcall('ZRANGE', ends, 0, elapsed(now), 'BYSCORE')", new: "redis.pcall('ZRANGE', ends, 0, now, 'BYSCORE')",
		breaks: "nothing is given away before the instant that its holder was promised",
		tests:  "TestNoLockGoesToAnotherBeforeTheEndThatItsHolderWasTold",
	},
}
