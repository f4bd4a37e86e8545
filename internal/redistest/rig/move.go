package rig

import (
	"net"
	"strconv"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/keyname"
	"github.com/redlatch/redlatch/internal/redistest"
)

// Move is the migration of the slot of one key in a Cluster, step by step.
type Move struct {
	Slot             string
	From, To         rueidis.Client
	FromAddr, ToAddr string

	t            testing.TB
	fromID, toID string
}

// NewMove is a migration from the node of key to the next one. Nothing has begun.
func NewMove(t testing.TB, s *redistest.Server, key string) *Move {
	t.Helper()
	const primaries = 3 // whose addresses are the first
	slot := int(keyname.Slot(key))
	owner := 0
	for slot >= (owner+1)*16384/primaries {
		owner++
	}
	m := &Move{t: t, Slot: strconv.Itoa(slot), FromAddr: s.Addrs[owner], ToAddr: s.Addrs[(owner+1)%primaries]}
	node := func(addr string) (rueidis.Client, string) {
		c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true,
			DisableCache: true})
		require.NoError(t, err)
		t.Cleanup(c.Close)
		return c, Text(t, c, "CLUSTER", "MYID")
	}
	m.From, m.fromID = node(m.FromAddr)
	m.To, m.toID = node(m.ToAddr)
	return m
}

// Back is the way back.
func (m *Move) Back() *Move {
	return &Move{t: m.t, Slot: m.Slot, From: m.To, To: m.From, fromID: m.toID, toID: m.fromID, FromAddr: m.ToAddr,
		ToAddr: m.FromAddr}
}

// Begin has both nodes know that the slot moves.
func (m *Move) Begin() {
	m.t.Helper()
	Must(m.t, m.To, "CLUSTER", "SETSLOT", m.Slot, "IMPORTING", m.fromID)
	Must(m.t, m.From, "CLUSTER", "SETSLOT", m.Slot, "MIGRATING", m.toID)
}

// Key moves one key, if it is still there.
func (m *Move) Key(key string) {
	m.t.Helper()
	host, port, err := net.SplitHostPort(m.ToAddr)
	require.NoError(m.t, err)
	Must(m.t, m.From, "MIGRATE", host, port, key, "0", "5000")
}

// End gives the slot to its new node.
func (m *Move) End() {
	m.t.Helper()
	Must(m.t, m.To, "CLUSTER", "SETSLOT", m.Slot, "NODE", m.toID)
	Must(m.t, m.From, "CLUSTER", "SETSLOT", m.Slot, "NODE", m.toID)
}
