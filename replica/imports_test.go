package replica

import (
	"os/exec"
	"strings"
	"testing"
)

// TestImports verifies that the package imports only the clients of the buses, and no other code of the
// forwarder.
func TestImports(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	const module = "github.com/kuberelay/kuberelay"
	allowed := map[string]bool{
		"/replica": true, "/internal/credential": true, "/internal/event": true, "/internal/event/codec": true, "/internal/event/subject": true, "/internal/jsoncompare": true, "/internal/jsonscan": true,
		"/internal/redaction": true, "/internal/publish": true,
		// These import only the standard library.
		"/internal/longwork": true, "/internal/elapsed": true,
	}
	for _, p := range strings.Fields(string(out)) {
		ours, isOurs := strings.CutPrefix(p, module)
		reader := strings.HasPrefix(ours, "/internal/publish/nats/") || strings.HasPrefix(ours, "/internal/publish/kafka/")
		if isOurs && !allowed[ours] && !reader {
			t.Errorf("imports %s", p)
		}
		for _, heavy := range []string{"github.com/nats-io/nats-server", "github.com/google/cel-go", "github.com/spf13/cobra", "k8s.io/apiserver", "helm.sh/helm"} {
			if strings.HasPrefix(p, heavy) {
				t.Errorf("imports %s", p)
			}
		}
	}
}
