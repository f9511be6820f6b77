package natstest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"
)

// Operator is a NATS operator that a server trusts. It has one account with JetStream, and creates and
// revokes that account's users.
type Operator struct {
	t                 testing.TB
	operator, account nkeys.KeyPair
	claims            *jwt.AccountClaims
	encoded           string            // the JWT of the operator
	accounts          map[string]string // JWTs by public key
	system            string
}

// NewOperator creates an operator, its account, and the system account.
func NewOperator(t testing.TB) *Operator {
	t.Helper()
	o := &Operator{t: t, accounts: map[string]string{}}
	o.operator, o.account = o.pair(nkeys.CreateOperator()), o.pair(nkeys.CreateAccount())
	o.encoded = o.text(jwt.NewOperatorClaims(o.public(o.operator)).Encode(o.operator))
	o.system = o.public(o.pair(nkeys.CreateAccount()))
	o.accounts[o.system] = o.text(jwt.NewAccountClaims(o.system).Encode(o.operator))
	o.claims = jwt.NewAccountClaims(o.public(o.account))
	o.claims.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1}
	return o
}

// User creates a user. It returns the content of the user's creds file and the public key that
// identifies the user to the server.
func (o *Operator) User() (creds, public string) {
	o.t.Helper()
	user := o.pair(nkeys.CreateUser())
	seed, err := user.Seed()
	if err != nil {
		o.t.Fatal(err)
	}
	encoded := o.text(jwt.NewUserClaims(o.public(user)).Encode(o.account))
	content, err := jwt.FormatUserConfig(encoded, seed)
	if err != nil {
		o.t.Fatal(err)
	}
	return string(content), o.public(user)
}

// Revoke revokes a user. The next result of [Operator.Configuration] contains the revocation.
func (o *Operator) Revoke(public string) { o.claims.Revoke(public) }

// Configuration returns the operator's part of the server configuration.
func (o *Operator) Configuration() string {
	o.t.Helper()
	o.accounts[o.public(o.account)] = o.text(o.claims.Encode(o.operator))
	var b strings.Builder
	fmt.Fprintf(&b, "operator: %s\nsystem_account: %s\nresolver: MEMORY\nresolver_preload: {\n", o.encoded, o.system)
	for _, public := range slices.Sorted(maps.Keys(o.accounts)) {
		fmt.Fprintf(&b, "  %s: %s\n", public, o.accounts[public])
	}
	return b.String() + "}\n"
}

func (o *Operator) pair(pair nkeys.KeyPair, err error) nkeys.KeyPair {
	o.t.Helper()
	if err != nil {
		o.t.Fatal(err)
	}
	return pair
}

func (o *Operator) text(text string, err error) string {
	o.t.Helper()
	if err != nil {
		o.t.Fatal(err)
	}
	return text
}

func (o *Operator) public(pair nkeys.KeyPair) string {
	o.t.Helper()
	return o.text(pair.PublicKey())
}
