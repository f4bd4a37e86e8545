//go:build !unix || solaris || aix

package redlatchfence

import (
	"errors"
	"os"
)

func tryLock(*os.File) (bool, error) { return false, errors.ErrUnsupported }
