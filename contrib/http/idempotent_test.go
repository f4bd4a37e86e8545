package redlatchhttp_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/contrib/http"
	"github.com/redlatch/redlatch/redlatchtest"
	"github.com/redlatch/redlatch/rlock"
)

// post sends a request with a key; "" without one.
func post(h http.Handler, key, path, body string) *http.Response {
	r := httptest.NewRequest("POST", path, strings.NewReader(body))
	if key != "" {
		r.Header.Set(redlatchhttp.IdempotencyKey, key)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func bodyOf(t *testing.T, r *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return string(text)
}

func TestIdempotent_KeyOfAnEarlierRequest_GetsItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		once := redlatchtest.New(t).Open().Locks().Once("pay", rlock.OnceOptions{}).WithWait(0)
		var runs atomic.Int32
		var failed []error
		handler := redlatchhttp.Idempotent(once, redlatchhttp.IdempotentOptions{
			Failed: func(_ *http.Request, err error) { failed = append(failed, err) },
		})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			token, ok := redlatchhttp.Token(r.Context())
			require.True(t, ok == (r.Method == "POST"))
			require.True(t, token > 0 == ok)
			body, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			w.Header().Set("Location", "/payments/1")
			switch string(body) {
			case "bad":
				w.WriteHeader(http.StatusBadGateway)
			case "large":
				w.Write(make([]byte, 1<<20))
			default:
				w.WriteHeader(http.StatusCreated)
			}
			runs.Add(1)
			w.Header().Set("Late", "1")
			io.WriteString(w, "paid "+string(body))
		}))
		for i := range 3 {
			r := post(handler, "k", "/pay", "5")
			require.Equal(t, http.StatusCreated, r.StatusCode)
			require.Equal(t, "paid 5", bodyOf(t, r))
			require.Equal(t, "/payments/1", r.Header.Get("Location"))
			require.Empty(t, r.Header.Get("Late"))
			require.Equal(t, i > 0, r.Header.Get("Idempotency-Replayed") == "true")
		}
		require.EqualValues(t, 1, runs.Load())
		require.Equal(t, http.StatusUnprocessableEntity, post(handler, "k", "/pay", "6").StatusCode)
		require.Equal(t, http.StatusUnprocessableEntity, post(handler, "k", "/pay?to=ann", "5").StatusCode)
		require.Equal(t, http.StatusBadRequest, post(handler, "", "/pay", "5").StatusCode)
		require.EqualValues(t, 1, runs.Load())
		for range 2 {
			r := post(handler, "bad", "/pay", "bad")
			require.Equal(t, http.StatusBadGateway, r.StatusCode)
			require.Equal(t, "paid bad", bodyOf(t, r), "nothing is kept")
		}
		require.EqualValues(t, 3, runs.Load())
		require.Equal(t, http.StatusServiceUnavailable, post(handler, "large", "/pay", "large").StatusCode)
		require.Len(t, failed, 1)
		require.Equal(t, http.StatusRequestEntityTooLarge,
			post(handler, "k2", "/pay", strings.Repeat("x", 1<<20+1)).StatusCode)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/pay", nil))
		require.Equal(t, http.StatusCreated, w.Code, "safe methods pass")
	})
}

func TestIdempotent_InProgress_IsConflictOrWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		once := redlatchtest.New(t).Open().Locks().Once("pay", rlock.OnceOptions{})
		slow := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(time.Minute)
			io.WriteString(w, "done")
		})
		wrap := func(o *rlock.Once) http.Handler {
			return redlatchhttp.Idempotent(o, redlatchhttp.IdempotentOptions{Optional: true})(slow)
		}
		var all sync.WaitGroup
		all.Go(func() { require.Equal(t, http.StatusOK, post(wrap(once), "k", "/pay", "").StatusCode) })
		time.Sleep(time.Second)
		require.Equal(t, http.StatusConflict, post(wrap(once.WithWait(0)), "k", "/pay", "").StatusCode)
		require.Equal(t, http.StatusOK, post(wrap(once), "", "/pay", "").StatusCode, "no key, and none is required")
		require.Equal(t, "done", bodyOf(t, post(wrap(once), "k", "/pay", "")))
		all.Wait()
	})
}

func TestToken_OtherContext_HasNone(t *testing.T) {
	t.Parallel()
	_, ok := redlatchhttp.Token(context.Background())
	require.False(t, ok)
}
