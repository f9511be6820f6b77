package natsserver

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
)

// TestTokenOfAnotherUser verifies that a server keeps the token on a volume whose files belong to
// another user, because the user of the pod changed. Its group can write to them. An earlier version
// changed the mode of the file, which only the owner can do, and didn't start.
//
// Without root, the test can't use another user, and verifies only that the token is kept.
func TestTokenOfAnotherUser(t *testing.T) {
	dir := t.TempDir()
	path := TokenFile(dir)
	if err := os.WriteFile(path, []byte("kept\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, mode := range map[string]os.FileMode{filepath.Dir(dir): 0o755, dir: 0o777, path: 0o666} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
	}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // without an unlock, so that the thread ends with the goroutine
		if os.Getuid() == 0 {
			if err := syscall.Setfsuid(65532); err != nil {
				made <- err
				return
			}
		}
		made <- makeToken(path)
	}()
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	if content, err := os.ReadFile(path); err != nil || string(content) != "kept\n" {
		t.Errorf("the token is %q (%v)", content, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the token has mode %v (%v), want 0600", info.Mode(), err)
	}
}
