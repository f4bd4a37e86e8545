package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPage_ItsServers_AreThoseOfTheWorkflow(t *testing.T) {
	text, err := os.ReadFile("../" + page)
	require.NoError(t, err)
	list, err := os.ReadFile("../" + workflow)
	require.NoError(t, err)
	made, err := update(string(text), branches(string(list)), "")
	require.NoError(t, err)
	require.Equal(t, made, string(text), "go -C proof run ./versions")
}

func TestUpdate_NewRow_ReplacesThatOfItsBranch(t *testing.T) {
	before := "a\n\n" + head + "\n| Redis 7.0.15 | 1 of 1 | 2 of 2 | `a` |\n| Redis 6.2 | gone |\n\nb\n"
	servers := branches("server: ['redis:7.0', 'redis:latest', 'valkey/valkey:9.1']")
	require.Equal(t, []string{"Redis 7.0", "Valkey 9.1"}, servers)
	after, err := update(before, servers, "| Valkey 9.1.2 | 3 of 3 | 4 of 4 | `b` |")
	require.NoError(t, err)
	require.Equal(t, strings.Replace(before, "| Redis 6.2 | gone |", "| Valkey 9.1.2 | 3 of 3 | 4 of 4 | `b` |", 1), after)
	_, err = update(before, servers, "| Valkey 9.3.0 | 3 of 3 | 4 of 4 | `b` |")
	require.ErrorContains(t, err, "does not list the server of | Valkey 9.3.0")
}

func TestOutcomes_OfTestsAndCases_AreCounted(t *testing.T) {
	all, err := read(strings.NewReader(`{"Action":"start","Package":"p"}
{"Action":"pass","Package":"p","Test":"TestA/one"}
{"Action":"fail","Package":"p","Test":"TestA/Cluster"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestSlots"}
{"Action":"skip","Package":"p","Test":"TestB/two"}
{"Action":"pass","Package":"p","Test":"TestB"}
{"Action":"pass","Package":"p"}
{"Action":"fail","Package":"q"}
`))
	require.NoError(t, err)
	require.Equal(t, "1 of 1", all.passed(false))
	require.Equal(t, "1 of 2", all.passed(true))
	require.Equal(t, []string{"TestB"}, all.ended("skip"))
	require.Equal(t, []string{"TestA"}, all.ended("fail"))
}
