package redlatchdebug_test

import (
	"bytes"
	"context"
	"image"
	"image/png"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

func TestThePageRendersInABrowser(t *testing.T) {
	redistest.SkipShort(t)
	if redistest.RaceEnabled {
		t.Skip("the browser is not looked at by the race detector; go test ./... runs this")
	}
	t.Parallel()
	s := newDebugRig(t)
	server := httptest.NewServer(s.page)
	t.Cleanup(server.Close)

	dom := string(browse(t, server.URL+"/?n=50", "--dump-dom"))
	for _, shown := range []string{"order:4711", "payment &lt;3&gt;", "invoices", "month end", "Waits for",
		"On the server", "this process", "Last errors", "job:17"} {
		require.Contains(t, dom, shown)
	}
	require.GreaterOrEqual(t, strings.Count(dom, "</table>"), 5, "waits, holds, server, errors, watchdogs")

	picture := filepath.Join(t.TempDir(), "page.png")
	browse(t, server.URL+"/", "--screenshot="+picture, "--virtual-time-budget=5000", "--window-size=1240,1800")
	data, err := os.ReadFile(picture)
	require.NoError(t, err)
	if to := os.Getenv(screenshotEnv); to != "" {
		require.NoError(t, os.WriteFile(to, data, 0o644))
	}
	seen, err := png.Decode(bytes.NewReader(data))
	require.NoError(t, err)
	require.Greater(t, colours(seen), 50, "text, lines and bars are drawn")
}

// colours is how many colours a picture has.
func colours(p image.Image) int {
	seen := map[[3]uint32]bool{}
	for y := p.Bounds().Min.Y; y < p.Bounds().Max.Y; y++ {
		for x := p.Bounds().Min.X; x < p.Bounds().Max.X; x++ {
			r, g, b, _ := p.At(x, y).RGBA()
			seen[[3]uint32{r, g, b}] = true
		}
	}
	return len(seen)
}
