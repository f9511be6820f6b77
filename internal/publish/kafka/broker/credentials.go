package broker

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"

	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

// reread is what a file or two hold, read again at each use. While they cannot be read,
// as between the two steps of a careless rotation, the last good content stands in.
type reread[T any] struct {
	setting string // what errors call it
	load    func() (T, error)
	log     *slog.Logger

	mu   sync.Mutex
	last T
}

func newReread[T any](setting string, log *slog.Logger, load func() (T, error)) (*reread[T], error) {
	r := &reread[T]{setting: setting, load: load, log: log}
	var err error
	if r.last, err = load(); err != nil {
		return nil, misconfigured("%s: %w", setting, err)
	}
	return r, nil
}

func (r *reread[T]) get() T {
	r.mu.Lock()
	defer r.mu.Unlock()
	content, err := r.load()
	if err != nil {
		r.log.Warn("cannot read the credentials again, using the last ones", "setting", r.setting, "err", err)
		return r.last
	}
	r.last = content
	return content
}

// loadPassword never quotes the content.
func loadPassword(path string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	password := strings.TrimRight(string(content), "\r\n")
	if password == "" {
		return "", errors.New(path + " is empty")
	}
	return password, nil
}

// mechanism authenticates with what the password's file holds at that moment.
type mechanism struct {
	name, user string
	password   *reread[string]
}

var _ sasl.Mechanism = (*mechanism)(nil)

func (o Options) sasl() (sasl.Mechanism, error) {
	if o.SASLMechanism == "" {
		return nil, nil
	}
	password, err := newReread("KUBERELAY_KAFKA_PASSWORD_FILE", o.Logger, func() (string, error) { return loadPassword(o.PasswordFile) })
	if err != nil {
		return nil, err
	}
	if o.SASLMechanism == Plain && !o.TLS {
		o.Logger.Warn("the password is sent in the clear: use TLS, or SCRAM instead of PLAIN", "setting", "KUBERELAY_KAFKA_TLS")
	}
	m := &mechanism{name: o.SASLMechanism, user: o.User, password: password}
	// A user or password that SCRAM cannot take (RFC 4013) is told before anything is tried.
	if _, _, err := m.Start(context.Background()); err != nil {
		return nil, misconfigured("KUBERELAY_KAFKA_USER %q and KUBERELAY_KAFKA_PASSWORD_FILE: %w", o.User, err)
	}
	return m, nil
}

// Name is for the handshake.
func (m *mechanism) Name() string { return m.name }

// Start begins the authentication of one connection.
func (m *mechanism) Start(ctx context.Context) (sasl.StateMachine, []byte, error) {
	password := m.password.get()
	algorithm := scram.SHA512
	switch m.name {
	case Plain:
		return plain.Mechanism{Username: m.user, Password: password}.Start(ctx)
	case ScramSHA256:
		algorithm = scram.SHA256
	}
	s, err := scram.Mechanism(algorithm, m.user, password)
	if err != nil { // not wrapped: it may quote the password
		return nil, nil, fmt.Errorf("user or password holds a character that %s does not allow", m.name)
	}
	return s.Start(ctx)
}

// fingerprint tells whether any of the files has changed. One that cannot be read counts
// as empty.
func (o Options) fingerprint() [sha256.Size]byte {
	h := sha256.New()
	for _, path := range []string{o.CAFile, o.CertFile, o.KeyFile, o.PasswordFile} {
		var content []byte
		if path != "" {
			content, _ = os.ReadFile(path) // see above
		}
		fmt.Fprintf(h, "%d:%s", len(content), content)
		clear(content)
	}
	return [sha256.Size]byte(h.Sum(nil))
}
