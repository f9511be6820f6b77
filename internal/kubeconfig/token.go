package kubeconfig

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/kuberelay/kuberelay/internal/credential"
)

// FollowToken makes every request use the current token in the file. By itself, client-go reads the file again
// only at the first request after 50 s. That request can be the next poll of discovery, so the token
// could be a minute and a half old.
func FollowToken(kube *rest.Config, log *slog.Logger) error {
	if kube.BearerTokenFile == "" {
		return nil
	}
	path := kube.BearerTokenFile
	token, err := credential.NewFile("the service account's token", log, func() (string, error) { return credential.Secret(path) })
	if err != nil {
		return fmt.Errorf("find the cluster: %w", err)
	}
	kube.BearerToken, kube.BearerTokenFile = "", ""
	kube.Wrap(func(rt http.RoundTripper) http.RoundTripper { return bearer{token, rt} })
	return nil
}

// bearer adds the token to requests.
type bearer struct {
	token *credential.File[string]
	inner http.RoundTripper
}

// RoundTrip sends a request with the token.
func (b bearer) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(b.token.Get()))
	return b.inner.RoundTrip(request)
}
