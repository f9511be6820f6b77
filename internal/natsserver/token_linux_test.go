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
// changed the mode of the file, which only the owner can do, and didn't start. The server also keeps its
// own token if the mode of the file doesn't allow it to read the token.
//
// Without root, the test can't use another user, and verifies only that the token is kept.
func TestTokenOfAnotherUser(t *testing.T) {
	const user = 65532
	for name, c := range map[string]struct {
		owned bool // by the user
		mode  os.FileMode
	}{
		"of another user":        {false, 0o666},
		"unreadable for its own": {true, 0o200},
	} {
		t.Run(name, func(t *testing.T) {
			root, dir := os.Getuid() == 0, t.TempDir()
			path := TokenFile(dir)
			if err := os.WriteFile(path, []byte("kept\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if root && c.owned {
				if err := os.Chown(path, user, user); err != nil {
					t.Fatal(err)
				}
			}
			for file, mode := range map[string]os.FileMode{filepath.Dir(dir): 0o755, dir: 0o777, path: c.mode} {
				if err := os.Chmod(file, mode); err != nil {
					t.Fatal(err)
				}
			}
			made := make(chan error)
			go func() {
				runtime.LockOSThread() // without an unlock, so that the thread ends with the goroutine
				if root {
					if err := syscall.Setfsuid(user); err != nil {
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
		})
	}
}
