package redlatchdebug

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
)

// Handler returns the page of a client, to be mounted under any path. The handler is safe for concurrent use, and works
// on a closed client, too. Handler panics if red is nil.
//
// # The request
//
// GET and HEAD; other methods are 405. A request changes nothing. The parameters are
//
//	format=json   the same as JSON; html is the default
//	name=order    only objects with this text in their name, or in a limit's key
//	n=100         how many holds, waits and pending releases at most, 1 to 10,000; the oldest are shown. Defaults to 100
//	server=no     do not ask the server
//	refresh=5     the page loads itself again, 1 to 3600 s
//
// An unknown value is 400, with a text that names it.
//
// The package comment describes the JSON.
func Handler(red *redlatch.Client) http.Handler {
	if red == nil {
		panic("redlatchdebug: Handler of a nil client")
	}
	return &handler{red, clientsOf(red)}
}

type handler struct {
	red     *redlatch.Client
	clients []*client
}

//go:embed page.html
var text string

// html is the page's template. The first request parses it.
var html = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page").Funcs(template.FuncMap{
		"seconds": func(d millis) float64 { return time.Duration(d).Seconds() },
		"quarter": func(d millis) float64 { return time.Duration(d).Seconds() / 4 },
		"list":    func(s []string) string { return strings.Join(s, ", ") },
	}).Parse(text))
})

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		refuse(w, http.StatusMethodNotAllowed, "only GET and HEAD: this page is read-only")
		return
	}
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	q, err := queryOf(r)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	// Names and labels may be anybody's text. The template escapes the text. If it did not, the policy would keep the text
	// from running or loading anything.
	header.Set("Content-Security-Policy",
		"default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	header.Set("Content-Type", map[bool]string{true: "application/json", false: "text/html; charset=utf-8"}[q.JSON])
	if r.Method == http.MethodHead {
		return
	}
	p := h.page(r.Context(), q)
	var out bytes.Buffer
	if q.JSON {
		e := json.NewEncoder(&out)
		e.SetIndent("", "  ")
		err = e.Encode(p)
	} else {
		err = html().Execute(&out, p)
	}
	if err != nil { // a bug here
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	_, _ = w.Write(out.Bytes()) // fails if the reader has gone
}

func refuse(w http.ResponseWriter, status int, why string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = fmt.Fprintln(w, "redlatchdebug: "+why) // fails if the reader has gone
}

// query has the parameters of a request.
type query struct {
	JSON    bool
	Name    string
	N       int
	Ask     bool // the server
	Refresh int
}

func queryOf(r *http.Request) (q query, err error) {
	if err := r.ParseForm(); err != nil {
		return q, fmt.Errorf("the query cannot be read: %w", err)
	}
	q = query{Name: r.Form.Get("name"), N: 100, Ask: true}
	switch f := r.Form.Get("format"); f {
	case "", "html":
	case "json":
		q.JSON = true
	default:
		return q, fmt.Errorf("format is %.64q, must be html or json", f)
	}
	switch s := r.Form.Get("server"); s {
	case "", "yes":
	case "no":
		q.Ask = false
	default:
		return q, fmt.Errorf("server is %.64q, must be yes or no", s)
	}
	if err := number(r, "n", 10_000, &q.N); err != nil {
		return q, err
	}
	return q, number(r, "refresh", 3600, &q.Refresh)
}

// number reads a parameter of 1 to most into to. Without the parameter, to stays as it is.
func number(r *http.Request, field string, most int, to *int) error {
	v := r.Form.Get(field)
	if v == "" {
		return nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > most {
		return fmt.Errorf("%s is %.64q, must be 1 to %d", field, v, most)
	}
	*to = n
	return nil
}
