// Package pages_test holds the code of the pages of ../: that of locks.md is in locks_test.go, word for word, and so
// on. A test in the folder above compares them.
package pages_test
