package history

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kubediscovery "k8s.io/client-go/discovery"
)

// Server asks an API server for its version. After an upgrade, an API server might serve unchanged
// objects in a different form. Make a Server with [NewServer].
type Server struct {
	discovery kubediscovery.DiscoveryInterface

	mu      sync.Mutex
	asked   time.Time // the time immediately before the last request
	version string
}

// NewServer returns the API server behind a client.
func NewServer(d kubediscovery.DiscoveryInterface) *Server { return &Server{discovery: d} }

// versionSince returns the version of the API server, or "" if the API server does not reveal it.
// It reuses the response to a request at since or later, so that many informers cause only one
// request.
func (s *Server) versionSince(ctx context.Context, since time.Time) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.discovery == nil || s.discovery.RESTClient() == nil {
		return "", nil // a client without a server behind it
	}
	if !s.asked.Before(since) {
		return s.version, nil
	}
	asked := time.Now()
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	text, err := s.discovery.RESTClient().Get().AbsPath("/version").Do(ctx).Raw()
	switch {
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		text = nil
	case err != nil:
		return "", fmt.Errorf("get the version of the API server: %w", err)
	}
	s.asked, s.version = asked, string(text)
	return s.version, nil
}
