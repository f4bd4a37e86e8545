package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rcounter/stock"
)

const stockName = "sale"

// premises are all that a sale needs around it: the server, the open stock, the bank, and the processes of the shop.
type premises struct {
	server server
	way    *redistest.Proxy // between the processes and the server; nil without chaos
	red    *redlatch.Client // past the chaos
	stock  *stock.Stock
	orders *orderBooks
	bank   *bank
	shop   *caller // what customers and the bank call
	bankAt string

	sellers, keepers []*slot
	dismiss          func() // ends the processes, and waits for them

	ends []func()
}

// open sets all up. The caller closes what is returned, also after an error.
func open(ctx context.Context, o options, dir string, w *waits, say func(string, ...any)) (p *premises, err error) {
	p = &premises{dismiss: func() {}}
	if p.server, err = startServer(o, dir); err != nil {
		return p, err
	}
	p.ends = append(p.ends, func() { p.server.close() })
	at := station{Redis: p.server.addr(), Embedded: !o.redisServer, Stock: stockName,
		Orders: filepath.Join(dir, "orders.db"), Hold: o.hold, Cents: o.cents}
	if p.red, err = at.open(); err != nil {
		return p, err
	}
	p.ends = append(p.ends, func() { closeNow(p.red) })
	p.stock = p.red.Stocks().Stock(stockName)
	if p.orders, err = openOrders(at.Orders, stockName); err != nil {
		return p, err
	}
	p.ends = append(p.ends, p.orders.close)
	epoch, err := p.stock.Open(ctx,
		stock.Spec{Limit: int64(o.units), OpenFor: o.duration + time.Hour, Ledger: true, Opened: p.orders.mover.Opened})
	if err != nil {
		return p, err
	}
	if err := p.orders.mover.Announce(ctx, epoch); err != nil { // otherwise the movers refuse what it sells
		return p, err
	}
	if o.chaos {
		way, stop, err := redistest.LaunchProxy(&redistest.Server{Addrs: []string{at.Redis}})
		if err != nil {
			return p, err
		}
		p.way, at.Redis = way, way.Addr()
		p.ends = append(p.ends, stop)
	}
	return p, p.hire(ctx, o, at, w, say)
}

// hire opens the bank and starts the processes of the shop. It returns when all workers answer.
func (p *premises) hire(ctx context.Context, o options, at station, w *waits, say func(string, ...any)) error {
	var urls []string
	var listen []string
	for range o.workers {
		addr, err := redistest.FreeAddr()
		if err != nil {
			return err
		}
		listen, urls = append(listen, addr), append(urls, "http://"+addr)
	}
	p.shop = newCaller(w, urls...)
	p.bank = newBank(o.seed, o.hold, p.shop)
	bankAt, stop, err := serve("127.0.0.1:0", p.bank.handler(ctx))
	if err != nil {
		return err
	}
	p.ends = append(p.ends, stop)
	p.bankAt = "http://" + bankAt
	at.Bank = p.bankAt

	working, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	hire := func(role string, n int) (all []*slot) {
		for i := range n {
			s := &slot{role: role, station: at, say: say}
			s.station.Number = i + 1
			if role == "worker" {
				s.station.Listen = listen[i]
			}
			running.Go(func() { s.run(working) })
			all = append(all, s)
		}
		return all
	}
	p.sellers, p.keepers = hire("worker", o.workers), hire("mover", o.movers)
	p.dismiss = func() { cancel(); running.Wait() }
	p.ends = append(p.ends, p.dismiss)
	return ready(ctx, urls)
}

// ready waits until every worker answers.
func ready(ctx context.Context, urls []string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("the workers do not answer"))
	defer cancel()
	for i, url := range urls {
		var a orderAnswer
		if err := newCaller(nil, url).do(ctx, "", http.MethodGet, "/order/none", nil, &a); err != nil {
			return fmt.Errorf("worker %d: %w", i+1, err)
		}
	}
	return nil
}

// close ends all, in the order opposite to open.
func (p *premises) close() {
	for i := len(p.ends) - 1; i >= 0; i-- {
		p.ends[i]()
	}
}

// serve serves h at addr.
func serve(addr string, h http.Handler) (at string, stop func(), err error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	var done sync.WaitGroup
	done.Go(func() { server.Serve(l) })
	return l.Addr().String(), func() { server.Close(); done.Wait() }, nil
}
