package broker

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/segmentio/kafka-go"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/failure"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/login"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/recordbatch"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
	"github.com/kuberelay/kuberelay/test/lab/logtest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
	"github.com/kuberelay/kuberelay/test/lab/tlstest"
)

// secured is a broker with a listener of every kind, and the files that its clients need.
type secured struct {
	*kafkabrokertest.Broker

	authority              *tlstest.CA
	server, client         pair
	caFile, password, user string
	topic                  string
	root                   *Client
}

const firstPassword, secondPassword = "Hunter1Hunter1", "Hunter2Hunter2"

func newSecured(t *testing.T) *secured {
	s := &secured{authority: tlstest.NewCA(t), server: newPair(t), client: newPair(t), user: "alice"}
	s.server.write(t, s.authority, "broker")
	s.client.write(t, s.authority, "carol")
	s.caFile = writeFile(t, "ca.crt", "")
	replaceFile(t, s.caFile, s.authority.File)
	s.password = writeFile(t, "password", firstPassword+"\n")
	s.Broker = kafkabrokertest.Start(t, kafkabroker.Options{
		Listeners: []kafkabroker.Listener{kafkabroker.SASLSSL, kafkabroker.SSL},
		Users:     map[string]string{s.user: firstPassword},
		TLS:       kafkabroker.TLS{CertFile: s.server.cert, KeyFile: s.server.key, CAFile: s.caFile},
		Authorize: true, SuperUsers: []string{s.user, "carol"},
	})
	s.topic = kafkabrokertest.Topic(t, s, "secured", 1, nil)
	s.root = newClient(t, s.Addr())
	return s
}

// sasl returns a client that authenticates with the given SASL mechanism.
func (s *secured) sasl(t *testing.T, mechanism string, change ...func(*Options)) *Client {
	return newClient(t, s.AddrOf(kafkabroker.SASLSSL), append([]func(*Options){func(o *Options) {
		o.TLS, o.CAFile, o.SASLMechanism, o.User, o.PasswordFile = true, s.caFile, mechanism, s.user, s.password
	}}, change...)...)
}

// mutual returns a client that presents a certificate (mutual TLS).
func (s *secured) mutual(t *testing.T, change ...func(*Options)) *Client {
	return newClient(t, s.AddrOf(kafkabroker.SSL), append([]func(*Options){func(o *Options) {
		o.TLS, o.CAFile, o.CertFile, o.KeyFile = true, s.caFile, s.client.cert, s.client.key
	}}, change...)...)
}

func (s *secured) produce(t *testing.T, c *Client) error {
	_, err := c.Produce(within(t), s.topic, 0, batch(t, recordbatch.None, NoProducer, recordbatch.NoSequence, record("a", "1")))
	return err
}

// setPassword changes the user's password in the broker. It applies to SCRAM only.
func (s *secured) setPassword(t *testing.T, password string) {
	t.Helper()
	const iterations = 4096
	salt := []byte("any salt will do")
	res, err := s.root.kafka.AlterUserScramCredentials(within(t), &kafka.AlterUserScramCredentialsRequest{
		Upsertions: []kafka.UserScramCredentialsUpsertion{{
			Name: s.user, Mechanism: kafka.ScramMechanismSha256, Iterations: iterations, Salt: salt,
			SaltedPassword: saltedPassword(t, password, salt, iterations),
		}},
	})
	if err != nil || res.Results[0].Error != nil {
		t.Fatal(res, err)
	}
}

