// Package credential reads credential files that can be replaced while the forwarder runs:
// passwords, tokens, keys, certificates, and certificate authorities. The API client and the buses
// share the package.
//
// Guarantees:
//
//   - [File.Get] returns the current content of the file. If the file is unusable, for example
//     because a rotation replaces a certificate before its key, it returns the previous
//     content.
//   - A [Watcher] detects every change of content: a write in place, a rename, and a symbolic link
//     that now points to another directory. The kubelet updates volumes with such a link.
//   - Neither an error nor a log line contains the content.
//
// The package does not apply new credentials, and does not check whether a server accepts them.
package credential

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// checkEvery is the interval at which a bus checks its files for changes. A change must lead to a
// reconnection within a minute, because the old credentials can be invalid after that.
const checkEvery = 10 * time.Second

// Watch calls check at intervals until ctx ends.
func Watch(ctx context.Context, check func(context.Context)) {
	_ = wait.PollUntilContextCancel(ctx, checkEvery, false, func(ctx context.Context) (bool, error) {
		check(ctx)
		return false, nil
	}) // the error is that of ctx
}

// File is the content of one file, or of two files that belong together. It is safe for
// concurrent use.
type File[T any] struct {
	setting string // name in errors and logs
	load    func() (T, error)
	log     *slog.Logger

	mu   sync.Mutex
	last T
}

// NewFile reads the file once, so that an invalid file is an error at startup. setting is the
// environment variable that names the file.
func NewFile[T any](setting string, log *slog.Logger, load func() (T, error)) (*File[T], error) {
	f := &File[T]{setting: setting, load: load, log: log}
	var err error
	if f.last, err = load(); err != nil {
		return nil, fmt.Errorf("%s: %w", setting, err)
	}
	return f, nil
}

// Get reads the file and returns its content. If the file is unusable, Get logs a warning and returns
// the last content.
func (f *File[T]) Get() T {
	f.mu.Lock()
	defer f.mu.Unlock()
	content, err := f.load()
	if err != nil {
		f.log.Warn("cannot reload the credentials, keeping the previous ones", "setting", f.setting, "err", err)
		return f.last
	}
	f.last = content
	return content
}

// Last returns the last content that was read, without reading the file.
func (f *File[T]) Last() T {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// Secret reads a password or a token, without the final line breaks that an editor adds.
func Secret(path string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	secret := strings.TrimRight(string(content), "\r\n")
	if secret == "" {
		return "", errors.New(path + " is empty")
	}
	return secret, nil
}

// Roots reads the certificates of certificate authorities.
func Roots(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s contains no PEM certificate", path)
	}
	return roots, nil
}

// Pair reads a certificate and its private key.
func Pair(cert, key string) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", cert, key, err)
	}
	return &pair, nil
}

// ServerTLS returns the configuration of a TLS server. The server reads both files again for each
// connection. For setting, see [NewFile].
func ServerTLS(setting string, log *slog.Logger, cert, key string) (*tls.Config, error) {
	file, err := NewFile(setting, log, func() (*tls.Certificate, error) { return Pair(cert, key) })
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return file.Get(), nil },
	}, nil
}

// A Watcher detects changes of files. It is safe for concurrent use.
type Watcher struct {
	paths []string

	mu   sync.Mutex
	seen [sha256.Size]byte
}

// NewWatcher returns a Watcher of the files with these paths. It ignores empty paths.
func NewWatcher(paths ...string) *Watcher {
	w := &Watcher{}
	for _, path := range paths {
		if path != "" {
			w.paths = append(w.paths, path)
		}
	}
	w.seen = Fingerprint(w.paths)
	return w
}

// Changed reports whether a file has changed since the last call.
func (w *Watcher) Changed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.seen
	w.seen = Fingerprint(w.paths)
	return w.seen != before
}

// Fingerprint returns a hash of the paths and the contents of files. It treats an unreadable file as
// empty.
func Fingerprint(paths []string) [sha256.Size]byte {
	h := sha256.New()
	for _, path := range paths {
		content, _ := os.ReadFile(path) // nil if the file is unreadable
		fmt.Fprintf(h, "%q:%d:%s", path, len(content), content)
		clear(content)
	}
	return [sha256.Size]byte(h.Sum(nil))
}
