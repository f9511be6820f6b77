package natstest

import (
	"testing"

	"github.com/kuberelay/kuberelay/internal/tlstest"
)

// NewCA makes a certificate authority, for a server with TLS and its clients.
func NewCA(t testing.TB) *tlstest.CA {
	t.Helper()
	return tlstest.NewCA(t)
}
