package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestThePageIsThereAndItsButtonIsLimited(t *testing.T) {
	handler, err := serve("")
	require.NoError(t, err)
	site := httptest.NewServer(handler)
	defer site.Close()
	r, err := http.Get(site.URL)
	require.NoError(t, err)
	text, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	r.Body.Close()
	require.Contains(t, string(text), "thirty a minute")
	codes := map[int]int{}
	for range 40 {
		r, err := http.Post(site.URL+"/click", "", nil)
		require.NoError(t, err)
		r.Body.Close()
		codes[r.StatusCode]++
	}
	require.Positive(t, codes[http.StatusOK])
	require.Positive(t, codes[http.StatusTooManyRequests])
	require.Equal(t, 40, codes[http.StatusOK]+codes[http.StatusTooManyRequests], codes)
}
