package redlatchfence_test

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	redlatchfence "github.com/redlatch/redlatch/contrib/fence"
	"github.com/redlatch/redlatch/internal/redistest"
)

// bucket is a store in memory, and how it is spoken to.
func bucket(t *testing.T) (*Bucket, redlatchfence.S3) {
	b := &Bucket{}
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	return b, redlatchfence.S3{Bucket: server.URL + "/", Client: server.Client()}
}

func TestObjects_AnyTokens_ObeyTheGuardRules(t *testing.T) {
	b, store := bucket(t)
	o := redlatchfence.Objects{Store: store, Stamp: redlatchfence.StampJSON}
	rules(t, o, "a+b/../c d//e?f#g")
	ctx := t.Context()
	data := redistest.NoError(o.Read(ctx, "new", 33))(t)
	require.Nil(t, data)
	require.NoError(t, o.Put(ctx, "new", 33, []byte(`{"n": 1}`)))
	require.NoError(t, o.Put(ctx, "new", 33, []byte(`{"n": 2}`)))
	data = redistest.NoError(o.Read(ctx, "new", 34))(t)
	require.JSONEq(t, `{"n": 2, "fencing_token": 33}`, string(data))
	require.ErrorIs(t, o.Put(ctx, "new", 33, []byte(`{"n": 3}`)), redlatchfence.ErrStale)
	_, err := o.Read(ctx, "new", 33)
	require.ErrorIs(t, err, redlatchfence.ErrStale)
	now := redistest.NoError(store.Get(ctx, "new"))(t)
	require.JSONEq(t, `{"n": 2, "fencing_token": 34}`, string(now.Data))
	require.EqualValues(t, 34, now.Token)

	var conflicts atomic.Int32
	b.Conflicts = func(string) bool { return conflicts.Add(1) < 4 }
	require.NoError(t, o.Put(ctx, "new", 34, []byte(`{"n": 4}`)), "S3 says to ask again after 409")
	require.EqualValues(t, 4, conflicts.Load())
	ended, cancel := context.WithCancel(ctx)
	b.Conflicts = func(string) bool { cancel(); return true }
	require.ErrorIs(t, o.Put(ended, "new", 34, []byte(`{"n": 5}`)), context.Canceled)
}

// 34 comes, or the object goes, between the look of 33 and its write.
func TestObjects_WriteBetweenReadAndPut_NewerTokenWins(t *testing.T) {
	for name, between := range map[string]func(t *testing.T, o redlatchfence.Objects, s redlatchfence.S3) error{
		"newer": func(t *testing.T, o redlatchfence.Objects, _ redlatchfence.S3) error {
			require.NoError(t, o.Put(t.Context(), "a", 34, []byte(`{"n": 34}`)))
			return redlatchfence.ErrStale
		},
		"newer writes the same": func(t *testing.T, o redlatchfence.Objects, _ redlatchfence.S3) error {
			require.NoError(t, o.Put(t.Context(), "a", 34, []byte(`{"n": 32}`)))
			return redlatchfence.ErrStale
		},
		"older": func(t *testing.T, o redlatchfence.Objects, _ redlatchfence.S3) error {
			require.NoError(t, o.Put(t.Context(), "a", 32, []byte(`{"n": 1}`)))
			return nil
		},
		"deleted": func(t *testing.T, _ redlatchfence.Objects, s redlatchfence.S3) error {
			r := redistest.NoError(http.NewRequestWithContext(t.Context(), "DELETE", s.Bucket+"a", nil))(t)
			resp := redistest.NoError(s.Client.Do(r))(t)
			return resp.Body.Close()
		},
	} {
		for _, exists := range []bool{true, false} {
			t.Run(fmt.Sprint(name, " ", exists), func(t *testing.T) {
				b, store := bucket(t)
				o := redlatchfence.Objects{Store: store, Stamp: redlatchfence.StampJSON}
				if exists {
					require.NoError(t, o.Put(t.Context(), "a", 32, []byte(`{"n": 32}`)))
				}
				var want error
				var once atomic.Bool
				b.Uploading = func(string) {
					if once.CompareAndSwap(false, true) {
						want = between(t, o, store)
					}
				}
				err := o.Put(t.Context(), "a", 33, []byte(`{"n": 33}`))
				require.ErrorIs(t, err, want)
				now := redistest.NoError(store.Get(t.Context(), "a"))(t)
				if want == nil {
					require.JSONEq(t, `{"n": 33, "fencing_token": 33}`, string(now.Data))
				} else {
					require.EqualValues(t, 34, now.Token)
				}
			})
		}
	}
}

// Without a stamp S3's ETag says that nothing has changed when 34 has written the same data: the stale write is taken.
// This is why Objects asks for a stamp, and notices an ETag that does not change.
func TestObjects_ETagOfTheDataAlone_AcceptsAStaleWrite(t *testing.T) {
	b, store := bucket(t)
	o := redlatchfence.Objects{Store: store, UniqueETags: true} // which is not true
	ctx := t.Context()
	require.NoError(t, o.Put(ctx, "a", 32, []byte("same")))
	var later error
	var once atomic.Bool
	b.Uploading = func(string) {
		if once.CompareAndSwap(false, true) {
			later = o.Put(ctx, "a", 34, []byte("same"))
		}
	}
	require.NoError(t, o.Put(ctx, "a", 33, []byte("other")), "a stale write")
	require.ErrorContains(t, later, "UniqueETags does not hold")
}

func TestObjects_BadArguments_AreRefused(t *testing.T) {
	_, store := bucket(t)
	ctx := t.Context()
	for _, o := range []redlatchfence.Objects{
		{Stamp: redlatchfence.StampJSON}, {Store: store},
		{Store: store, Stamp: redlatchfence.StampJSON, UniqueETags: true},
		{Store: redlatchfence.S3{}, UniqueETags: true},
	} {
		require.ErrorIs(t, o.Advance(ctx, "a", 33), redlatchfence.ErrInvalid)
	}
	for _, data := range []string{"", "[]", "null", "{"} {
		_, err := redlatchfence.StampJSON([]byte(data), 33)
		require.Error(t, err, data)
	}
}

func TestS3_EachAnswer_HasItsError(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		header map[string]string
		body   string
		want   error // of a Put
		get    error
	}{
		"forbidden":    {403, nil, "<Code>AccessDenied</Code>", nil, nil},
		"no_bucket":    {404, nil, "<Code>NoSuchBucket</Code>", nil, fs.ErrNotExist},
		"no_key":       {404, nil, "<Code>NoSuchKey</Code>", redlatchfence.ErrPrecondition, fs.ErrNotExist},
		"precondition": {412, nil, "", redlatchfence.ErrPrecondition, nil},
		"conflict":     {409, nil, "", redlatchfence.ErrPrecondition, nil},
		"no_etag":      {200, nil, "", nil, nil},
		"bad_token":    {200, map[string]string{"ETag": `"1"`, "x-amz-meta-fencing-token": "x"}, "", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				for key, value := range c.header {
					w.Header().Set(key, value)
				}
				w.WriteHeader(c.status)
				w.Write([]byte(c.body))
			}))
			defer server.Close()
			store := redlatchfence.S3{Bucket: server.URL}
			_, err := store.Put(t.Context(), "a", redlatchfence.Object{Token: 33, ETag: `"0"`})
			require.Error(t, err)
			require.Equal(t, c.want != nil, strings.Contains(err.Error(), redlatchfence.ErrPrecondition.Error()), "%v", err)
			_, err = store.Get(t.Context(), "a")
			require.Error(t, err)
			if c.get != nil {
				require.ErrorIs(t, err, c.get)
			}
		})
	}
}
