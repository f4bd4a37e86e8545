package redlatchk8s

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/session"
)

//go:embed lua/write.lua
var write string

var writing = rueidis.NewLuaScript(write)

// kept is how long a record lasts after the last write, at least. It is not a lease: it only removes what is forgotten.
const kept = 24 * time.Hour

// elections is what the errors of this package name, as if records were objects of an API server.
var elections = schema.GroupResource{Group: "redlatch", Resource: "elections"}

const defaultTimeout = 2 * time.Second

// Options are the settings of a Lock. The zero value has the defaults.
type Options struct {
	// Identity is the candidate's name in the record, which all others see. Each process needs its own, and a restarted
	// one another: a candidate of the same name would believe that it leads. Defaults to the host's name and random
	// letters.
	Identity string
	// Timeout bounds one call to the server. Less than client-go's RenewDeadline, so that a call without an answer can be
	// repeated before the leader gives up. At least 10 ms. Defaults to 2 s.
	Timeout time.Duration
	// Events is called with what client-go records as events: "became leader", "stopped leading". It must return at once.
	// Defaults to none.
	Events func(event string)
}

// Lock is one candidate of an election, as a resourcelock.Interface. Give it to one elector. It is safe for concurrent
// use.
type Lock struct {
	client rueidis.Client
	name   string
	key    string
	opts   Options

	mu    sync.Mutex
	known string // the version of the record that was last read or written; "": none was
}

var _ resourcelock.Interface = (*Lock)(nil)

// New makes a candidate of the election of that name. Its record is at redlatch_k8s:{name}. Candidates of one election
// have the same name, and servers that are one. The client stays the caller's. Nothing is sent. The error is
// ErrInvalidOption or ErrInvalidName.
func New(client rueidis.Client, name string, o Options) (*Lock, error) {
	if client == nil {
		return nil, errs.Edge("redlatchk8s", errs.InvalidOption("client", "nil", "a client"))
	}
	if err := keyname.Shape(name); err != nil {
		return nil, errs.Edge("redlatchk8s", err)
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if err := session.CheckRange("Timeout", o.Timeout, 10*time.Millisecond); err != nil {
		return nil, errs.Edge("redlatchk8s", err)
	}
	if o.Identity == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("redlatchk8s: no Identity is set, and the host has no name: %w", err)
		}
		o.Identity = host + "_" + rand.Text()
	}
	return &Lock{client: client, name: name, key: keyname.Prefix("redlatch_k8s", name), opts: o}, nil
}

// Get reads the record. raw is different after every write, even if the record is the same: client-go sees from it
// whether the leader lives. apierrors.IsNotFound reports of the error that there is none.
func (l *Lock) Get(ctx context.Context) (record *resourcelock.LeaderElectionRecord, raw []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.opts.Timeout)
	defer cancel()
	fields, err := l.client.Do(ctx, l.client.B().Hmget().Key(l.key).Field("version", "record").Build()).ToArray()
	if err != nil {
		return nil, nil, l.failed("get", err)
	}
	version, errVersion := fields[0].ToString()
	text, errRecord := fields[1].ToString()
	l.mu.Lock()
	defer l.mu.Unlock()
	if rueidis.IsRedisNil(errVersion) {
		l.known = ""
		return nil, nil, apierrors.NewNotFound(elections, l.name)
	}
	if err := errors.Join(errVersion, errRecord); err != nil {
		return nil, nil, l.failed("get", err)
	}
	record = new(resourcelock.LeaderElectionRecord)
	if err := json.Unmarshal([]byte(text), record); err != nil {
		return nil, nil, l.failed("get", err)
	}
	l.known = version
	return record, []byte(version + text), nil
}

// Create writes the first record. apierrors.IsAlreadyExists reports of the error that there is one.
func (l *Lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	written, err := l.write(ctx, "", record)
	if err == nil && !written {
		return apierrors.NewAlreadyExists(elections, l.name)
	}
	return err
}

// Update writes the record, if it is the one that Get, Create or Update has last seen here. apierrors.IsConflict
// reports of the error that it is not: another candidate has written it, or it is gone. After any other error it may
// have been written.
func (l *Lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	l.mu.Lock()
	known := l.known
	l.mu.Unlock()
	if known == "" {
		return l.failed("update", errors.New("no record is known: call Get or Create first"))
	}
	written, err := l.write(ctx, known, record)
	if err == nil && !written {
		return apierrors.NewConflict(elections, l.name, errors.New("another candidate has written the record, or it is gone"))
	}
	return err
}

func (l *Lock) write(ctx context.Context, known string, record resourcelock.LeaderElectionRecord) (bool, error) {
	text, err := json.Marshal(record)
	if err != nil {
		return false, l.failed("write", err)
	}
	keep := max(kept, 2*time.Duration(record.LeaseDurationSeconds)*time.Second)
	version := rand.Text()
	ctx, cancel := context.WithTimeout(ctx, l.opts.Timeout)
	defer cancel()
	written, err := writing.Exec(ctx, l.client, []string{l.key},
		[]string{known, version, string(text), strconv.FormatInt(keep.Milliseconds(), 10)}).AsBool()
	if err != nil {
		return false, l.failed("write", err)
	}
	if written {
		l.mu.Lock()
		l.known = version
		l.mu.Unlock()
	}
	return written, nil
}

func (l *Lock) failed(verb string, err error) error {
	return fmt.Errorf("redlatchk8s: %s %.64q: %w", verb, l.name, err)
}

// RecordEvent calls Options.Events.
func (l *Lock) RecordEvent(event string) {
	if l.opts.Events != nil {
		l.opts.Events(event)
	}
}

// Identity returns the candidate's name in the record.
func (l *Lock) Identity() string { return l.opts.Identity }

// Describe returns the election's name.
func (l *Lock) Describe() string { return l.name }
