package main

import (
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/proof/simulation"
)

func TestShare_OfAllParts_IsTheWholeTime(t *testing.T) {
	for _, total := range []time.Duration{10 * time.Minute, time.Hour, 8 * time.Hour} {
		left := total
		for i, p := range parts {
			d := share(total, left, i)
			require.InDelta(t, float64(total)*float64(p.weight)/100, float64(d), float64(time.Millisecond), p.name)
			left -= d
		}
		require.Zero(t, left)
	}
	last := len(parts) - 1
	require.Equal(t, 30*time.Minute, share(time.Hour, time.Hour, last-1), "it has the time that earlier parts left")
	require.Equal(t, time.Second, share(time.Hour, -time.Minute, last))
	for i, p := range parts {
		d := share(10*time.Minute, -time.Minute, i)
		require.GreaterOrEqual(t, d, p.least, "%s has its least, though earlier parts took too long", p.name)
	}
}

func TestCommand_LongerShare_RunsMore(t *testing.T) {
	for d, want := range map[time.Duration]string{
		time.Minute:     "go -C . test -vet=off -timeout 2h -v -short ./internal/contract",
		2 * time.Minute: "go -C . test -vet=off -timeout 2h -v ./internal/contract",
		time.Hour:       "REDLATCH_LONG=1 go -C . test -vet=off -timeout 2h -v ./internal/contract",
	} {
		require.Equal(t, want, parts[0].command(d, "/to"))
	}
	require.Equal(t, "go -C proof run ./simulation/simulate -play plans -for 1m0s -state '/to'/plans.jsonl",
		parts[len(parts)-1].command(time.Minute, "/to"))
}

func TestLacks_ProgramOrTime_IsNamed(t *testing.T) {
	require.Equal(t, "no-such-program is missing", part{needs: []string{"sh", "no-such-program"}}.lacks(time.Hour))
	require.Equal(t, "its share of the time is 1s, and it needs 1m0s; choose a longer FOR",
		part{least: time.Minute}.lacks(time.Second))
	require.Empty(t, part{needs: []string{"sh"}, least: time.Minute}.lacks(time.Hour))
}

func TestRun_PartLacksAProgram_EarlierResultsStand(t *testing.T) {
	dir, p := t.TempDir(), part{name: "chaos", needs: []string{"no-such-program"}}
	for _, before := range []step{{NotRun: "no-such-program is missing"}, {Command: "chaos", Took: time.Minute}} {
		if before.Took > 0 {
			require.NoError(t, save(dir, p.name, before))
		}
		require.NoError(t, p.run(t.Context(), time.Minute, dir))
		var after step
		require.NoError(t, load(dir, p.name, &after))
		require.Equal(t, before, after)
	}
}

func TestPage_RecordedResults_ShowsWhatWasCoveredFoundAndMissing(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, save(dir, "facts", facts{Version: "c0ffee", Machine: "Redis 8.0", For: 10 * time.Minute}))
	require.NoError(t, save(dir, "contract", step{Command: "go test -v ./contract", Took: time.Minute, Error: "exit 1"}))
	require.NoError(t, save(dir, "models", step{Command: "go test ./models", Took: 1}))
	require.NoError(t, save(dir, "planted faults", step{Command: "faults", Took: 1}))
	require.NoError(t, save(dir, "Redisson", step{Command: "go test ./redisson", NotRun: "java is missing"}))
	require.NoError(t, save(dir, "chaos", step{Command: "chaos", Took: 1}))
	require.NoError(t, save(dir, "simulation", step{Command: "simulate", Took: 1, Error: "exit status 1"}))
	require.NoError(t, save(dir, "crowds", step{Command: "simulate crowds", Error: "exit status 2"}))
	for file, lines := range map[string]string{
		"contract.out": "=== RUN   TestB\n--- PASS: TestA (0.00s)\n" +
			"--- FAIL: TestB (0.00s)\n    --- FAIL: TestB/c (0.00s)\n    a < b\n",
		"models.out":     "    page.go:26: | 2, 1 | 345 | 30 |\n--- PASS: TestA (0.00s)\n",
		"simulation.out": "1-20: seed 7: two owners\nplan\nagain: the same flags with -seeds 7 -times 10 -keep 3\n",
		"plans.jsonl":    `{"Item":"1-20","Result":{"Runs":20,"Faults":99}}`,
		"planted.jsonl":  `{"Item":"x","Result":{"Noticed":false}}` + "\n" + `{"Item":"y","Result":{"Noticed":true}}`,
		"chaos.out":      "chaos 1 of 157, one: DEL: held (4.0 s)\n",
		"soak.jsonl": `{"Item":"piece 001, one node","Result":{"Deployment":"one node","Seed":3,"Length":60000000000,` +
			`"Faults":5,"Grants":700,"Series":[{"Name":"keys","Unit":"number","Values":[1,2]}],"Failed":["keys grew"]}}` + "\n" +
			`{"Item":"piece 002, one node","Result":{"Deployment":"one node","Length":60000000000,"Series":[` +
			`{"Name":"keys","Unit":"number","Values":[2,4]}]}}`,
		"cells.jsonl": `{"Item":"one: DEL","Result":{"Deployment":"one","Fault":"DEL","Seed":4,"Injected":2,` +
			`"Failed":["two"],"Rows":[{"Answers":50}]}}` + "\n" +
			`{"Item":"Cluster: cut","Result":{"Deployment":"Cluster","Fault":"cut","NotRun":"no C compiler"}}`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(lines), 0o644))
	}

	found, err := writePage(dir)
	require.NoError(t, err)
	require.EqualError(t, found, "contract failed\nchaos failed\nsoak failed\nplanted faults failed\ncrowds failed\n"+
		"simulation failed")
	page := text(dir, "page.html")
	for _, want := range []string{"c0ffee. Redis 8.0.", "FOR=10m0s", "took 1m0.000000004s",
		"1 passed, 2 failed, 0 were skipped", "<pre>go test -v ./contract -count=1 -run &#39;^TestB$&#39;</pre>", "a &lt; b",
		">2, 1</text>", ">345</text>", "histories: not run yet", "Redisson: not run: java is missing",
		"1 cells of a fault and a deployment ran, 1 failed. Clients got 50 answers under 2 faults.",
		"one: DEL: two", "-deployments &#34;one&#34; -faults &#34;DEL&#34; -seed 3", "not run: no C compiler",
		"Of 157 in all: 1 cells", "2 faults were planted, and tests noticed 1.", "no test notices x", "20 runs",
		">" + simulation.Kinds()[0] + "</text>", "two owners",
		"simulate -play plans -seeds 7 -times 10 -keep 3", "<pre>simulate crowds</pre>"} {
		require.Contains(t, page, want)
	}
	require.NotContains(t, page, "=== RUN")
	for d := xml.NewDecoder(strings.NewReader(page)); err == nil; {
		_, err = d.Token()
	}
	require.ErrorIs(t, err, io.EOF, "the page is well formed")
	_, err = writePage(dir)
	require.NoError(t, err)
	require.Equal(t, page, text(dir, "page.html"), "the same results make the same page")
}
