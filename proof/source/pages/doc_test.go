// Package pages_test holds the code of the pages of docs: that of locks.md is in locks_test.go, word for word, and so
// on. A test in docs compares them.
package pages_test
