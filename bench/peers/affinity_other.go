//go:build !linux

package main

import "errors"

func onOneProcessor() error { return errors.New("-one-processor needs Linux") }
