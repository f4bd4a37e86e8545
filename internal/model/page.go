package model

import (
	"os"
	"strings"
	"testing"
)

// Documented fails a test of a package in internal unless docs/safety/models.md has a row: it says what was searched.
func Documented(t testing.TB, row string) {
	t.Helper()
	t.Log(row)
	text, err := os.ReadFile("../../docs/safety/models.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), row) {
		t.Errorf("docs/safety/models.md lacks this row: %s", row)
	}
}
