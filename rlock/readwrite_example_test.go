package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rlock"
)

// Any number of workers read the price list at the same time. A worker that changes it is alone.
func ExampleClient_ReadWrite() {
	locks, end := demo()
	defer end()
	ctx := context.Background()
	prices := locks.ReadWrite("prices")

	one, err := prices.Read().Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	two, err := prices.Read().Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = prices.Write().TryLock(ctx, 0, 0)
	fmt.Println("writing meanwhile:", errors.Is(err, redlatch.ErrNotAcquired))
	one.Unlock(ctx)
	two.Unlock(ctx)

	err = prices.Write().Do(ctx, func(ctx context.Context) error {
		fmt.Println("alone")
		return nil
	})
	fmt.Println(err)
	// Output:
	// writing meanwhile: true
	// alone
	// <nil>
}

// A writer that goes on as a reader: nobody else writes in between. The other way round is refused.
func ExampleReadWriteLock_Read() {
	locks, end := demo()
	defer end()
	ctx := context.Background()
	prices := locks.ReadWrite("prices")

	write, err := prices.Write().Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	read, err := prices.Read().Lock(write.Context(ctx)) // under the write hold: at once
	if err != nil {
		log.Fatal(err)
	}
	write.Unlock(ctx)
	other, err := prices.Read().TryLock(ctx, 0, 0)
	fmt.Println("others read with us:", err == nil)
	other.Unlock(ctx)

	_, err = prices.Write().Lock(read.Context(ctx))
	fmt.Println("a reader cannot become the writer:", errors.Is(err, rlock.ErrReentry))
	read.Unlock(ctx)
	// Output:
	// others read with us: true
	// a reader cannot become the writer: true
}
