package broker

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kuberelay/kuberelay/test/lab/tlstest"
)

// pair holds the paths of a certificate and its key. The tests replace the contents of these files.
type pair struct{ cert, key string }

func newPair(t testing.TB) pair {
	dir := t.TempDir()
	return pair{filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")}
}

// write replaces the pair's contents with a new certificate and its key.
func (p pair) write(t testing.TB, ca *tlstest.CA, name string) {
	t.Helper()
	_, cert, key := ca.Issue(name)
	replaceFile(t, p.cert, cert)
	replaceFile(t, p.key, key)
}

// replaceFile replaces the content of a file with that of another file.
func replaceFile(t testing.TB, path, by string) {
	t.Helper()
	content, err := os.ReadFile(by)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
