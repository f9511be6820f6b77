package controlplanetest

import (
	"fmt"
	"maps"
	"net/http"
	"sync"

	"k8s.io/client-go/rest"
)

// Requests counts the requests to the API server. Its zero value is ready.
type Requests struct {
	mu      sync.Mutex
	answers map[string]int // by path and status
}

// Through returns a copy of a client configuration whose requests are counted.
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

// Count returns the number of answers of a path with a status.
func (q *Requests) Count(path, status string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.answers[path+" "+status]
}

// All returns the number of answers by path and status.
func (q *Requests) All() map[string]int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return maps.Clone(q.answers)
}

// RoundTripper is a function as an [http.RoundTripper].
type RoundTripper func(*http.Request) (*http.Response, error)

// RoundTrip calls f.
func (f RoundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
