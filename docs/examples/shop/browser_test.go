//go:build unix

package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/stretchr/testify/require"
)

// untilDrawn keeps the page loading until it shows the last event: the browser prints a page once it is loaded, and it
// is not while this picture has not come.
const untilDrawn = `<img src="late"><script>
const asking = setInterval(() => {
  if (!$("checkBox").hidden && $("chart").querySelector("path")) { clearInterval(asking); fetch("drawn") }
}, 20)
</script>`

// The page works in a browser: it shows the events it gets, and the check with its faults.
func TestThePageShowsASaleInABrowser(t *testing.T) {
	browser, err := exec.LookPath("chromium")
	if err != nil || !redistest.Long() {
		t.Skipf("needs chromium in PATH (apt-get install chromium), and %s=1", redistest.LongEnv)
	}
	n := newNews()
	n.open(opening{Units: 300, Cents: 1990, Customers: 7, Seconds: 5, Workers: 3, Movers: 2, Server: "a server",
		Chaos: true})
	n.tell(event{Stock: &level{Left: 123, Held: 45, Sold: 132}})
	n.tell(event{Order: &receipt{User: "ann", Order: "a", State: sold, Unit: 17}, Answers: 4711})
	n.tell(event{Fault: "worker 1 killed"})
	n.tell(event{Check: []finding{{Name: "money = units", Proof: "proof"},
		{Name: "receipts = sold", Faults: []string{"one too many"}}}})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	drawn, draw := context.WithCancel(ctx)
	defer draw()
	mux := http.NewServeMux()
	mux.Handle("/", front(n))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Write(slices.Concat(page, []byte(untilDrawn)))
	})
	mux.HandleFunc("GET /late", func(http.ResponseWriter, *http.Request) { pause(drawn, 2*time.Minute) })
	mux.HandleFunc("GET /drawn", func(http.ResponseWriter, *http.Request) { draw() })
	at := httptest.NewServer(mux)
	defer at.Close()
	dom, err := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu",
		"--user-data-dir="+t.TempDir(),
		"--dump-dom", at.URL).Output()
	require.NoError(t, err)
	for _, shown := range []string{">132<", ">45<", ">123<", ">4711<", "has bought unit 17", "worker 1 killed<",
		"money = units", "one too many", "it does not add up", "<path"} {
		require.Contains(t, string(dom), shown)
	}
}
