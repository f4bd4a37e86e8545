-- Set the capacity, whatever it was, and serve waiters. A waiter for more than the capacity is notified, and sends a
-- request.
-- KEYS[1] count  KEYS[2] permits  KEYS[3] notes  KEYS[4] the record of a latch of that name  KEYS[5] queue
-- KEYS[6] shares
-- ARGV[1] new capacity  ARGV[2] the caller's old capacity, if the semaphore is not in use
-- ARGV[3] how long the capacity of an unused semaphore is kept, ms
-- ARGV[4] not after, server ms (0: any time)  ARGV[5] channel  ARGV[6] PUBLISH or SPUBLISH
-- ARGV[7] 1: shared with Redisson, the keys have no expiry  ARGV[8] id of this call
-- ARGV[9] 1: ARGV[1] is added to the capacity, which stays between 1 and the largest capacity
-- ARGV[10] channels of grants, without the process  ARGV[11] the process
-- Reply {status, capacity before, server ms, ms after which to send a request for the first in the queue (-1: another
--   process does), lease and base of waiters of this process that were served}. status: 1 done; 2 too late, 3 the
--   capacity would be out of these bounds: nothing is done
-- Twice: a second run of the same call finds its id in the notes, changes nothing, and sends the same reply, unless
--   there was another resize meanwhile. Then the capacity is set again, not added to; held permits stay held. A call
--   that adds is remembered for a minute, with the last 99 other calls of that minute:
--     A adds 2: done, its reply is lost     B sets 10     A is sent again: it must not make that 12
-- uses: clock, ids, kind, queue, serve, verbs
local count, permits, notes, latch, queue = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local now, us = clock()
refuse_latch(latch, 'Semaphore')
local store = ids_store(now, count, permits, notes, ARGV[7] == '1')
return resize(store, permits_queue(queue, KEYS[6], ARGV[6], ARGV[10], now, us, ARGV[11]))
