package main

import (
	_ "embed"
	"fmt"
	"net/http"
)

//go:embed page.html
var page []byte

// front is the live page: GET / is the page, GET /events what it shows, as server-sent events.
func front(n *news) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Write(page)
	})
	mux.HandleFunc("GET /events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Cache-Control", "no-store")
		past, next, end := n.watch()
		defer end()
		send := func(text []byte) { fmt.Fprintf(w, "data: %s\n\n", text) }
		for _, text := range past {
			send(text)
		}
		for to := http.NewResponseController(w); to.Flush() == nil; {
			select {
			case text, ok := <-next:
				if !ok {
					return
				}
				send(text)
			case <-r.Context().Done():
				return
			}
		}
	})
	return mux
}
