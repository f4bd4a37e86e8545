package load

import (
	"io"
	"net"
	"sync"
	"time"
)

// Delay makes an address of this machine that leads to the server at addr, with each added to every way: what is sent
// there arrives that much later, in its order, however much of it is under way. stop ends it with all its connections.
func Delay(addr string, each time.Duration) (through string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	var mu sync.Mutex
	open := map[net.Conn]struct{}{}
	var wg sync.WaitGroup
	closed := false
	keep := func(c net.Conn) bool {
		mu.Lock()
		defer mu.Unlock()
		if closed {
			c.Close()
			return false
		}
		open[c] = struct{}{}
		return true
	}
	drop := func(c net.Conn) {
		mu.Lock()
		defer mu.Unlock()
		delete(open, c)
		c.Close()
	}
	wg.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", addr)
			if err != nil {
				near.Close()
				continue
			}
			if !keep(near) || !keep(far) {
				near.Close()
				return
			}
			wg.Go(func() { delayed(far, near, each); drop(far); drop(near) })
			wg.Go(func() { delayed(near, far, each); drop(far); drop(near) })
		}
	})
	return l.Addr().String(), func() {
		l.Close()
		mu.Lock()
		closed = true
		for c := range open {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	}, nil
}

// delayed copies from one connection to the other until either ends.
func delayed(to io.Writer, from io.Reader, by time.Duration) {
	type chunk struct {
		due  time.Time
		data []byte
	}
	queue, broken := make(chan chunk, 1024), make(chan struct{})
	go func() {
		defer close(queue)
		buf := make([]byte, 64<<10)
		for {
			n, err := from.Read(buf)
			if n > 0 {
				select {
				case queue <- chunk{time.Now().Add(by), append([]byte(nil), buf[:n]...)}:
				case <-broken:
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	defer close(broken)
	for c := range queue {
		time.Sleep(time.Until(c.due))
		if _, err := to.Write(c.data); err != nil {
			return
		}
	}
}
