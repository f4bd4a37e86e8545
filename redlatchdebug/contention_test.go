package redlatchdebug_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/redlatchdebug"
	"github.com/redlatch/redlatch/redlatchtest"
	"github.com/redlatch/redlatch/rlock"
)

// wait is one sample of a contention profile.
type wait struct {
	count, nanoseconds uint64
	labels             map[string]string
	stack              []string // functions, the innermost first
}

// fields calls do for each field of a message of protocol buffers.
func fields(t *testing.T, b []byte, do func(field int, number uint64, content []byte)) {
	t.Helper()
	next := func() uint64 {
		n, size := binary.Uvarint(b)
		require.Positive(t, size)
		b = b[size:]
		return n
	}
	for len(b) > 0 {
		switch tag := next(); tag & 7 {
		case 0:
			do(int(tag>>3), next(), nil)
		case 2:
			length := next()
			do(int(tag>>3), 0, b[:length])
			b = b[length:]
		default:
			require.Fail(t, "wire type", tag&7)
		}
	}
}

// numbers returns the numbers of a packed field.
func numbers(b []byte) (all []uint64) {
	for len(b) > 0 {
		n, size := binary.Uvarint(b)
		all, b = append(all, n), b[size:]
	}
	return all
}

// profile asks a handler for the contention profile, and reads it.
func profile(t *testing.T, h http.Handler, query string) (all []wait) {
	t.Helper()
	w := get(t, h, query)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	return decode(t, w.Body.Bytes())
}

func decode(t *testing.T, compressed []byte) (all []wait) {
	t.Helper()
	unzipped := redistest.NoError(gzip.NewReader(bytes.NewReader(compressed)))(t)
	text := redistest.NoError(io.ReadAll(unzipped))(t)
	var texts []string
	functions, locations := map[uint64]uint64{}, map[uint64][]uint64{}
	var samples [][]byte
	fields(t, text, func(field int, _ uint64, content []byte) {
		var id, name uint64
		var lines []uint64
		inner := func(number int, n uint64, b []byte) {
			switch {
			case number == 1:
				id = n
			case number == 2:
				name = n
			case number == 4 && b != nil:
				fields(t, b, func(number int, n uint64, _ []byte) {
					if number == 1 {
						lines = append(lines, n)
					}
				})
			}
		}
		switch field {
		case 2:
			samples = append(samples, content)
		case 4:
			fields(t, content, inner)
			locations[id] = lines
		case 5:
			fields(t, content, inner)
			functions[id] = name
		case 6:
			texts = append(texts, string(content))
		}
	})
	for _, sample := range samples {
		one := wait{labels: map[string]string{}}
		fields(t, sample, func(field int, _ uint64, content []byte) {
			switch field {
			case 1:
				for _, location := range numbers(content) {
					for _, function := range locations[location] {
						one.stack = append(one.stack, texts[functions[function]])
					}
				}
			case 2:
				values := numbers(content)
				one.count, one.nanoseconds = values[0], values[1]
			case 3:
				var label [3]string
				fields(t, content, func(field int, n uint64, _ []byte) { label[field] = texts[n] })
				one.labels[label[1]] = label[2]
			}
		})
		all = append(all, one)
	}
	return all
}

// sum adds up the samples whose stack has a function that ends with the text; "" adds up all.
func sum(all []wait, function string) (total wait) {
	for _, one := range all {
		if function == "" {
			total = total.plus(one)
			continue
		}
		for _, frame := range one.stack {
			if strings.HasSuffix(frame, function) {
				total = total.plus(one)
				break
			}
		}
	}
	return total
}

// waited adds up the time of acquisitions that waited, by their events.
type waited struct {
	mu    sync.Mutex
	count uint64
	took  time.Duration
	wrong []string // the names whose events have another Waited
}

type waitedKey struct{}

func (w *waited) observe(ctx context.Context, event redlatch.Event) context.Context {
	flag, _ := ctx.Value(waitedKey{}).(*bool)
	switch event.Kind {
	case redlatch.EventAcquiring:
		return context.WithValue(ctx, waitedKey{}, new(bool))
	case redlatch.EventWaiting:
		*flag = true
	case redlatch.EventAcquired, redlatch.EventNotAcquired:
		w.mu.Lock()
		defer w.mu.Unlock()
		if *flag != event.Waited {
			w.wrong = append(w.wrong, event.Name)
		}
		if *flag {
			w.count, w.took = w.count+1, w.took+event.Took
		}
	}
	return ctx
}

