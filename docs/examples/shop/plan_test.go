package main

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestASeedIsAPlan(t *testing.T) {
	o := options{seed: 7, duration: 20 * time.Second, hold: time.Second, workers: 3, movers: 2}
	plan := planFaults(o)
	require.Equal(t, plan, planFaults(o))
	kinds := map[string]int{}
	for _, f := range plan {
		kinds[f.Kind]++
		require.Less(t, f.At, o.duration)
		require.Less(t, f.Which, o.workers)
	}
	require.Len(t, kinds, len(faultKinds), "each kind is met")
	o.seed = 8
	require.NotEqual(t, plan, planFaults(o))

	one, two := crowd(7, 500, o.duration), crowd(7, 500, o.duration)
	manners := map[manner]int{}
	for i := range one {
		require.Equal(t, *one[i], *two[i])
		manners[one[i].manner]++
	}
	require.Len(t, manners, 5, "each manner is met")
}

// Who opens the page late gets what came before, but for the oldest orders.
func TestThePageTellsWhoComesLate(t *testing.T) {
	n := newNews()
	n.open(opening{Units: 3})
	for i := range 2 * keptOrders {
		n.tell(event{Order: &receipt{Order: fmt.Sprint("order-", i)}, Answers: int64(i + 1)})
	}
	n.tell(event{Fault: "all is well"})
	at := httptest.NewServer(front(n))
	defer at.Close()

	resp, err := http.Get(at.URL)
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, "text/html; charset=utf-8", resp.Header.Get("Content-Type"))

	resp, err = http.Get(at.URL + "/events")
	require.NoError(t, err)
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	next := func() string {
		require.True(t, lines.Scan())
		text := lines.Text()
		require.True(t, lines.Scan(), "an empty line ends an event")
		require.Empty(t, lines.Text())
		return strings.TrimPrefix(text, "data: ")
	}
	require.Contains(t, next(), `"units":3`)
	for i := range keptOrders {
		require.Contains(t, next(), fmt.Sprintf(`"order-%d"`, keptOrders+i))
	}
	require.Contains(t, next(), "all is well")
	n.tell(event{Phase: "over"})
	require.Contains(t, next(), "over")
}

func TestThePageNeedsNothingFromElsewhere(t *testing.T) {
	for _, from := range []string{"http:", "https:", "src=", "@import", "url("} {
		// the name of a namespace
		require.NotContains(t, strings.ReplaceAll(string(page), "http://www.w3.org/2000/svg", ""), from)
	}
}