func TestAuthentication(t *testing.T) {
	s := newSecured(t)
	t.Run("mechanisms", func(t *testing.T) {
		for _, m := range []string{login.Plain, login.ScramSHA256, login.ScramSHA512} {
			if err := s.produce(t, s.sasl(t, m)); err != nil {
				t.Error(m, err)
			}
		}
		if err := s.produce(t, s.mutual(t)); err != nil {
			t.Error("certificate", err)
		}
	})
	t.Run("wrong password", func(t *testing.T) {
		file := writeFile(t, "password", "Wrong0Wrong0")
		for _, m := range []string{login.Plain, login.ScramSHA256} {
			err := s.produce(t, s.sasl(t, m, func(o *Options) { o.PasswordFile = file }))
			wantMisconfigured(t, err, failure.Denied, s.AddrOf(kafkabroker.SASLSSL), `rejected user "alice" with `+m, "KUBERELAY_KAFKA_PASSWORD_FILE", file)
			if strings.Contains(err.Error(), "Wrong0") {
				t.Errorf("the password is in: %v", err)
			}
		}
	})
	t.Run("no SASL there", func(t *testing.T) {
		c := newClient(t, s.Addr(), func(o *Options) { o.SASLMechanism, o.User, o.PasswordFile = login.ScramSHA256, s.user, s.password })
		wantMisconfigured(t, s.produce(t, c), failure.Denied, "set KUBERELAY_KAFKA_SASL_MECHANISM")
	})
	t.Run("SASL is wanted", func(t *testing.T) {
		c := s.sasl(t, "", func(o *Options) { o.User, o.PasswordFile = "", "" })
		wantError(t, s.produce(t, c), failure.Retry, "closed the connection", "KUBERELAY_KAFKA_SASL_MECHANISM")
	})
	t.Run("TLS is wanted", func(t *testing.T) {
		c := newClient(t, s.AddrOf(kafkabroker.SSL))
		wantError(t, s.produce(t, c), failure.Retry, s.AddrOf(kafkabroker.SSL), "KUBERELAY_KAFKA_TLS=true")
	})
	t.Run("no TLS there", func(t *testing.T) {
		c := newClient(t, s.Addr(), func(o *Options) { o.TLS, o.CAFile, o.RequestTimeout = true, s.caFile, 3e9 })
		// The broker reads the first bytes of the TLS handshake as the size of a request. It
		// waits for the rest of the request, or closes the connection.
		wantError(t, s.produce(t, c), failure.Retry, s.Addr(), "TLS handshake")
	})
	t.Run("certificate is wanted", func(t *testing.T) {
		c := s.mutual(t, func(o *Options) { o.CertFile, o.KeyFile = "", "" })
		err := s.produce(t, c)
		if kind := failure.KindOf(err); kind != failure.Denied && kind != failure.Retry { // the connection may close before the TLS alert arrives
			t.Errorf("got kind %d of %v", kind, err)
		}
		wantError(t, err, failure.KindOf(err), "KUBERELAY_KAFKA_TLS_CERT_FILE")
	})
	t.Run("certificate of a stranger", func(t *testing.T) {
		_, cert, key := tlstest.NewCA(t).Issue("carol")
		err := s.produce(t, s.mutual(t, func(o *Options) { o.CertFile, o.KeyFile = cert, key }))
		wantError(t, err, failure.KindOf(err), "KUBERELAY_KAFKA_TLS_CERT_FILE")
	})
	t.Run("unknown authority", func(t *testing.T) {
		c := s.mutual(t, func(o *Options) { o.CAFile = "" })
		wantMisconfigured(t, s.produce(t, c), failure.Never, "unknown authority", "KUBERELAY_KAFKA_TLS_CA_FILE")
	})
	t.Run("another name", func(t *testing.T) {
		addr := strings.Replace(s.AddrOf(kafkabroker.SSL), "127.0.0.1", "localhost", 1)
		c := s.mutual(t, func(o *Options) { o.Addrs = []string{addr} })
		wantMisconfigured(t, s.produce(t, c), failure.Never, addr, "localhost", "KUBERELAY_KAFKA_BROKERS", "KUBERELAY_KAFKA_TLS_SERVER_NAME")
	})
}

// TestServerName verifies that a client accepts a certificate whose name differs from the broker's host only if
// the name equals ServerName.
func TestServerName(t *testing.T) {
	ca := tlstest.NewCA(t)
	_, cert, key := ca.IssueFor("kafka.example.com")
	b := kafkabrokertest.Start(t, kafkabroker.Options{
		Listeners: []kafkabroker.Listener{kafkabroker.SASLSSL}, Users: map[string]string{"alice": firstPassword},
		TLS: kafkabroker.TLS{CertFile: cert, KeyFile: key},
	})
	topic, password := kafkabrokertest.Topic(t, b, "named", 1, nil), writeFile(t, "password", firstPassword)
	produce := func(name string) error {
		c := newClient(t, b.AddrOf(kafkabroker.SASLSSL), func(o *Options) {
			o.TLS, o.CAFile, o.ServerName, o.SASLMechanism, o.User, o.PasswordFile = true, ca.File, name, login.ScramSHA256, "alice", password
		})
		_, err := c.Produce(within(t), topic, 0, batch(t, recordbatch.None, NoProducer, recordbatch.NoSequence, record("a", "1")))
		return err
	}
	if err := produce("kafka.example.com"); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"", "other.example.com"} {
		wantMisconfigured(t, produce(name), failure.Never, "KUBERELAY_KAFKA_TLS_SERVER_NAME")
	}
}

// connections returns the open connections.
func (c *Client) connections() map[*conn]struct{} {
	c.transport.mu.Lock()
	defer c.transport.mu.Unlock()
	all := make(map[*conn]struct{})
	for conn := range c.transport.conns {
		all[conn] = struct{}{}
	}
	return all
}

