package natsserver

import (
	"cmp"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/kuberelay/kuberelay/internal/credential"
)

// Access configures access for clients outside of this process. These clients can read the stream
// and can't write to it. The server reads the files again for each connection, so you can replace
// them.
type Access struct {
	// User and PasswordFile, or TokenFile, are the credentials that a client must present
	// (KUBERELAY_NATS_USER, KUBERELAY_NATS_PASSWORD_FILE, KUBERELAY_NATS_TOKEN_FILE). If they are
	// empty and Anonymous is false, Start creates a token in the file that the function [TokenFile]
	// names, and a client must present that token.
	User, PasswordFile, TokenFile string
	// Anonymous admits every client (KUBERELAY_NATS_ALLOW_ANONYMOUS).
	Anonymous bool
	// CertFile and KeyFile turn on TLS (KUBERELAY_NATS_LISTEN_TLS_CERT_FILE and _KEY_FILE).
	CertFile, KeyFile string
	// Stream and SubjectPrefix are the stream and the subjects that clients can read
	// (KUBERELAY_NATS_STREAM and KUBERELAY_NATS_SUBJECT_PREFIX). The defaults are "KUBERELAY" and
	// "kuberelay".
	Stream, SubjectPrefix string
}

// TokenFile returns the path of the token file for a server with this directory. The server creates
// the file if its [Access] has no credentials. Only the user that runs the server can read the file.
func TokenFile(storeDir string) string { return filepath.Join(storeDir, "token") }

// makeToken makes sure that the token file exists, and that only the current user can read it. It also
// fills an empty file, which an earlier version left behind on a full volume.
func makeToken(path string) error {
	mode := os.Chmod(path, 0o600) // the kubelet lets a pod's fsGroup read the files of a volume
	token, err := os.ReadFile(path)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case len(token) == 0:
		token = []byte(rand.Text() + "\n")
	case mode == nil:
		return nil
	}
	next := path + ".new" // replaces the file, because only the owner can change its mode, and the pod's user can change
	if err := os.RemoveAll(next); err != nil {
		return err
	}
	if err := os.WriteFile(next, token, 0o600); err != nil {
		return err
	}
	return os.Rename(next, path)
}

// authenticator admits clients and sets their permissions.
type authenticator struct {
	user    string                   // "" if clients present a token
	secret  *credential.File[string] // nil to admit everyone
	readers *server.Permissions

	ready   chan struct{}   // closed when account is set
	account *server.Account // account of the readers; see isolateReaders
}

var _ server.Authentication = (*authenticator)(nil)

// authenticator returns the authenticator for a server with this directory. If clients need
// credentials and the settings have none, authenticator creates the token file.
func (a Access) authenticator(storeDir string, log *slog.Logger) (*authenticator, error) {
	r := &authenticator{user: a.User, ready: make(chan struct{}), readers: readerPermissions(cmp.Or(a.Stream, "KUBERELAY"), cmp.Or(a.SubjectPrefix, "kuberelay"))}
	setting, file := "KUBERELAY_DATA_DIR", TokenFile(storeDir)
	switch {
	case a.Anonymous:
		return r, nil
	case a.PasswordFile != "":
		setting, file = "KUBERELAY_NATS_PASSWORD_FILE", a.PasswordFile
	case a.TokenFile != "":
		setting, file = "KUBERELAY_NATS_TOKEN_FILE", a.TokenFile
	default:
		if err := makeToken(file); err != nil {
			return nil, fmt.Errorf("create the token of the built-in NATS server: %w; set KUBERELAY_DATA_DIR to another directory", err)
		}
	}
	var err error
	r.secret, err = credential.NewFile(setting, log, func() (string, error) { return credential.Secret(file) })
	return r, err
}

