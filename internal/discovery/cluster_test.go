package discovery

import (
	"fmt"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"k8s.io/client-go/discovery"

	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
)

var cluster = controlplanetest.Shared{Options: controlplane.Options{Users: map[string][]string{"reader": {"readers"}}}}

func TestMain(m *testing.M) { os.Exit(cluster.Run(m)) }

// patience bounds every wait.
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

// requests counts the requests to the API server.
type requests struct {
	mu      sync.Mutex
	answers map[string]int // by path and status
}

func (q *requests) through(config *rest.Config) *rest.Config {
	q.answers = map[string]int{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			status := "error"
			if err == nil {
				status = fmt.Sprint(response.StatusCode)
			}
			q.mu.Lock()
			defer q.mu.Unlock()
			q.answers[r.URL.Path+" "+status]++
			return response, err
		})
	})
	return config
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// count returns the number of answers of a path with a status.
func (q *requests) count(path, status string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.answers[path+" "+status]
}
