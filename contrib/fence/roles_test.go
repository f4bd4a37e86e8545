package redlatchfence_test

import (
	"bufio"
	"context"
	"fmt"
	"os"

	redlatchfence "github.com/redlatch/redlatch/contrib/fence"
)

// roles are what a child process of these tests can be.
var roles = map[string]func() error{"writer": beWriter}

// beWriter writes a file with token 33, stays in the act until a line comes, and says how it ended.
func beWriter() error {
	path := os.Args[2]
	err := redlatchfence.Files{}.Do(context.Background(), path, 33, func(context.Context) error {
		fmt.Println("in")
		_, err := bufio.NewReader(os.Stdin).ReadString('\n')
		return err
	})
	fmt.Println("out", err)
	return nil
}
