//go:build linux

package e2e

import (
	"context"
	"crypto/pbkdf2"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/kuberelay/kuberelay/test/harness"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
	"github.com/kuberelay/kuberelay/test/lab/tlstest"
)

// securedKafka is a broker whose clients log in with a password or a certificate, and the files
// that the broker reads when it starts.
type securedKafka struct {
	*kafkabrokertest.Broker

	t     *testing.T
	files *volume
}

func newSecuredKafka(t *testing.T, of *tlstest.CA, users map[string]string) *securedKafka {
	t.Helper()
	s := &securedKafka{t: t, files: newVolume(t, nil)}
	s.show(of, of)
	s.Broker = kafkabrokertest.Start(t, kafkabroker.Options{
		Listeners: []kafkabroker.Listener{kafkabroker.SASLSSL, kafkabroker.SSL}, Users: users, Authorize: true,
		TLS: kafkabroker.TLS{CertFile: s.files.path("tls.crt"), KeyFile: s.files.path("tls.key"), CAFile: s.files.path("ca.crt")},
	})
	return s
}

// show changes the authority of the broker's certificate and the authority of the clients'
// certificates. The changes take effect at the broker's next start.
func (s *securedKafka) show(of, clients *tlstest.CA) {
	s.t.Helper()
	_, cert, key := of.Issue("broker")
	s.files.put(map[string]string{"tls.crt": readFile(s.t, cert), "tls.key": readFile(s.t, key), "ca.crt": readFile(s.t, clients.File)})
}

// admin returns a client with all permissions and its own connections. A shared connection could
// still belong to a broker that was killed.
func (s *securedKafka) admin() (client *kafkago.Client, done func()) {
	transport := &kafkago.Transport{}
	return &kafkago.Client{Addr: kafkago.TCP(s.Addr()), Transport: transport}, transport.CloseIdleConnections
}

// acl allows or denies a user all operations that a forwarder needs on a topic.
func (s *securedKafka) acl(user, topic string, permission kafkago.ACLPermissionType) {
	s.t.Helper()
	var entries []kafkago.ACLEntry
	for _, on := range []kafkago.ACLEntry{
		{ResourceType: kafkago.ResourceTypeTopic, ResourceName: topic}, {ResourceType: kafkago.ResourceTypeTopic, ResourceName: topic + ".checkpoint"},
		{ResourceType: kafkago.ResourceTypeTransactionalID, ResourceName: topic},
	} {
		on.ResourcePatternType, on.Principal, on.Host = kafkago.PatternTypeLiteral, "User:"+user, "*"
		on.Operation, on.PermissionType = kafkago.ACLOperationTypeAll, permission
		entries = append(entries, on)
	}
	client, done := s.admin()
	defer done()
	createACLs(s.t, client, entries)
}

// setPassword changes a user's SCRAM-SHA-256 password.
func (s *securedKafka) setPassword(user, password string) {
	s.t.Helper()
	const iterations = 4096
	salt := []byte("any salt will do")
	salted, err := pbkdf2.Key(sha256.New, password, salt, iterations, sha256.Size)
	if err != nil {
		s.t.Fatal(err)
	}
	client, done := s.admin()
	defer done()
	response, err := client.AlterUserScramCredentials(s.t.Context(), &kafkago.AlterUserScramCredentialsRequest{
		Upsertions: []kafkago.UserScramCredentialsUpsertion{{
			Name: user, Mechanism: kafkago.ScramMechanismSha256, Iterations: iterations, Salt: salt, SaltedPassword: salted,
		}},
	})
	if err != nil || response.Results[0].Error != nil {
		s.t.Fatal(response, err)
	}
}

// connections returns the local addresses of a process's connections to a listener.
func connections(t *testing.T, pid int, address string) map[string]bool {
	t.Helper()
	port := address[strings.LastIndexByte(address, ':')+1:]
	sockets := map[string]bool{}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if link, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, fd.Name())); err == nil { // the descriptor may be closed by now
			sockets[link] = true
		}
	}
	found := map[string]bool{}
	for line := range strings.Lines(readFile(t, "/proc/net/tcp")) {
		const established = "01"
		fields := strings.Fields(line) // sl, local, remote, state, …; the tenth is the inode
		if len(fields) > 9 && fields[3] == established && sockets["socket:["+fields[9]+"]"] && strings.HasSuffix(fields[2], fmt.Sprintf(":%04X", number(port))) {
			found[fields[1]] = true
		}
	}
	return found
}

// replacedSince returns a check that a process has connections to a listener, and none of the
// earlier ones.
func replacedSince(t *testing.T, before map[string]bool, pid func() int, address string) func(context.Context) error {
	return func(context.Context) error {
		now := connections(t, pid(), address)
		for c := range now {
			if before[c] {
				return fmt.Errorf("the connection %s is still there", c)
			}
		}
		if len(now) == 0 {
			return fmt.Errorf("there is no connection")
		}
		return nil
	}
}

