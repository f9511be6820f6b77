package controlplanetest

import (
	"fmt"
	"maps"
	"net/http"
	"sync"

	"k8s.io/client-go/rest"
)

// Requests counts the requests to an API server. Call Through before the first request.
type Requests struct {
	mu      sync.Mutex
	answers map[string]int // by path and status
}

// Through makes q count the requests of clients with this configuration. It resets the counters,
// modifies config and returns it.
func (q *Requests) Through(config *rest.Config) *rest.Config {
	q.answers = map[string]int{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return RoundTripper(func(r *http.Request) (*http.Response, error) {
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

// Count returns the number of responses for a path with a status. The status is an HTTP status code, or
// "error" for a request that failed without a response.
func (q *Requests) Count(path, status string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.answers[path+" "+status]
}

// All returns the number of responses by path and status, separated by a space.
func (q *Requests) All() map[string]int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return maps.Clone(q.answers)
}

// RoundTripper is a function that implements [http.RoundTripper].
type RoundTripper func(*http.Request) (*http.Response, error)

// RoundTrip calls f.
func (f RoundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
