// Command server is a small server for a first try without Redis. It keeps its data in memory.
//
//	go -C docs/examples run ./server
package main

import (
	"flag"
	"log"

	"github.com/alicebob/miniredis/v2"
)

func main() {
	address := flag.String("address", "127.0.0.1:6379", "where to listen")
	flag.Parse()
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true) // keys expire as time passes
	if err := server.StartAddr(*address); err != nil {
		log.Fatal(err)
	}
	log.Println("listening on", server.Addr())
	select {}
}