// contend has callers that take turns with an object, until each had some.
func contend(t *testing.T, do func(ctx context.Context, work func(context.Context) error) error) {
	t.Helper()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 3 {
				if err := do(t.Context(), func(context.Context) error { time.Sleep(time.Millisecond); return nil }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

func lockHere(t *testing.T, lock *rlock.Lock) {
	t.Helper()
	contend(t, func(ctx context.Context, work func(context.Context) error) error { return lock.Do(ctx, work) })
}

func TestContention_WaitsOfEveryKind_AddUpToTheEvents(t *testing.T) {
	t.Parallel()
	var events waited
	srv := redlatchtest.New(t)
	red := srv.Open(redlatch.Options{CallTimeout: patience, Observer: events.observe})
	h := redlatchdebug.Contention(red)
	require.Empty(t, profile(t, h, ""))
	locks, semaphores := red.Locks(), red.Semaphores()
	readWrite := locks.ReadWrite("read-write")
	multi := redistest.NoError(rlock.Multi(locks.Reentrant("a"), locks.Fair("b")))(t)
	for _, lock := range []*rlock.Lock{locks.Reentrant("reentrant"), locks.Fenced("fenced"), locks.Fair("fair"),
		locks.Plain("plain"), locks.Spin("spin", 0, time.Millisecond), readWrite.Read(), readWrite.Write(), multi} {
		lockHere(t, lock)
	}
	permits := semaphores.Semaphore("permits", 1)
	contend(t, func(ctx context.Context, work func(context.Context) error) error { return permits.Do(ctx, 1, work) })
	release := srv.HoldElsewhere("held")
	_, err := locks.Reentrant("held").TryLock(t.Context(), 50*time.Millisecond, 0)
	require.ErrorIs(t, err, redlatch.ErrNotAcquired)
	release()

	all := profile(t, h, "")
	total := sum(all, "")
	require.Empty(t, events.wrong)
	require.Equal(t, events.count, total.count)
	require.EqualValues(t, events.took, total.nanoseconds)
	require.NotZero(t, total.count)
	require.Equal(t, total, sum(all, "redlatchdebug_test.contend.func1").plus(sum(all, "AddUpToTheEvents")),
		"each sample has the function that called")
	for _, one := range all {
		require.Contains(t, one.stack[0], "redlatchdebug_test.", "the first frame is the caller's")
		require.Contains(t, []string{"lock", "semaphore"}, one.labels["kind"])
	}
	require.NotZero(t, sum(all, "lockHere.func1").count)
}

func (w wait) plus(other wait) wait {
	return wait{count: w.count + other.count, nanoseconds: w.nanoseconds + other.nanoseconds}
}

func TestContention_UncontendedAcquisition_IsNoSample(t *testing.T) {
	t.Parallel()
	red := redlatchtest.New(t).Open(redlatch.Options{CallTimeout: patience})
	h := redlatchdebug.Contention(red)
	lock := red.Locks().Reentrant("free")
	require.NoError(t, lock.Do(t.Context(), func(context.Context) error { return nil }))
	require.NoError(t, red.Semaphores().Semaphore("free permits", 1).Do(t.Context(), 1,
		func(context.Context) error { return nil }))
	require.Empty(t, profile(t, h, ""))
}

func TestContention_Holder_HasTheNameThatInspectShows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		red := redlatchtest.New(t).Open(redlatch.Options{Process: "web-1"})
		h := redlatchdebug.Contention(red)
		locks, pool := red.Locks(), red.Semaphores().Semaphore("pool", 1)
		for _, pair := range [][2]*rlock.Lock{
			{locks.Reentrant("order:1").WithLabel("payment"), locks.Reentrant("order:1")},
			{locks.ReadWrite("order:2").Read().WithLabel("reader"), locks.ReadWrite("order:2").Write()},
			{locks.Plain("order:3"), locks.Plain("order:3")},
		} {
			hold := redistest.NoError(pair[0].Lock(t.Context()))(t)
			time.Sleep(2 * time.Second) // until then the process has no name on the server
			_, err := pair[1].TryLock(t.Context(), 300*time.Millisecond, 0)
			require.ErrorIs(t, err, redlatch.ErrNotAcquired)
			require.NoError(t, hold.Unlock(t.Context()))
		}
		permit := redistest.NoError(pool.WithLabel("batch").Acquire(t.Context(), 1))(t)
		_, err := pool.TryAcquire(t.Context(), 1, 300*time.Millisecond, 0)
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		require.NoError(t, permit.Release(t.Context()))
		leader := redistest.NoError(red.Elections().Election("leader").Campaign(t.Context(), "me"))(t)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err = red.Elections().Election("leader").Campaign(ctx, "other")
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		require.NoError(t, leader.Resign(t.Context()))
		holders := map[string]uint64{}
		for _, one := range profile(t, h, "") {
			holders[one.labels["kind"]+" "+one.labels["holder"]] += one.count
		}
		require.Equal(t, map[string]uint64{"lock payment": 1, "lock reader": 1, "lock web-1": 1, "semaphore batch": 1,
			"election me": 1}, holders)
	})
}

func TestContention_Seconds_AreTheWaitsThatEndInThem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redlatchtest.New(t)
		red := srv.Open(redlatch.Options{})
		h := redlatchdebug.Contention(red)
		release := srv.HoldElsewhere("held")
		fail := func() {
			_, err := red.Locks().Reentrant("held").TryLock(t.Context(), 100*time.Millisecond, 0)
			require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		}
		fail()
		require.EqualValues(t, 1, sum(profile(t, h, ""), "").count)
		during := make(chan []wait)
		go func() { during <- profile(t, h, "seconds=2") }()
		time.Sleep(time.Second)
		fail()
		of := sum(<-during, "")
		require.EqualValues(t, 1, of.count)
		require.Less(t, of.nanoseconds, uint64(2*time.Second))
		require.EqualValues(t, 2, sum(profile(t, h, ""), "").count)
		release()
	})
}

func TestContention_BadRequest_IsRefused(t *testing.T) {
	t.Parallel()
	h := redlatchdebug.Contention(redlatchtest.New(t).Open(redlatch.Options{}))
	for query, want := range map[string]string{"seconds=0": "seconds is \"0\", must be 1 to 3600",
		"seconds=x": "seconds is \"x\", must be 1 to 3600", "seconds=%zz": "the query cannot be read"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/?"+query, nil))
		require.Equal(t, http.StatusBadRequest, w.Code)
		require.Contains(t, w.Body.String(), want)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", "/", nil))
	require.Equal(t, http.StatusMethodNotAllowed, w.Code)
	w = httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "HEAD", "/", nil))
	require.Equal(t, http.StatusOK, w.Code)
	require.Zero(t, w.Body.Len())
	require.PanicsWithValue(t, "redlatchdebug: Contention of a nil client", func() { redlatchdebug.Contention(nil) })
}
