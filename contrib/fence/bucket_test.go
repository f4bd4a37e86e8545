package redlatchfence_test

import (
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

// Bucket is a bucket in memory that answers HTTP as Amazon S3 documents its conditional writes. It speaks GET, HEAD,
// PUT and DELETE of /key, with metadata and conditional writes:
//
//   - an ETag is the MD5 of the data alone;
//   - If-None-Match: * succeeds if there is no object, and is 412 PreconditionFailed otherwise; another value is 501;
//   - If-Match is 412 if the object has another ETag, and 404 NoSuchKey if there is none;
//   - 409 ConditionalRequestConflict if the object was deleted while the write was under way.
//
// The zero Bucket is empty.
type Bucket struct {
	// Uploading, if set, is called with the key of each PUT when its data has arrived, before its condition is judged.
	Uploading func(key string)
	// Conflicts, if set, reports whether a conditional PUT is to be answered with 409, as when others are under way.
	Conflicts func(key string) bool

	mu      sync.Mutex
	objects map[string]object
	deleted map[string]int // how often
}

type object struct {
	data   []byte
	etag   string
	header http.Header // x-amz-meta-
}

// ServeHTTP is that of http.Handler.
func (b *Bucket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := strings.TrimPrefix(r.URL.Path, "/")
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		b.mu.Lock()
		o, ok := b.objects[key]
		b.mu.Unlock()
		if !ok {
			refuse(w, http.StatusNotFound, "NoSuchKey")
			return
		}
		for name, values := range o.header {
			w.Header()[name] = values
		}
		w.Header().Set("ETag", o.etag)
		if r.Method == http.MethodGet {
			_, _ = w.Write(o.data) // it fails if the reader has gone
		}
	case http.MethodPut:
		b.put(w, r, key)
	case http.MethodDelete:
		b.mu.Lock()
		delete(b.objects, key)
		if b.deleted == nil {
			b.deleted = map[string]int{}
		}
		b.deleted[key]++
		b.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	default:
		refuse(w, http.StatusMethodNotAllowed, "MethodNotAllowed")
	}
}

func (b *Bucket) put(w http.ResponseWriter, r *http.Request, key string) {
	b.mu.Lock()
	deleted := b.deleted[key]
	b.mu.Unlock()
	data, err := io.ReadAll(r.Body)
	if err != nil {
		refuse(w, http.StatusBadRequest, "IncompleteBody")
		return
	}
	if b.Uploading != nil {
		b.Uploading(key)
	}
	match, none := r.Header.Get("If-Match"), r.Header.Get("If-None-Match")
	if none != "" && (none != "*" || match != "") {
		refuse(w, http.StatusNotImplemented, "NotImplemented")
		return
	}
	conditional := match != "" || none != ""
	if conditional && b.Conflicts != nil && b.Conflicts(key) {
		refuse(w, http.StatusConflict, "ConditionalRequestConflict")
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now, exists := b.objects[key]
	switch {
	case conditional && b.deleted[key] != deleted:
		refuse(w, http.StatusConflict, "ConditionalRequestConflict")
		return
	case match != "" && !exists:
		refuse(w, http.StatusNotFound, "NoSuchKey")
		return
	case match != "" && now.etag != match, none != "" && exists:
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
		return
	}
	sum := md5.Sum(data)
	o := object{data, `"` + hex.EncodeToString(sum[:]) + `"`, http.Header{}}
	for name, values := range r.Header {
		if strings.HasPrefix(strings.ToLower(name), "x-amz-meta-") {
			o.header[name] = values
		}
	}
	if b.objects == nil {
		b.objects = map[string]object{}
	}
	b.objects[key] = o
	w.Header().Set("ETag", o.etag)
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", code)
}