// tls returns the TLS configuration, or nil if the settings have no certificate.
func (a Access) tls(log *slog.Logger) (*tls.Config, error) {
	if a.CertFile == "" {
		return nil, nil
	}
	return credential.ServerTLS("KUBERELAY_NATS_LISTEN_TLS_CERT_FILE and KUBERELAY_NATS_LISTEN_TLS_KEY_FILE", log, a.CertFile, a.KeyFile)
}

// Check implements server.Authentication. It admits a connection without a socket as the forwarder,
// because only this process can open such a connection.
func (r *authenticator) Check(c server.ClientAuthentication) bool {
	if from := c.RemoteAddress(); from != nil && from.Network() == "pipe" {
		c.RegisterUser(&server.User{Username: "forwarder"})
		return true
	}
	if r.secret != nil {
		given, user := c.GetOpts().Token, ""
		if r.user != "" {
			given, user = c.GetOpts().Password, c.GetOpts().Username
		}
		if user != r.user || subtle.ConstantTimeCompare([]byte(given), []byte(r.secret.Get())) != 1 {
			return false
		}
	}
	if <-r.ready; r.account == nil {
		return false
	}
	c.RegisterUser(&server.User{Username: "reader", Permissions: r.readers, Account: r.account})
	return true
}

// isolateReaders moves readers to a separate account, which has no stream.
//
// A NATS server sends the response to the reply subject in the request without checking the
// client's permissions. If readers were in the stream's account, a reader could name one of the
// stream's subjects as the reply subject, and so write to the stream. Therefore, the stream's
// account exports the allowed requests as services, and the responses arrive in the readers'
// account. The stream belongs to the global account.
//
// Call isolateReaders after the server has started. If a second account exists at startup, the server
// disables JetStream in the global account.
func (r *authenticator) isolateReaders(ns *server.Server) error {
	defer close(r.ready)
	stream := ns.GlobalAccount()
	readers, _ := ns.LookupOrRegisterAccount("readers")
	for _, subject := range r.readers.Publish.Allow {
		answers := server.Singleton
		if strings.Contains(subject, ".MSG.NEXT.") {
			answers = server.Streamed
		}
		if err := stream.AddServiceExportWithResponse(subject, answers, nil); err != nil {
			return fmt.Errorf("export %s: %w", subject, err)
		}
		if err := readers.AddServiceImport(stream, subject, subject); err != nil {
			return fmt.Errorf("import %s: %w", subject, err)
		}
	}
	for _, subject := range r.readers.Subscribe.Allow { // the inboxes are for push consumers
		if err := stream.AddStreamExport(subject, nil); err != nil {
			return fmt.Errorf("export %s: %w", subject, err)
		}
		if err := readers.AddStreamImport(stream, subject, ""); err != nil {
			return fmt.Errorf("import %s: %w", subject, err)
		}
	}
	r.account = readers
	return nil
}

// readerPermissions lets a client read a stream with its own consumers, and receive new messages.
// It lists the allowed requests instead of the denied ones, because a newer server can support more
// requests. docs/permissions.md has the same list for other servers.
func readerPermissions(stream, prefix string) *server.Permissions {
	api := "$JS.API."
	return &server.Permissions{
		Publish: &server.SubjectPermission{Allow: []string{
			api + "INFO", api + "STREAM.NAMES", api + "STREAM.INFO." + stream, api + "STREAM.MSG.GET." + stream,
			api + "CONSUMER.CREATE." + stream, api + "CONSUMER.CREATE." + stream + ".>", api + "CONSUMER.DURABLE.CREATE." + stream + ".*",
			api + "CONSUMER.INFO." + stream + ".*", api + "CONSUMER.MSG.NEXT." + stream + ".*", api + "CONSUMER.DELETE." + stream + ".*",
			"$JS.ACK." + stream + ".>", "$JS.FC." + stream + ".>",
		}},
		Subscribe: &server.SubjectPermission{
			Allow: []string{"_INBOX.>", prefix + ".>"},
			Deny:  []string{"_INBOX.kuberelay.>"}, // the responses to the forwarder
		},
	}
}
