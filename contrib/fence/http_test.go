package redlatchfence_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	redlatchfence "github.com/redlatch/redlatch/contrib/fence"
)

// plainGuard is a Guard and not an Exclusive.
type plainGuard struct{ redlatchfence.Guard }

func byPath(r *http.Request) string { return r.URL.Path[1:] }

func TestHTTP_Refusals(t *testing.T) {
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
			status, err := send(34)
			require.NoError(t, err)
			require.Equal(t, http.StatusAccepted, status)
			status, err = send(33)
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
				r, err := http.NewRequestWithContext(t.Context(), "POST", server.URL+path, nil)
				require.NoError(t, err)
				r.Header[redlatchfence.Header] = c.fields
				resp, err := http.DefaultClient.Do(r)
				require.NoError(t, err)
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

func TestHTTP_GuardIsDown(t *testing.T) {
	h := redlatchfence.Handler(brokenGuard{}, byPath, http.NotFoundHandler())
	w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "/a", nil)
	r.Header.Set(redlatchfence.Header, "33")
	h.ServeHTTP(w, r)
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.Panics(t, func() { redlatchfence.Handler(nil, byPath, http.NotFoundHandler()) })
}

// A request of 33 is in the handler when 34 comes: 34 is served after it.
func TestHTTP_Exclusive(t *testing.T) {
	began, end, second := make(chan struct{}), make(chan struct{}), make(chan int, 1)
	var order []redlatchfence.Token
	server := httptest.NewServer(redlatchfence.Handler(&redlatchfence.Memory{}, byPath,
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			token, _ := redlatchfence.FromContext(r.Context())
			if token == 33 {
				close(began)
				<-end
			}
			order = append(order, token)
		})))
	defer server.Close()
	send := func(token redlatchfence.Token) int {
		ctx := redlatchfence.NewContext(context.Background(), token)
		r, err := http.NewRequestWithContext(ctx, "POST", server.URL+"/a", nil)
		if err != nil {
			return 0
		}
		resp, err := (&http.Client{Transport: redlatchfence.Transport{Base: http.DefaultTransport}}).Do(r)
		if err != nil {
			return 0
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		return resp.StatusCode
	}
	first := make(chan int, 1)
	go func() { first <- send(33) }()
	<-began
	go func() { second <- send(34) }()
	select {
	case <-second:
		t.Fatal("34 did not wait")
	default:
	}
	close(end)
	require.Equal(t, http.StatusOK, <-first)
	require.Equal(t, http.StatusOK, <-second)
	require.Equal(t, []redlatchfence.Token{33, 34}, order)
}
