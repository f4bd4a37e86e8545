package redlatchfence_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	redlatchfence "github.com/redlatch/redlatch/contrib/fence"
	"github.com/redlatch/redlatch/internal/redistest"
)

// plainGuard is a Guard and not an Exclusive.
type plainGuard struct{ redlatchfence.Guard }

func byPath(r *http.Request) string { return r.URL.Path[1:] }

func TestHandler_StaleOrBadToken_IsRefused(t *testing.T) {
	for name, guard := range map[string]redlatchfence.Guard{
		"exclusive": &redlatchfence.Memory{}, "plain": plainGuard{&redlatchfence.Memory{}},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			server := httptest.NewServer(redlatchfence.Handler(guard, byPath,
				http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					calls++
					token, ok := redlatchfence.FromContext(r.Context())
					require.True(t, ok)
					require.Positive(t, token)
					if _, exclusive := guard.(redlatchfence.Exclusive); exclusive {
						short, cancel := context.WithTimeout(r.Context(), 20*time.Millisecond)
						defer cancel()
						require.ErrorIs(t, guard.Advance(short, "a", 99), context.DeadlineExceeded, "it waits for this request")
					}
					w.WriteHeader(http.StatusAccepted)
				})))
			defer server.Close()
			client := http.Client{Transport: redlatchfence.Transport{}}
			send := func(token redlatchfence.Token) (int, error) {
				r, err := http.NewRequestWithContext(redlatchfence.NewContext(t.Context(), token), "POST", server.URL+"/a", nil)
				require.NoError(t, err)
				resp, err := client.Do(r)
				if err != nil {
					return 0, err
				}
				resp.Body.Close()
				return resp.StatusCode, redlatchfence.Refused(resp)
			}
			status := redistest.NoError(send(34))(t)
			require.Equal(t, http.StatusAccepted, status)
			status, err := send(33)
			require.ErrorIs(t, err, redlatchfence.ErrStale)
			require.Equal(t, http.StatusPreconditionFailed, status)
			_, err = send(0)
			require.ErrorIs(t, err, redlatchfence.ErrInvalid)
			require.Equal(t, 1, calls)

			for path, c := range map[string]struct {
				fields []string
				status int
			}{
				"/a?none":  {nil, http.StatusPreconditionRequired},
				"/a?text":  {[]string{"x"}, http.StatusBadRequest},
				"/a?zero":  {[]string{"0"}, http.StatusBadRequest},
				"/a?two":   {[]string{"35", "36"}, http.StatusBadRequest},
				"/?noname": {[]string{"35"}, http.StatusBadRequest},
				"/a?equal": {[]string{"34"}, http.StatusAccepted},
			} {
				r := redistest.NoError(http.NewRequestWithContext(t.Context(), "POST", server.URL+path, nil))(t)
				r.Header[redlatchfence.Header] = c.fields
				resp := redistest.NoError(http.DefaultClient.Do(r))(t)
				resp.Body.Close()
				require.Equal(t, c.status, resp.StatusCode, path)
				require.NoError(t, redlatchfence.Refused(resp))
			}
		})
	}
}

type brokenGuard struct{}

func (brokenGuard) Advance(context.Context, string, redlatchfence.Token) error {
	return errors.New("down")
}

func TestHandler_GuardDown_IsServiceUnavailable(t *testing.T) {
	h := redlatchfence.Handler(brokenGuard{}, byPath, http.NotFoundHandler())
	w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "/a", nil)
	r.Header.Set(redlatchfence.Header, "33")
	h.ServeHTTP(w, r)
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.Panics(t, func() { redlatchfence.Handler(nil, byPath, http.NotFoundHandler()) })
}
