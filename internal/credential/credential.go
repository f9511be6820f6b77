// Package credential is what the API server's side and the buses share in keeping to files
// of credentials that are replaced while the forwarder runs: passwords, tokens, keys,
// certificates, authorities.
//
// What it guarantees:
//
//   - A [File] gives what the file holds at the moment it is asked. While that cannot be
//     used, as between the two steps of a careless rotation, it gives what it gave last.
//   - A [Watcher] notices a change of content, by whatever means it came about: written in
//     place, renamed, or a symbolic link to a folder that now is another one, which is what
//     kubelet does to a volume.
//   - Neither an error nor a log line quotes the content.
//
// It does not know what is done with a new credential, nor whether anybody takes it.
package credential

import (
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
)

// CheckEvery is how often a bus looks whether its files have changed. What it does then
// has to fit into a minute, at the end of which the former credentials are out of use.
const CheckEvery = 10 * time.Second

// File is the content of one file, or of two that belong together. It may be used by
// several goroutines at once.
type File[T any] struct {
	setting string // what errors call it
	load    func() (T, error)
	log     *slog.Logger

	mu   sync.Mutex
	last T
}

// NewFile reads the file once, so that what is wrong with it is said before anything is
// tried. The setting is the variable that names it.
func NewFile[T any](setting string, log *slog.Logger, load func() (T, error)) (*File[T], error) {
	f := &File[T]{setting: setting, load: load, log: log}
	var err error
	if f.last, err = load(); err != nil {
		return nil, fmt.Errorf("%s: %w", setting, err)
	}
	return f, nil
}

// Get reads the file.
func (f *File[T]) Get() T {
	f.mu.Lock()
	defer f.mu.Unlock()
	content, err := f.load()
	if err != nil {
		f.log.Warn("cannot read the credentials again, using the last ones", "setting", f.setting, "err", err)
		return f.last
	}
	f.last = content
	return content
}

// Last gives what [File.Get] gave last, without a look at the file.
func (f *File[T]) Last() T {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// Secret reads a password or a token. An editor's last line break is not part of it.
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

// Roots reads certificates of authorities.
func Roots(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate in PEM", path)
	}
	return roots, nil
}

// Pair reads a certificate and its key.
func Pair(cert, key string) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", cert, key, err)
	}
	return &pair, nil
}

// A Watcher tells whether files have changed. It may be used by several goroutines at
// once.
type Watcher struct {
	paths []string

	mu   sync.Mutex
	seen [sha256.Size]byte
}

// NewWatcher makes a watcher of the files that are there now. Paths that are "" do not
// count.
func NewWatcher(paths ...string) *Watcher {
	w := &Watcher{}
	for _, path := range paths {
		if path != "" {
			w.paths = append(w.paths, path)
		}
	}
	w.seen = w.fingerprint()
	return w
}

// Changed tells whether a file has changed since it was last asked.
func (w *Watcher) Changed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.seen
	w.seen = w.fingerprint()
	return w.seen != before
}

// fingerprint is that of the content of all files; one that cannot be read counts as empty.
func (w *Watcher) fingerprint() [sha256.Size]byte {
	h := sha256.New()
	for _, path := range w.paths {
		content, _ := os.ReadFile(path) // see above
		fmt.Fprintf(h, "%d:%s", len(content), content)
		clear(content)
	}
	return [sha256.Size]byte(h.Sum(nil))
}
