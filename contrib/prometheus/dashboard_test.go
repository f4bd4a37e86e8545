package redlatchprom_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	redlatchprom "github.com/redlatch/redlatch/contrib/prometheus"
)

type dashboard struct {
	Panels []struct {
		ID          int
		Title, Type string
		Targets     []struct{ Expr, LegendFormat string }
	}
	Templating struct {
		List []struct{ Name, Query string }
	}
}

// queries are those of the dashboard and of the alert rules, by where they stand.
func queries(t *testing.T) (all map[string][]string) {
	t.Helper()
	all = map[string][]string{}
	text, err := os.ReadFile("grafana.json")
	require.NoError(t, err)
	var d dashboard
	require.NoError(t, json.Unmarshal(text, &d))
	ids := map[int]bool{}
	for _, p := range d.Panels {
		require.False(t, ids[p.ID], "two panels have the id %d", p.ID)
		ids[p.ID] = true
		for _, target := range p.Targets {
			all["panel "+p.Title] = append(all["panel "+p.Title], target.Expr)
		}
		require.True(t, p.Type == "row" || len(p.Targets) > 0, p.Title)
	}
	for _, v := range d.Templating.List {
		all["variable "+v.Name] = append(all["variable "+v.Name], v.Query)
	}
	text, err = os.ReadFile("alerts.yaml")
	require.NoError(t, err)
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Annotations map[string]string
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &rules))
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			require.NotEmpty(t, r.Annotations["summary"], r.Alert)
			require.NotEmpty(t, r.Annotations["description"], r.Alert)
			all["alert "+r.Alert] = append(all["alert "+r.Alert], r.Expr)
		}
	}
	require.Greater(t, len(all), 25)
	return all
}

func TestDashboardAndAlerts_Queries_NameExistingMetrics(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(everything()))
	families, err := registry.Gather()
	require.NoError(t, err)
	labels := map[string][]string{} // of each series that can be asked for
	for _, f := range families {
		for _, m := range f.Metric {
			names := []string{f.GetName()}
			if m.Histogram != nil {
				names = []string{f.GetName() + "_bucket", f.GetName() + "_sum", f.GetName() + "_count"}
			}
			for _, n := range names {
				labels[n] = append(labels[n], "job", "instance", "le")
				for _, l := range m.Label {
					labels[n] = append(labels[n], l.GetName())
				}
			}
		}
	}
	metric := regexp.MustCompile(`(redlatch_[a-z_]+)(\{[^}]*\})?`)
	matcher := regexp.MustCompile(`(\w+)\s*(?:=~|!=|!~|=)\s*"`)
	asked := map[string]bool{}
	for where, exprs := range queries(t) {
		for _, e := range exprs {
			for _, m := range metric.FindAllStringSubmatch(e, -1) {
				have, ok := labels[m[1]]
				require.True(t, ok, "%s asks for %s, which is no metric", where, m[1])
				for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
					require.Contains(t, have, l[1], "%s: %s", where, m[0])
				}
				asked[m[1]] = true
			}
		}
	}
	for _, name := range described(redlatchprom.New(redlatchprom.Options{})) {
		require.True(t, asked[name] || asked[name+"_bucket"], "%s is on no panel", name)
		require.True(t, labels[name] != nil || labels[name+"_count"] != nil, "%s has no series", name)
	}
}

// TestAlerts_Promtool_AcceptsThem runs promtool where it is installed.
func TestAlerts_Promtool_AcceptsThem(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("no promtool in PATH: install Prometheus to have the alert rules checked by it, too")
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"}} {
		out, err := exec.Command(promtool, args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}

func TestAlerts_UnitTest_ShowsEachFiringAndQuiet(t *testing.T) {
	text, err := os.ReadFile("alerts_test.yaml")
	require.NoError(t, err)
	var seen []string
	for where := range queries(t) {
		if alert, ok := strings.CutPrefix(where, "alert "); ok {
			require.Contains(t, string(text), `{labels: '{alertname="`+alert+`"}', value: 1}`)
			require.Contains(t, string(text), "{alertname: "+alert+",")
			seen = append(seen, alert)
		}
	}
	slices.Sort(seen)
	require.Len(t, slices.Compact(seen), 9)
}
