package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"

	"github.com/kuberelay/kuberelay/test/harness"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/tlstest"
)

// securedNATS is a server whose clients need a creds file and a certificate.
type securedNATS struct {
	*natstest.Process
	t        *testing.T
	operator *natstest.Operator
	others   *tlstest.CA // the authority of clients whose certificates don't change
}

// tls returns the TLS part of the server's configuration: the server's certificate, and the
// authorities of its clients.
func (s *securedNATS) tls(of *tlstest.CA, clients ...*tlstest.CA) string {
	t := s.t
	t.Helper()
	_, cert, key := of.Issue("server")
	authorities := readFile(t, s.others.File)
	for _, ca := range clients {
		authorities += readFile(t, ca.File)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, []byte(authorities), 0o600); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("tls: {cert_file: %q, key_file: %q, ca_file: %q, verify: true, timeout: 10}\n", cert, key, file)
}

// forwarder returns the forwarder's latest connection.
func (s *securedNATS) forwarder() (*server.ConnInfo, error) {
	var last *server.ConnInfo
	for _, c := range s.Connections() {
		if c.Name == "kuberelay "+clusterName && (last == nil || c.Cid > last.Cid) {
			last = c
		}
	}
	if last == nil {
		return nil, fmt.Errorf("the forwarder is not connected")
	}
	return last, nil
}

// is returns a check that the forwarder's latest connection satisfies the condition.
func (s *securedNATS) is(what string, holds func(*server.ConnInfo) bool) func(context.Context) error {
	return func(context.Context) error {
		c, err := s.forwarder()
		if err == nil && !holds(c) {
			err = fmt.Errorf("the forwarder's connection is not %s: user %s, certificates %v", what, c.AuthorizedUser, c.TLSPeerCerts)
		}
		return err
	}
}

func (s *securedNATS) by(user string) func(context.Context) error {
	return s.is("of "+user, func(c *server.ConnInfo) bool { return c.AuthorizedUser == user })
}

// refused verifies that the server refuses these credentials.
func (s *securedNATS) refused(what, creds string, ca *tlstest.CA, cert, key string) {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "creds")
	if err := os.WriteFile(file, []byte(creds), 0o600); err != nil {
		s.t.Fatal(err)
	}
	nc, err := natsgo.Connect(s.URL, natsgo.UserCredentials(file), natsgo.RootCAs(ca.File), natsgo.ClientCert(cert, key))
	if err == nil {
		nc.Close()
		s.t.Errorf("the server still accepts %s", what)
	}
}

// TestRotationNATS_Slow replaces every NATS credential under load and revokes the former one, in either
// order. No event may be lost or repeated.
func TestRotationNATS_Slow(t *testing.T) {
	first, second := tlstest.NewCA(t), tlstest.NewCA(t)
	bus := &securedNATS{t: t, operator: natstest.NewOperator(t), others: tlstest.NewCA(t)}
	security := bus.tls(first, first)
	bus.Process = natstest.StartProcess(t, bus.operator.Configuration(), security)

	creds, user := bus.operator.User()
	_, cert, key := first.Issue("forwarder-1")
	mounted := newVolume(t, map[string]string{
		"nats.creds": creds, "ca.crt": readFile(t, first.File), "tls.crt": readFile(t, cert), "tls.key": readFile(t, key),
	})
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := quietNamespace(t, u)
	f := newForwarder(t, cp.Kubeconfig(), bus.URL, map[string]string{
		"RESOURCES": "configmaps", "NAMESPACES": namespace, "NATS_HISTORY": "1000",
		"NATS_CREDS_FILE": mounted.path("nats.creds"), "NATS_TLS_CA_FILE": mounted.path("ca.crt"),
		"NATS_TLS_CERT_FILE": mounted.path("tls.crt"), "NATS_TLS_KEY_FILE": mounted.path("tls.key"),
	})
	f.start().idle()
	r := &rotation{t: t, f: f, recorder: bus.record(first, second), load: newLoad(t, u, namespace)}
	r.flowing()

	// Use the regular order: mount the new creds first, then revoke the former ones.
	oldCreds, oldUser := creds, user
	creds, user = bus.operator.User()
	replaced := time.Now()
	mounted.put(map[string]string{"nats.creds": creds})
	r.inForce("creds", replaced, bus.by(user))
	bus.operator.Revoke(oldUser)
	bus.Configure(bus.operator.Configuration(), security)
	bus.refused("revoked creds", oldCreds, first, cert, key)
	r.flowing()

	// Use the other order: revoke the creds first. The server closes the connection.
	bus.operator.Revoke(user)
	bus.Configure(bus.operator.Configuration(), security)
	r.f.await("the forwarder is refused", func(ctx context.Context) error {
		if err := f.Ready(ctx); err == nil {
			return fmt.Errorf("it is ready")
		}
		return nil
	})
	oldCreds = creds
	creds, user = bus.operator.User()
	replaced = time.Now()
	mounted.put(map[string]string{"nats.creds": creds})
	r.inForce("creds, after the former were revoked", replaced, bus.by(user))
	bus.refused("revoked creds", oldCreds, first, cert, key)

	// Replace the client's certificate with one from another authority that the server also trusts.
	security = bus.tls(first, first, second)
	bus.Configure(bus.operator.Configuration(), security)
	_, newCert, newKey := second.Issue("forwarder-2")
	replaced = time.Now()
	mounted.put(map[string]string{"tls.crt": readFile(t, newCert), "tls.key": readFile(t, newKey)})
	r.inForce("client certificate", replaced, bus.is("with the new certificate", func(c *server.ConnInfo) bool {
		return len(c.TLSPeerCerts) == 1 && c.TLSPeerCerts[0].Subject == "CN=forwarder-2"
	}))

	// Replace the authority of the server's certificate with the second one. From now on, the
	// server and the client trust only the second authority.
	before, err := bus.forwarder()
	if err != nil {
		t.Fatal(err)
	}
	replaced = time.Now()
	mounted.put(map[string]string{"ca.crt": readFile(t, second.File)})
	r.flowing() // on the existing connection, which used the server's former certificate
	security = bus.tls(second, second)
	bus.Configure(bus.operator.Configuration(), security)
	r.inForce("authority", replaced, bus.is("a new one", func(c *server.ConnInfo) bool { return c.Cid > before.Cid }))
	bus.refused("the former certificate", creds, second, cert, key)

	// Replace all credentials at once and kill the server, so that no connection survives.
	bus.operator.Revoke(user)
	creds, user = bus.operator.User()
	_, cert, key = second.Issue("forwarder-3")
	replaced = time.Now()
	bus.Configure(bus.operator.Configuration(), security)
	mounted.put(map[string]string{"nats.creds": creds, "tls.crt": readFile(t, cert), "tls.key": readFile(t, key)})
	bus.Kill()
	bus.Start()
	r.inForce("everything", replaced, bus.by(user))
	r.end()
}

// record reads the stream as a user whose credentials don't change.
func (s *securedNATS) record(authorities ...*tlstest.CA) harness.Recorder {
	s.t.Helper()
	creds, _ := s.operator.User()
	file := filepath.Join(s.t.TempDir(), "creds")
	if err := os.WriteFile(file, []byte(creds), 0o600); err != nil {
		s.t.Fatal(err)
	}
	var roots []string
	for _, ca := range authorities {
		roots = append(roots, ca.File)
	}
	_, cert, key := s.others.Issue("recorder")
	recorder, err := harness.RecordNATS(s.URL, "KUBERELAY", natsgo.UserCredentials(file), natsgo.RootCAs(roots...), natsgo.ClientCert(cert, key))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(recorder.Close)
	return recorder
}
