// Package integration has what etcd's tests of locks and elections use of its framework.
package integration

import (
	"testing"

	"github.com/redlatch/redlatch/bench/peers/contracts/etcd/clientv3"
)

// BeforeTest does nothing.
func BeforeTest(testing.TB) {}

// ClusterConfig says nothing: there is one server.
type ClusterConfig struct{ Size int }

// Cluster is the clients of that server.
type Cluster struct {
	t       testing.TB
	clients []*clientv3.Client
}

// NewCluster is etcd's.
func NewCluster(t testing.TB, c *ClusterConfig) *Cluster {
	clus := &Cluster{t: t}
	for range c.Size {
		client, err := clientv3.New(clientv3.Config{})
		if err != nil {
			t.Fatal(err)
		}
		clus.clients = append(clus.clients, client)
	}
	return clus
}

// Client is the i-th.
func (c *Cluster) Client(i int) *clientv3.Client { return c.clients[i] }

// RandClient is any.
func (c *Cluster) RandClient() *clientv3.Client { return c.clients[0] }

// Terminate closes them.
func (c *Cluster) Terminate(testing.TB) { CloseClients(c.t, c.clients) }

// MakeSingleNodeClients is etcd's.
func MakeSingleNodeClients(t testing.TB, _ *Cluster, made *[]*clientv3.Client) func() *clientv3.Client {
	client, err := clientv3.New(clientv3.Config{})
	if err != nil {
		t.Fatal(err)
	}
	*made = append(*made, client)
	return func() *clientv3.Client { return client }
}

// MakeMultiNodeClients is etcd's.
func MakeMultiNodeClients(t testing.TB, c *Cluster, made *[]*clientv3.Client) func() *clientv3.Client {
	return MakeSingleNodeClients(t, c, made)
}

// CloseClients closes them.
func CloseClients(t testing.TB, all []*clientv3.Client) {
	for _, c := range all {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// NewClient is etcd's.
func NewClient(_ testing.TB, c clientv3.Config) (*clientv3.Client, error) { return clientv3.New(c) }
