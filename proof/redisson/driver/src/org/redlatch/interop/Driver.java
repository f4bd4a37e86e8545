package org.redlatch.interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.redisson.Redisson;
import org.redisson.api.RAtomicLong;
import org.redisson.api.RBucket;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RRateLimiter;
import org.redisson.api.RSemaphore;
import org.redisson.api.RateIntervalUnit;
import org.redisson.api.RateType;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;
import org.redisson.misc.RedisURI;

/**
 * Does with Redisson what standard input says, one command a line:
 *
 * <pre>
 * ID LANE CLIENT VERB ARGUMENT...
 * </pre>
 *
 * and answers each with one line on standard output, "ID ok VALUE" or "ID err CLASS MESSAGE". A lane is a thread: its
 * commands run one after the other, those of different lanes at the same time, and what one thread locked is re-entered in
 * its lane only. A client is a RedissonClient, made by the verbs "open" and "sentinel" and ended by "close"; two of them are two processes to Redisson. The
 * process ends with its input, without releasing anything.
 *
 * <p>Times are milliseconds; a lease of -1 is renewed by the watchdog.
 */
public final class Driver {
    private final Map<String, RedissonClient> clients = new ConcurrentHashMap<>();
    private final Map<String, ExecutorService> lanes = new ConcurrentHashMap<>();
    private final PrintStream out = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), false, StandardCharsets.UTF_8);

    public static void main(String[] args) throws Exception {
        System.setOut(System.err); // standard output is for answers only
        new Driver().run();
    }

    private void run() throws Exception {
        answer("0 ok " + RedissonVersion.text());
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split(" ");
            lanes.computeIfAbsent(words[1], Driver::lane).execute(() -> answer(words[0] + " " + handle(words)));
        }
        Runtime.getRuntime().halt(0);
    }

    private static ExecutorService lane(String name) {
        return Executors.newSingleThreadExecutor(r -> {
            Thread t = new Thread(r, "lane-" + name);
            t.setDaemon(true);
            return t;
        });
    }

    private void answer(String line) {
        synchronized (out) {
            out.println(line);
            out.flush();
        }
    }

    private String handle(String[] words) {
        try {
            String verb = words[3];
            String[] a = Arrays.copyOfRange(words, 4, words.length);
            if (verb.equals("open")) {
                return "ok " + open(words[2], a);
            }
            if (verb.equals("sentinel")) {
                return "ok " + sentinel(words[2], a);
            }
            RedissonClient c = clients.get(words[2]);
            if (c == null) {
                throw new IllegalArgumentException("no client " + words[2]);
            }
            if (verb.equals("close")) {
                clients.remove(words[2]).shutdown();
                return "ok ";
            }
            return "ok " + act(c, verb, a);
        } catch (Throwable e) {
            return "err " + e.getClass().getSimpleName() + " " + String.valueOf(e.getMessage()).replaceAll("\\s+", " ");
        }
    }

    /** open WATCHDOG ADDRESS...: one address is a single server, several are nodes of a Cluster. */
    private String open(String name, String[] a) {
        Config config = new Config();
        config.setLockWatchdogTimeout(Long.parseLong(a[0]));
        config.setThreads(4);
        config.setNettyThreads(4);
        if (a.length == 2) {
            config.useSingleServer().setAddress("redis://" + a[1])
                    .setConnectionMinimumIdleSize(2).setConnectionPoolSize(16)
                    .setSubscriptionConnectionMinimumIdleSize(1).setSubscriptionConnectionPoolSize(4);
        } else {
            String[] nodes = new String[a.length - 1];
            for (int i = 1; i < a.length; i++) {
                nodes[i - 1] = "redis://" + a[i];
            }
            config.useClusterServers().addNodeAddress(nodes)
                    .setMasterConnectionMinimumIdleSize(1).setMasterConnectionPoolSize(16)
                    .setSlaveConnectionMinimumIdleSize(1).setSlaveConnectionPoolSize(16)
                    .setSubscriptionConnectionMinimumIdleSize(1).setSubscriptionConnectionPoolSize(4);
        }
        RedissonClient c = Redisson.create(config);
        clients.put(name, c);
        return c.getId();
    }

    /**
     * sentinel WATCHDOG SET FROM=TO,... ADDRESS...: the primary of SET, by the sentinels at the addresses. Where they name the address FROM,
     * TO is connected to.
     */
    private String sentinel(String name, String[] a) {
        Map<String, String> by = new ConcurrentHashMap<>();
        for (String pair : a[2].split(",")) {
            by.put(pair.substring(0, pair.indexOf('=')), pair.substring(pair.indexOf('=') + 1));
        }
        String[] sentinels = new String[a.length - 3];
        for (int i = 3; i < a.length; i++) {
            sentinels[i - 3] = "redis://" + a[i];
        }
        Config config = new Config();
        config.setLockWatchdogTimeout(Long.parseLong(a[0]));
        config.setThreads(4);
        config.setNettyThreads(4);
        config.useSentinelServers().setMasterName(a[1]).addSentinelAddress(sentinels).setCheckSentinelsList(false)
                .setNatMapper(uri -> {
                    String to = by.get(uri.getHost() + ":" + uri.getPort());
                    return to == null ? uri : new RedisURI(uri.getScheme() + "://" + to);
                })
                .setMasterConnectionMinimumIdleSize(1).setMasterConnectionPoolSize(16)
                .setSlaveConnectionMinimumIdleSize(1).setSlaveConnectionPoolSize(16)
                .setSubscriptionConnectionMinimumIdleSize(1).setSubscriptionConnectionPoolSize(4);
        RedissonClient c = Redisson.create(config);
        clients.put(name, c);
        return c.getId();
    }

    private static RLock lock(RedissonClient c, String kind, String name) {
        switch (kind) {
            case "lock":
                return c.getLock(name);
            case "fair":
                return c.getFairLock(name);
            case "fenced":
                return c.getFencedLock(name);
            case "spin":
                return c.getSpinLock(name);
            case "read":
                return c.getReadWriteLock(name).readLock();
            case "write":
                return c.getReadWriteLock(name).writeLock();
            case "multi":
                return c.getMultiLock(Arrays.stream(name.split(",")).map(c::getLock).toArray(RLock[]::new));
            default:
                throw new IllegalArgumentException("no kind " + kind);
        }
    }

    private static String act(RedissonClient c, String verb, String[] a) throws Exception {
        switch (verb) {
            // locks: VERB KIND NAME ...
            case "lock":
                lock(c, a[0], a[1]).lock(Long.parseLong(a[2]), TimeUnit.MILLISECONDS);
                return "";
            case "try":
                return "" + lock(c, a[0], a[1]).tryLock(Long.parseLong(a[2]), Long.parseLong(a[3]), TimeUnit.MILLISECONDS);
            case "trynow":
                return "" + lock(c, a[0], a[1]).tryLock();
            case "unlock":
                lock(c, a[0], a[1]).unlock();
                return "";
            case "force":
                return "" + lock(c, a[0], a[1]).forceUnlock();
            case "locked":
                return "" + lock(c, a[0], a[1]).isLocked();
            case "held":
                return "" + lock(c, a[0], a[1]).isHeldByCurrentThread();
            case "count":
                return "" + lock(c, a[0], a[1]).getHoldCount();
            case "left":
                return "" + lock(c, a[0], a[1]).remainTimeToLive();
            case "locktoken":
                return "" + c.getFencedLock(a[0]).lockAndGetToken();
            case "trytoken":
                return "" + c.getFencedLock(a[0]).tryLockAndGetToken(Long.parseLong(a[1]), Long.parseLong(a[2]), TimeUnit.MILLISECONDS);
            case "token":
                return "" + c.getFencedLock(a[0]).getToken();
            case "loop":
                return new Loop(c, a).run();
            case "nothing":
                return "";
            default:
                break;
        }
        int dot = verb.indexOf('.');
        if (dot < 0) {
            throw new IllegalArgumentException("no verb " + verb);
        }
        String what = verb.substring(dot + 1);
        switch (verb.substring(0, dot)) {
            case "sem":
                return semaphore(c.getSemaphore(a[0]), what, a);
            case "permit":
                return permits(c.getPermitExpirableSemaphore(a[0]), what, a);
            case "latch":
                return latch(c.getCountDownLatch(a[0]), what, a);
            case "long":
                return number(c.getAtomicLong(a[0]), what, a);
            case "rate":
                return rate(c, what, a);
            default:
                throw new IllegalArgumentException("no verb " + verb);
        }
    }

    private static String semaphore(RSemaphore s, String what, String[] a) throws Exception {
        switch (what) {
            case "set":
                return "" + s.trySetPermits(Integer.parseInt(a[1]));
            case "acquire":
                s.acquire(Integer.parseInt(a[1]));
                return "";
            case "try":
                return "" + s.tryAcquire(Integer.parseInt(a[1]), Long.parseLong(a[2]), TimeUnit.MILLISECONDS);
            case "release":
                s.release(Integer.parseInt(a[1]));
                return "";
            case "add":
                s.addPermits(Integer.parseInt(a[1]));
                return "";
            case "drain":
                return "" + s.drainPermits();
            case "available":
                return "" + s.availablePermits();
            default:
                throw new IllegalArgumentException("no verb sem." + what);
        }
    }

    private static String permits(RPermitExpirableSemaphore s, String what, String[] a) throws Exception {
        switch (what) {
            case "set":
                return "" + s.trySetPermits(Integer.parseInt(a[1]));
            case "acquire":
                return s.acquire(Long.parseLong(a[1]), TimeUnit.MILLISECONDS);
            case "forever":
                return s.acquire();
            case "try": // the id, or null
                return "" + s.tryAcquire(Long.parseLong(a[1]), Long.parseLong(a[2]), TimeUnit.MILLISECONDS);
            case "release":
                s.release(a[1]);
                return "";
            case "tryrelease":
                return "" + s.tryRelease(a[1]);
            case "available":
                return "" + s.availablePermits();
            case "lease":
                return "" + s.updateLeaseTime(a[1], Long.parseLong(a[2]), TimeUnit.MILLISECONDS);
            case "add":
                s.addPermits(Integer.parseInt(a[1]));
                return "";
            default:
                throw new IllegalArgumentException("no verb permit." + what);
        }
    }

    private static String latch(RCountDownLatch l, String what, String[] a) throws Exception {
        switch (what) {
            case "set":
                return "" + l.trySetCount(Long.parseLong(a[1]));
            case "down":
                l.countDown();
                return "";
            case "count":
                return "" + l.getCount();
            case "await":
                return "" + l.await(Long.parseLong(a[1]), TimeUnit.MILLISECONDS);
            case "delete":
                return "" + l.delete();
            default:
                throw new IllegalArgumentException("no verb latch." + what);
        }
    }

    private static String number(RAtomicLong n, String what, String[] a) {
        switch (what) {
            case "get":
                return "" + n.get();
            case "set":
                n.set(Long.parseLong(a[1]));
                return "";
            case "add":
                return "" + n.addAndGet(Long.parseLong(a[1]));
            case "incr":
                return "" + n.incrementAndGet();
            case "decr":
                return "" + n.decrementAndGet();
            case "getadd":
                return "" + n.getAndAdd(Long.parseLong(a[1]));
            case "cas":
                return "" + n.compareAndSet(Long.parseLong(a[1]), Long.parseLong(a[2]));
            default:
                throw new IllegalArgumentException("no verb long." + what);
        }
    }

    /**
     * rate.set NAME RATE: so many a second, of all clients together, and once for each name. rate.try NAME: whether one may pass now.
     * rate.run NAME KEYS THREADS N: N times rate.try, of the limits NAME0, NAME1, ... in turns, by THREADS threads; how many passed.
     */
    private static String rate(RedissonClient c, String what, String[] a) throws Exception {
        switch (what) {
            case "set":
                return "" + c.getRateLimiter(a[0]).trySetRate(RateType.OVERALL, Long.parseLong(a[1]), 1, RateIntervalUnit.SECONDS);
            case "try":
                return "" + c.getRateLimiter(a[0]).tryAcquire();
            case "run":
                break;
            default:
                throw new IllegalArgumentException("no verb rate." + what);
        }
        RRateLimiter[] limits = new RRateLimiter[Integer.parseInt(a[1])];
        for (int i = 0; i < limits.length; i++) {
            limits[i] = c.getRateLimiter(a[0] + i);
        }
        int threads = Integer.parseInt(a[2]);
        long n = Long.parseLong(a[3]);
        AtomicLong next = new AtomicLong();
        AtomicLong passed = new AtomicLong();
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        Future<?>[] all = new Future<?>[threads];
        for (int t = 0; t < threads; t++) {
            all[t] = pool.submit(() -> {
                for (long i = next.getAndIncrement(); i < n; i = next.getAndIncrement()) {
                    if (limits[(int) (i % limits.length)].tryAcquire()) {
                        passed.incrementAndGet();
                    }
                }
            });
        }
        try {
            for (Future<?> f : all) {
                f.get();
            }
        } finally {
            pool.shutdownNow();
        }
        return "" + passed.get();
    }

    /**
     * loop KIND NAME ROUNDS LIMIT GUARD HOLD: acquires and releases, ROUNDS times (0: without end) or for LIMIT
     * milliseconds (0: without end), whichever is first.
     *
     * <p>While it holds it reads the number under the key GUARD and writes one more, in two commands, so that anybody else
     * inside would lose a count ("-": no guard); readers look that it does not change. Then it sleeps HOLD microseconds.
     * KIND rw is a read-write lock, every third round of which writes; sem and permit take one permit of a semaphore.
     *
     * <p>Answers WRITES LONGEST INTERVALS: how often it added to the guard, the longest wait in ns, and when it was inside, as
     * "r12:34,w56:78" in ns of System.nanoTime, which on Linux is CLOCK_MONOTONIC: one clock for all processes.
     */
    private static final class Loop {
        final RedissonClient c;
        final String kind;
        final String name;
        final long rounds;
        final long limit;
        final RBucket<String> guard;
        final long hold;
        final StringBuilder intervals = new StringBuilder();
        long writes;
        long longest;
        String permit;

        Loop(RedissonClient c, String[] a) {
            this.c = c;
            kind = a[0];
            name = a[1];
            rounds = Long.parseLong(a[2]);
            limit = TimeUnit.MILLISECONDS.toNanos(Long.parseLong(a[3]));
            guard = a[4].equals("-") ? null : c.getBucket(a[4], StringCodec.INSTANCE);
            hold = TimeUnit.MICROSECONDS.toNanos(Long.parseLong(a[5]));
        }

        String run() throws Exception {
            long begun = System.nanoTime();
            for (long i = 0; rounds == 0 || i < rounds; i++) {
                long asked = System.nanoTime();
                if (limit > 0 && asked - begun > limit) {
                    break;
                }
                boolean reads = kind.equals("rw") && i % 3 != 0;
                boolean shared = reads || kind.equals("sem") || kind.equals("permit");
                RLock l = acquire(reads);
                long start = System.nanoTime();
                longest = Math.max(longest, start - asked);
                if (guard != null && !shared) {
                    String was = guard.get();
                    guard.set(Long.toString((was == null ? 0 : Long.parseLong(was)) + 1));
                    writes++;
                } else if (guard != null && reads) {
                    String was = guard.get();
                    String is = guard.get();
                    if (!String.valueOf(was).equals(String.valueOf(is))) {
                        throw new IllegalStateException("a writer together with a reader: " + was + " became " + is);
                    }
                }
                if (hold > 0) {
                    java.util.concurrent.locks.LockSupport.parkNanos(hold);
                }
                long end = System.nanoTime();
                release(l);
                intervals.append(intervals.length() == 0 ? "" : ",").append(shared ? 'r' : 'w').append(start).append(':').append(end);
            }
            return writes + " " + longest + " " + intervals;
        }

        private RLock acquire(boolean reads) throws Exception {
            switch (kind) {
                case "sem":
                    c.getSemaphore(name).acquire();
                    return null;
                case "permit":
                    permit = c.getPermitExpirableSemaphore(name).acquire(30, TimeUnit.SECONDS);
                    return null;
                default:
                    RLock l = lock(c, kind.equals("rw") ? (reads ? "read" : "write") : kind, name);
                    l.lock();
                    return l;
            }
        }

        private void release(RLock l) {
            switch (kind) {
                case "sem":
                    c.getSemaphore(name).release();
                    break;
                case "permit":
                    c.getPermitExpirableSemaphore(name).release(permit);
                    break;
                default:
                    l.unlock();
            }
        }
    }

    /** The release of Redisson that is on the class path. */
    private static final class RedissonVersion {
        static String text() {
            String v = Redisson.class.getPackage().getImplementationVersion();
            if (v != null) {
                return v;
            }
            String jar = Redisson.class.getProtectionDomain().getCodeSource().getLocation().getPath();
            return jar.replaceAll(".*redisson-(.*)\\.jar$", "$1");
        }
    }
}
