package rig

import (
	"log/slog"

	"github.com/redlatch/redlatch/internal/redistest"
)

// Logged is a logger and what it wrote.
func Logged() (*slog.Logger, func() string) {
	var book redistest.Logbook
	return book.Logger(), book.String
}
