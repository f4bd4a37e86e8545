//go:build !linux

package services

import (
	"errors"
	"syscall"
)

func attributes([]string, string) (*syscall.SysProcAttr, error) {
	return nil, errors.New("PostgreSQL and MariaDB are started on Linux only")
}