// TestRotationKafka_Slow replaces Kafka passwords, certificates and authorities under load and revokes
// the former ones, in either order. No event may be lost or repeated.
func TestRotationKafka_Slow(t *testing.T) {
	const user, firstPassword, secondPassword, thirdPassword = "alice", "first-password", "second-password", "third-password"
	first, second := tlstest.NewCA(t), tlstest.NewCA(t)
	broker := newSecuredKafka(t, first, map[string]string{user: firstPassword})
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)

	start := func(t *testing.T, topicName string, listener kafkabroker.Listener, set map[string]string) *rotation {
		t.Helper()
		namespace := quietNamespace(t, u)
		all := onKafka(topic{t, broker.AddrOf(listener), topicName}, map[string]string{
			"RESOURCES": "configmaps", "NAMESPACES": namespace, "KAFKA_TLS": "true",
		})
		for name, value := range set {
			all[name] = value
		}
		f := newForwarder(t, cp.Kubeconfig(), "", all).start()
		f.idle()
		recorder, err := harness.RecordKafka(broker.Addr(), topicName)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(recorder.Close)
		r := &rotation{t: t, f: f, recorder: recorder, load: newLoad(t, u, namespace)}
		r.flowing()
		return r
	}

	t.Run("password", func(t *testing.T) {
		const topicName = "rotation-password"
		broker.acl(user, topicName, kafkago.ACLPermissionTypeAllow)
		mounted := newVolume(t, map[string]string{"password": firstPassword + "\n", "ca.crt": readFile(t, first.File)})
		r := start(t, topicName, kafkabroker.SASLSSL, map[string]string{
			"KAFKA_TLS_CA_FILE": mounted.path("ca.crt"), "KAFKA_SASL_MECHANISM": "SCRAM-SHA-256", "KAFKA_USER": user, "KAFKA_PASSWORD_FILE": mounted.path("password"),
		})
		address := broker.AddrOf(kafkabroker.SASLSSL)

		// The broker refuses the former password, but keeps connections that logged in with it.
		before := connections(t, r.f.PID(), address)
		replaced := time.Now()
		broker.setPassword(user, secondPassword)
		mounted.put(map[string]string{"password": secondPassword})
		r.inForce("password", replaced, replacedSince(t, before, r.f.PID, address))

		// Reverse the order: the broker receives the new password after the forwarder.
		before = connections(t, r.f.PID(), address)
		replaced = time.Now()
		mounted.put(map[string]string{"password": thirdPassword})
		r.f.await("the forwarder is refused", func(ctx context.Context) error {
			if err := r.f.Ready(ctx); err == nil {
				return fmt.Errorf("it is ready")
			}
			return nil
		})
		broker.setPassword(user, thirdPassword)
		r.inForce("password that the broker learns of later", replaced, replacedSince(t, before, r.f.PID, address))

		broker.Kill()
		broker.Start()
		r.flowing()
		r.end()
	})

	t.Run("certificate and authority", func(t *testing.T) {
		const topicName = "rotation-certificate"
		for _, name := range []string{"carol", "dave", "erin"} {
			broker.acl(name, topicName, kafkago.ACLPermissionTypeAllow)
		}
		pair := func(of *tlstest.CA, name string) map[string]string {
			_, cert, key := of.Issue(name)
			return map[string]string{"tls.crt": readFile(t, cert), "tls.key": readFile(t, key), "ca.crt": readFile(t, of.File)}
		}
		carol := pair(first, "carol")
		mounted := newVolume(t, carol)
		r := start(t, topicName, kafkabroker.SSL, map[string]string{
			"KAFKA_TLS_CA_FILE": mounted.path("ca.crt"), "KAFKA_TLS_CERT_FILE": mounted.path("tls.crt"), "KAFKA_TLS_KEY_FILE": mounted.path("tls.key"),
		})
		address := broker.AddrOf(kafkabroker.SSL)

		before := connections(t, r.f.PID(), address)
		replaced := time.Now()
		mounted.put(pair(first, "dave"))
		broker.acl("carol", topicName, kafkago.ACLPermissionTypeDeny)
		r.inForce("client certificate", replaced, replacedSince(t, before, r.f.PID, address))

		broker.Stop()
		broker.show(second, second)
		broker.Start()
		r.f.await("the forwarder is refused", func(ctx context.Context) error {
			if err := r.f.Ready(ctx); err == nil {
				return fmt.Errorf("it is ready")
			}
			return nil
		})
		replaced = time.Now()
		mounted.put(pair(second, "erin"))
		r.inForce("authority", replaced, r.f.Ready)
		if err := greet(t, address, second, carol); err == nil {
			t.Error("the broker still accepts the former certificate")
		}
		if err := greet(t, address, second, pair(second, "carol")); err != nil {
			t.Errorf("the broker accepts no certificate at all: %v", err)
		}
		r.end()
	})
}

// greet sends a request to a broker with a client certificate. A broker refuses a certificate only
// after the handshake, so a connection alone isn't enough.
func greet(t *testing.T, address string, ca *tlstest.CA, files map[string]string) error {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"tls.crt", "tls.key"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(files[name]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	certificate, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	transport := &kafkago.Transport{TLS: ca.Config(certificate)}
	defer transport.CloseIdleConnections()
	_, err = (&kafkago.Client{Addr: kafkago.TCP(address), Transport: transport}).ApiVersions(ctx, &kafkago.ApiVersionsRequest{})
	return err
}
