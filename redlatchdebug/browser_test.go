package redlatchdebug_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

// screenshotEnv names a file to which the test writes what the browser shows, for the documents.
const screenshotEnv = "REDLATCH_SCREENSHOT"

// browse has headless Chromium load a page. A browser that does not work says nothing about the page: the test is
// skipped.
func browse(t *testing.T, url string, flags ...string) []byte {
	t.Helper()
	bin, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("install chromium to have the page loaded by a browser: ", err)
	}
	var out, log bytes.Buffer
	var failed error
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
		home, err := os.MkdirTemp("", "chromium") // not of the test: what the browser still writes there is no failure of it
		require.NoError(t, err)
		t.Cleanup(func() { os.RemoveAll(home) })
		args := append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
			"--disable-background-networking",
			"--disable-component-update", "--disable-sync", "--hide-scrollbars", "--user-data-dir=" + home}, flags...)
		out.Reset()
		log.Reset()
		cmd := exec.CommandContext(ctx, bin, append(args, url)...)
		cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &log, 10*time.Second
		failed = cmd.Run()
		cancel()
		if failed == nil {
			return out.Bytes()
		}
	}
	t.Skipf("chromium does not run here: %v\n%s", failed, log.String())
	return nil
}

// On a telephone the values that matter, how long a hold is safe and whether it is renewed, are in sight: nothing is
// wider than the screen.
func TestPage_Browser_ShowsAllAndCutsNothingOff(t *testing.T) {
	redistest.SkipShort(t)
	if redistest.RaceEnabled {
		t.Skip("the browser is not looked at by the race detector; go test ./... runs this")
	}
	t.Parallel()
	s := newDebugRig(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/measure" {
			page := httptest.NewRecorder()
			s.page.ServeHTTP(page, r)
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = w.Write(page.Body.Bytes()) // in a frame, which the page's own headers forbid
			return
		}
		_, _ = io.WriteString(w, `<iframe src="/" style="width:400px;height:2400px" onload="
			let wide = [...this.contentDocument.querySelectorAll('.wide, html')].filter(e => e.scrollWidth > e.clientWidth)
			document.body.append('cut off: ' + wide.length + ' of ' + this.contentDocument.querySelectorAll('.wide').length)
			"></iframe>`)
	}))
	t.Cleanup(server.Close)
	dom := string(browse(t, server.URL+"/measure", "--dump-dom", "--virtual-time-budget=5000"))
	require.Regexp(t, `cut off: 0 of [5-9]`, dom)
	dom = string(browse(t, server.URL+"/?n=50", "--dump-dom"))
	for _, shown := range []string{"order:4711", "payment &lt;3&gt;", "invoices", "month end", "Waiting calls",
		"On the server", "this process", "Recent errors", "job:17"} {
		require.Contains(t, dom, shown)
	}
	if to := os.Getenv(screenshotEnv); to != "" {
		browse(t, server.URL+"/", "--screenshot="+to, "--virtual-time-budget=5000", "--window-size=1240,1800")
	}
}
