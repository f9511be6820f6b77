package natsserver

import (
	"log/slog"
	"os"
	"testing"
)

// TestTheTokenIsMadeAgain verifies that the server starts, and makes a token, if a crash has left
// the file of the token empty.
func TestTheTokenIsMadeAgain(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(TokenFile(dir), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	made := func() string {
		t.Helper()
		if _, err := (Access{}).authenticator(dir, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		token, err := os.ReadFile(TokenFile(dir))
		if err != nil {
			t.Fatal(err)
		}
		return string(token)
	}
	if token := made(); len(token) < 20 || made() != token {
		t.Errorf("got the token %q, want one that stays", token)
	}
}
