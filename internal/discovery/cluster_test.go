package discovery

import (
	"os"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"k8s.io/client-go/discovery"

	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
)

var cluster = controlplanetest.Shared{Options: controlplane.Options{Users: map[string][]string{"reader": {"readers"}}}}

func TestMain(m *testing.M) { os.Exit(cluster.Run(m)) }

// patience limits every wait.
const patience = 3 * time.Minute

func newClient(t *testing.T, config *rest.Config) discovery.DiscoveryInterface {
	t.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func poll(t *testing.T, what string, condition func() error) {
	t.Helper()
	deadline, ticker := time.NewTimer(patience), time.NewTicker(20*time.Millisecond)
	defer deadline.Stop()
	defer ticker.Stop()
	for {
		err := condition()
		if err == nil {
			return
		}
		select {
		case <-ticker.C:
		case <-deadline.C:
			t.Fatalf("%s: %v", what, err)
		}
	}
}
