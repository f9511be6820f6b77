// Package client asks a running forwarder for the documents that package operations serves.
//
// An [Address] has the values of a command's flags. If the flags name no forwarder, the client asks the
// one that listens at KUBERELAY_LISTEN_ADDR on this machine. Errors name the flag or the variable to
// correct. The client sends a token only over TLS, and follows no redirect. It never repeats a request
// on its own, except in [Client.Await].
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/kuberelay/kuberelay/internal/credential"
	"github.com/kuberelay/kuberelay/internal/deadline"
	"github.com/kuberelay/kuberelay/internal/operations"
	"github.com/kuberelay/kuberelay/internal/status"
)

const (
	statusInterval = time.Second // interval between two requests of Await
	maxAnswerBytes = 64 << 20
	maxReasonBytes = 1 << 10 // limit for the text of a refusal
)

// ErrNoToken means that the request had no token, or that its token is invalid or may not get the
// path. The text of an error that wraps ErrNoToken continues with the path.
var ErrNoToken = errors.New("set --token-file to a file with a token that is allowed to get")

// ErrNotReviewed means that the forwarder responded, but could not review the token.
var ErrNotReviewed = errors.New(operations.NotReviewed)

// refusalError means that nothing suggests that the forwarder is down: the request failed because of, for
// example, a wrong token or an unexpected response. Every other error means that the forwarder might be
// down.
type refusalError struct{ err error }

func (e *refusalError) Error() string { return e.err.Error() }
func (e *refusalError) Unwrap() error { return e.err }

// Client sends requests to one forwarder.
type Client struct {
	at        *url.URL // URL of the status document
	http      *http.Client
	tokenFile string
}

// URL returns the scheme and the host of the forwarder.
func (c *Client) URL() url.URL { return url.URL{Scheme: c.at.Scheme, Host: c.at.Host} }

// Status requests the status document. cluster is the name of one of several clusters, or "" for all.
func (c *Client) Status(ctx context.Context, cluster string) (d status.Document, err error) {
	query := url.Values{}
	if cluster != "" {
		query.Set("cluster", cluster)
	}
	if err = c.Read(ctx, operations.StatusPath, query, &d); err == nil && d.Verdict.Level == "" {
		err = &refusalError{fmt.Errorf("%s: the response has no verdict; is it a forwarder of this release?", c.at)}
	}
	if err == nil && cluster != "" && d.Cluster != cluster {
		err = &refusalError{fmt.Errorf("%s: it forwards the cluster %q, and --cluster is %q; leave --cluster out, or name another forwarder with --address", c.at, d.Cluster, cluster)}
	}
	return d, err
}

// Await requests the status until the verdict is ok, the wait is over, or ctx ends. If the last request
// fails, Await returns a document that shows the error. refused means that this error is a
// [refusalError].
func (c *Client) Await(ctx context.Context, cluster string, wait time.Duration) (d status.Document, refused bool) {
	over := time.After(wait)
	ticker := time.NewTicker(statusInterval)
	defer ticker.Stop()
	for {
		d, err := c.Status(ctx, cluster)
		var refusal *refusalError
		refused = errors.As(err, &refusal)
		switch {
		case errors.Is(err, ErrNotReviewed):
			d = status.NotReviewed(err, time.Now())
		case err != nil:
			d = status.Unanswered(err, time.Now())
		}
		if d.Verdict.Level == status.OK {
			return d, false
		}
		select {
		case <-ctx.Done():
			return d, refused
		case <-over:
			return d, refused
		case <-ticker.C:
		}
	}
}

// Read requests a JSON document and decodes it.
func (c *Client) Read(ctx context.Context, path string, query url.Values, into any) error {
	body, err := c.Get(ctx, path, query, "/metrics")
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return &refusalError{fmt.Errorf("%s: %w; is it a forwarder of this release?", c.at, err)}
	}
	return nil
}

// Get returns the content of a path. right is the path that the token must be allowed to get.
func (c *Client) Get(ctx context.Context, path string, query url.Values, right string) ([]byte, error) {
	at := *c.at
	at.Path, at.RawQuery = path, query.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	if c.tokenFile != "" {
		token, err := credential.Secret(c.tokenFile)
		if err != nil {
			return nil, &refusalError{fmt.Errorf("--token-file: %w", err)}
		}
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, deadline.Explain(ctx, err, c.http.Timeout)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes+1))
	switch reason := strings.TrimSpace(string(body[:min(len(body), maxReasonBytes)])); {
	case response.StatusCode == http.StatusForbidden && strings.Contains(reason, "KUBERELAY_METRICS_AUTH"):
		return nil, &refusalError{fmt.Errorf("%s: %s; %s", &at, response.Status, reason)}
	case response.StatusCode == http.StatusUnauthorized || response.StatusCode == http.StatusForbidden:
		return nil, &refusalError{fmt.Errorf("%s: %s; %w %s", &at, response.Status, ErrNoToken, right)}
	case response.StatusCode == http.StatusServiceUnavailable && strings.HasPrefix(reason, operations.NotReviewed):
		return nil, &refusalError{fmt.Errorf("%s: %s; %w%s", &at, response.Status, ErrNotReviewed, strings.TrimPrefix(reason, operations.NotReviewed))}
	case response.StatusCode == http.StatusBadRequest && reason != "":
		return nil, &refusalError{fmt.Errorf("%s: %s", &at, reason)}
	case response.StatusCode != http.StatusOK:
		return nil, &refusalError{fmt.Errorf("%s: %s; is it a forwarder of this release?", &at, response.Status)}
	case err != nil:
		return nil, fmt.Errorf("%s: %w", &at, err)
	case len(body) > maxAnswerBytes:
		return nil, &refusalError{fmt.Errorf("%s: the response has more than %d MiB", &at, maxAnswerBytes>>20)}
	}
	return body, nil
}