// awaitClosed waits until none of the connections is open. kafka-go closes a connection in its own
// goroutine, after the call that replaces the connection has returned.
func (c *Client) awaitClosed(t *testing.T, former map[*conn]struct{}) {
	t.Helper()
	poll.Holds(t, "the former connections are closed", func() bool {
		for open := range c.connections() {
			if _, is := former[open]; is {
				return false
			}
		}
		return true
	})
}

func TestFilesAreReadAgain(t *testing.T) {
	s := newSecured(t)
	t.Run("password", func(t *testing.T) {
		log := new(logtest.Log)
		c := s.sasl(t, login.ScramSHA256, func(o *Options) { o.Logger = log.Logger() })
		if err := s.produce(t, c); err != nil {
			t.Fatal(err)
		}
		before := c.connections()
		if len(before) == 0 {
			t.Fatal("no connection")
		}
		c.transport.checkFiles() // nothing has changed
		if err := s.produce(t, c); err != nil {
			t.Fatal(err)
		}
		after := c.connections()
		for conn := range before {
			if _, there := after[conn]; !there {
				t.Error("a connection was replaced although no file has changed")
			}
		}

		s.setPassword(t, secondPassword)
		if err := os.WriteFile(s.password, []byte(secondPassword), 0o600); err != nil {
			t.Fatal(err)
		}
		c.transport.checkFiles()
		poll.Holds(t, "the new password is accepted", func() bool { return s.produce(t, c) == nil }) // the broker may reject it until it has applied the change
		c.awaitClosed(t, before)

		// While the file is missing, the client uses the last password.
		if err := os.Remove(s.password); err != nil {
			t.Fatal(err)
		}
		c.transport.checkFiles()
		if err := s.produce(t, c); err != nil {
			t.Errorf("without the file: %v", err)
		}
		if !strings.Contains(log.String(), "cannot reload the credentials") || strings.Contains(log.String(), "Hunter") {
			t.Errorf("logged:\n%s", log)
		}

		// If the file changes before the broker learns the new password, the client recovers once the
		// broker accepts it.
		if err := os.WriteFile(s.password, []byte(firstPassword+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		c.transport.checkFiles()
		wantMisconfigured(t, s.produce(t, c), failure.Denied)
		s.setPassword(t, firstPassword)
		poll.Holds(t, "the password is accepted", func() bool { return s.produce(t, c) == nil })
	})

	t.Run("certificate", func(t *testing.T) {
		c := s.mutual(t)
		if err := s.produce(t, c); err != nil {
			t.Fatal(err)
		}
		s.client.write(t, s.authority, "dave") // dave has no permissions
		c.transport.checkFiles()
		wantMisconfigured(t, s.produce(t, c), failure.Denied, "add the ACL: Write on topic "+s.topic, "--allow-principal User:CN=dave")
		s.client.write(t, s.authority, "carol")
		c.transport.checkFiles()
		if err := s.produce(t, c); err != nil {
			t.Error(err)
		}
	})

	t.Run("authority", func(t *testing.T) {
		c := s.mutual(t)
		if err := s.produce(t, c); err != nil {
			t.Fatal(err)
		}
		next := tlstest.NewCA(t)
		s.Stop()
		s.server.write(t, next, "broker")
		s.Start()
		poll.Try(t, "the broker's certificate is refused", func(context.Context) error {
			err := s.produce(t, c)
			if err == nil || !strings.Contains(err.Error(), "KUBERELAY_KAFKA_TLS_CA_FILE") || failure.KindOf(err) != failure.Never {
				return fmt.Errorf("produce: %w", err)
			}
			return nil
		})
		replaceFile(t, s.caFile, next.File)
		poll.Holds(t, "the broker's certificate is accepted", func() bool { return s.produce(t, c) == nil })
	})
}

// TestFilesAreWatched verifies that the watcher notices a change of each credential file.
func TestFilesAreWatched(t *testing.T) {
	var o Options
	for name, path := range map[string]*string{"password": &o.PasswordFile, "authorities": &o.CAFile, "certificate": &o.CertFile, "key": &o.KeyFile} {
		*path = writeFile(t, name, firstPassword)
	}
	files := o.files()
	for _, path := range []string{o.PasswordFile, o.CAFile, o.CertFile, o.KeyFile} {
		if err := os.WriteFile(path, []byte(secondPassword), 0o600); err != nil {
			t.Fatal(err)
		}
		if !files.Changed() {
			t.Errorf("a change of %s is not seen", path)
		}
	}
}
