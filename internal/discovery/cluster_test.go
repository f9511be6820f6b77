package discovery

import (
	"os"
	"testing"

	"k8s.io/client-go/rest"

	"k8s.io/client-go/discovery"

	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
)

var cluster = controlplanetest.Shared{Options: controlplane.Options{Users: map[string][]string{"reader": {"readers"}}}}

func TestMain(m *testing.M) { os.Exit(cluster.Run(m)) }

func newClient(t *testing.T, config *rest.Config) discovery.DiscoveryInterface {
	t.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
