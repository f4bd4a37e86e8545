package redlatchfence_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	redlatchfence "github.com/redlatch/redlatch/contrib/fence"
)

// A request is served only with one token, and never with a smaller one than before.
func FuzzHandler(f *testing.F) {
	for _, token := range []string{"7", "0", "-1", "9007199254740991", "9007199254740992", "+7", "07", " 7", "7,8", ""} {
		f.Add("resource", token, "8")
	}
	f.Fuzz(func(t *testing.T, resource, first, second string) {
		var served []redlatchfence.Token
		h := redlatchfence.Handler(&redlatchfence.Memory{}, func(*http.Request) string { return resource },
			http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				token, ok := redlatchfence.FromContext(r.Context())
				require.True(t, ok)
				require.NoError(t, token.Check())
				served = append(served, token)
			}))
		for _, fields := range [][]string{{first}, {second}, {first, second}, nil} {
			r := &http.Request{URL: &url.URL{}, Header: http.Header{redlatchfence.Header: fields}}
			w := httptest.NewRecorder()
			count := len(served)
			h.ServeHTTP(w, r)
			require.Equal(t, w.Code == http.StatusOK, len(served) > count)
			if len(fields) != 1 {
				require.NotEqual(t, http.StatusOK, w.Code)
			}
		}
		require.IsNonDecreasing(t, append([]redlatchfence.Token{0, 0}, served...))
	})
}
