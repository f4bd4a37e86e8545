package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// workerEnv, set to 1, makes this program a worker that talks the protocol of protocol.go over stdin and stdout.
const workerEnv = "REDLATCH_FLASHSALE_WORKER"

// work is a worker process: it answers claims until its stdin ends, and returns the exit status.
//
// Ctrl-C in a terminal reaches the workers as well as the parent. They ignore it, because the parent wants the
// answers to what it has sent; they end when it closes their stdin, and so also when it dies.
func work(in io.Reader, out io.Writer) int {
	signal.Ignore(os.Interrupt, syscall.SIGHUP)
	r := bufio.NewReader(in)
	var cfg workerConfig
	first, err := r.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(first, &cfg)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "no configuration on stdin:", err)
		return 2
	}

	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	parentGone := make(chan struct{})
	claims := make(chan claim, cfg.Window) // so that the reader always gets to the end of its input
	go func() {
		defer close(parentGone)
		defer close(claims)
		err := readClaims(r, claims)
		if err == nil {
			err = errors.New("the parent has ended the worker")
		}
		// claims under way are worth waiting for, but not for as long as their caller's patience
		time.AfterFunc(cfg.Grace, func() { cancel(err) })
	}()

	replies := make(chan []byte, cfg.Claims)
	written := make(chan struct{})
	go func() {
		defer close(written)
		writeReplies(out, replies)
	}()
	status := sell(ctx, cfg, claims, parentGone, replies)
	close(replies)
	<-written
	return status
}

// sell connects and answers claims until there are no more.
func sell(ctx context.Context, cfg workerConfig, claims <-chan claim, parentGone <-chan struct{},
	replies chan<- []byte) int {
	s, open, err := goIn(ctx, cfg, parentGone)
	if err != nil {
		replies <- appendDead(nil, err)
		return 1
	}
	defer s.close()
	replies <- appendOpening(nil, open)
	var wg sync.WaitGroup
	for range cfg.Claims {
		wg.Go(func() {
			for c := range claims {
				start := time.Now()
				ctx, cancel := context.WithTimeout(ctx, cfg.Retry)
				a := s.claim(ctx, c.user, open.Epoch)
				cancel()
				a.line, a.took = c.line, time.Since(start)
				replies <- appendAnswer(nil, a)
			}
		})
	}
	wg.Wait()
	return 0
}

// goIn connects and enters the sale, trying again while the server does not answer, for as long as a claim would.
func goIn(ctx context.Context, cfg workerConfig, parentGone <-chan struct{}) (*shop, opening, error) {
	ctx, cancel := context.WithTimeout(ctx, cfg.Retry)
	defer cancel()
	go func() {
		select {
		case <-parentGone: // no process waits for the answer
			cancel()
		case <-ctx.Done():
		}
	}()
	for {
		s, err := connect(cfg.Server, cfg.Name, cfg.Form)
		if err == nil {
			var o opening
			if o, err = s.enter(ctx, cfg); err == nil {
				return s, o, nil
			}
			s.close()
		}
		if unanswered(err) && ctx.Err() == nil {
			select {
			case <-time.After(100 * time.Millisecond):
				continue
			case <-ctx.Done():
			}
		}
		return nil, opening{}, fmt.Errorf("cannot enter the sale: %w", err)
	}
}

func readClaims(r *bufio.Reader, to chan<- claim) error {
	for {
		s, err := r.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return nil // a line without an end was cut off with its sender
		}
		if err != nil {
			return err
		}
		c, err := parseClaim(s[:len(s)-1])
		if err != nil {
			return err
		}
		to <- c
	}
}

// writeReplies writes the replies. Replies that come together are written together.
func writeReplies(out io.Writer, replies <-chan []byte) {
	w := bufio.NewWriterSize(out, 32<<10)
	for b := range replies {
		w.Write(b)
		if len(replies) == 0 && w.Flush() != nil {
			os.Exit(1) // the parent is gone; so are its answers
		}
	}
	w.Flush()
}
