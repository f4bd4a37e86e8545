// Package integration is where etcd's tests of elections stand: that is the name of their package.
package integration
