package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/credential"
	"github.com/kuberelay/kuberelay/internal/operations"
	"github.com/kuberelay/kuberelay/internal/relay"
	"github.com/kuberelay/kuberelay/internal/status"
)

// statusOf returns the status document of a relay, with its verdict.
func statusOf(f *relay.Relay) status.Document { return judged(f.Status()) }

// judged adds the version of this process and the verdict to a status document.
func judged(d status.Document) status.Document {
	d.Version, _ = builtFrom()
	return status.Judge(d)
}

const (
	statusInterval = time.Second // interval between two requests of --wait
	maxAnswerBytes = 64 << 20
	maxReasonBytes = 1 << 10 // limit for the text of a refusal
)

func newStatusCommand() *cobra.Command {
	var output string
	var wait time.Duration
	var at statusAddress
	var cluster string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show whether the copy is right, how old it is, and if not, why",
		Long: `Status asks a running forwarder and prints the verdict first: what is wrong, how to fix
it, and where the documentation explains it. Then it prints a line for each resource:
its state, the objects in the cache, the objects that are not published yet (dirty), the
age of the cluster's state that the bus has in full, the last publish, and the last
error. At the end are the bus, the lease and the memory. For a forwarder of several
clusters, it prints a line for each; --cluster shows one of them.

Without --address it asks the forwarder of this environment: KUBERELAY_LISTEN_ADDR on
this machine, or in this pod. The document is also at /api/v1/status.

Exit codes: 0 ok, 1 warning, 2 critical, or the forwarder does not answer, or wrong
command line. With --output=nagios, 3 if the forwarder refuses to answer.`,
		Example: `  forwarder status
  forwarder status --wait=2m
  forwarder status --address=kuberelay.kuberelay.svc:8080 --output=json | jq .verdict`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			write, ok := status.Printers()[output]
			switch {
			case !ok:
				return &usageError{fmt.Errorf("--output=%q: use table, json, nagios or prometheus", output)}
			case wait < 0:
				return &usageError{fmt.Errorf("--wait=%s: use a time above 0", wait)}
			case at.timeout <= 0:
				return &usageError{errTimeout}
			}
			return configured(config.Subscribing, func(ctx context.Context, cfg config.Config, _ *slog.Logger) error {
				c, err := at.connect(cfg.Operations, at.timeout)
				if err != nil {
					return &usageError{err}
				}
				c.cluster = cluster
				ask := c.document
				d, refused := await(ctx, ask, wait)
				unknown := refused && output == "nagios"
				if unknown {
					d.Verdict.Level = status.Unknown
				}
				if err := write(cmd.OutOrStdout(), d); err != nil {
					return err
				}
				switch code := d.Verdict.Level.Code(); {
				case unknown:
					return exitCode(3)
				case code > 0:
					return exitCode(code)
				}
				return nil
			})(cmd, args)
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().StringVar(&at.address, "address", "", addressUsage)
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table, json, nagios or prometheus")
	clusterFlag(cmd, &cluster)
	cmd.Flags().DurationVar(&wait, "wait", 0, "wait until the verdict is ok, at most this long")
	cmd.Flags().Lookup("wait").NoOptDefVal = "5m"
	at.flags(cmd)
	at.timeoutFlag(cmd)
	return cmd
}

// unanswered returns the document that shows the error of a request.
func unanswered(err error) status.Document {
	if errors.Is(err, errNotReviewed) {
		return status.NotReviewed(err, time.Now())
	}
	return status.Unanswered(err, time.Now())
}

// await requests the status until the verdict is ok, the wait is over, or ctx ends. refused means that
// the last response was not a status document.
func await(ctx context.Context, ask func(context.Context) (status.Document, error), wait time.Duration) (d status.Document, refused bool) {
	over := time.NewTimer(wait)
	defer over.Stop()
	ticker := time.NewTicker(statusInterval)
	defer ticker.Stop()
	for {
		d, err := ask(ctx)
		var refusal *refusalError
		refused = errors.As(err, &refusal)
		if err != nil {
			d = unanswered(err)
		}
		if d.Verdict.Level == status.OK {
			return d, false
		}
		select {
		case <-ctx.Done():
			return d, refused
		case <-over.C:
			return d, refused
		case <-ticker.C:
		}
	}
}

const addressUsage = "host:port or URL of the forwarder (default KUBERELAY_LISTEN_ADDR on this machine)"

// statusAddress says how to reach a forwarder.
type statusAddress struct {
	address, tokenFile, caFile string
	timeout                    time.Duration // limit for one response
}

// flags adds the flags --token-file and --ca-file.
func (a *statusAddress) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.tokenFile, "token-file", "", "file with the bearer token, for a forwarder with KUBERELAY_METRICS_AUTH; the address is then https")
	cmd.Flags().StringVar(&a.caFile, "ca-file", "", "file with the authorities that verify the forwarder's certificate, in PEM; the address is then https")
}

// timeoutFlag adds the flag --timeout.
func (a *statusAddress) timeoutFlag(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&a.timeout, "timeout", defaultTimeout, "how long to wait for an answer")
}

// connect returns a client of the forwarder. Each request of the client takes no longer than the
// timeout. connect sends no request.
func (a statusAddress) connect(o config.Operations, timeout time.Duration) (c forwarderClient, err error) {
	at, err := a.url(o)
	if err != nil {
		return c, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if ip := net.ParseIP(at.Hostname()); a.caFile != "" {
		if transport.TLSClientConfig.RootCAs, err = credential.Roots(a.caFile); err != nil {
			return c, fmt.Errorf("--ca-file: %w", err)
		}
	} else if at.Hostname() == "localhost" || ip.IsLoopback() {
		// The certificate can be self-signed, or have the name of a Service. The command trusts a
		// server on this machine, in this pod, or behind a port-forward.
		transport.TLSClientConfig.InsecureSkipVerify = true
	}
	return forwarderClient{client: &http.Client{Transport: transport, Timeout: timeout}, at: at, tokenFile: a.tokenFile}, nil
}

// url returns the URL of the status document.
func (a statusAddress) url(o config.Operations) (*url.URL, error) {
	address, secure := a.address, a.tokenFile != "" || a.caFile != ""
	if address == "" {
		host, port, err := net.SplitHostPort(o.ListenAddr)
		if err != nil {
			return nil, fmt.Errorf("KUBERELAY_LISTEN_ADDR=%q: %w", o.ListenAddr, err)
		}
		if ip := net.ParseIP(host); host == "" || ip.IsUnspecified() {
			host = "localhost"
		}
		address, secure = net.JoinHostPort(host, port), secure || o.CertFile != "" || o.MetricsAuth
	}
	if !strings.Contains(address, "://") {
		address = map[bool]string{true: "https://", false: "http://"}[secure] + address
	}
	at, err := url.Parse(address)
	switch {
	case err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https":
		return nil, fmt.Errorf("--address=%q: use host:port, or a URL that begins with http:// or https://", a.address)
	case at.User != nil: // the error must not show the address
		return nil, errors.New("--address: it contains credentials; use --token-file")
	case a.tokenFile != "" && at.Scheme == "http":
		return nil, errors.New("--token-file: a token must not cross the network unencrypted; use an address that begins with https://")
	}
	at.Path = operations.StatusPath
	return at, nil
}

// errNoToken is the beginning of an error. The path that the token must be allowed to get follows it.
var errNoToken = errors.New("pass --token-file with a token that may get")

// errNotReviewed means that the forwarder responded, but could not have the token reviewed.
var errNotReviewed = errors.New(operations.NotReviewed)

// refusalError means that the request got no usable content, although the forwarder may be running.
type refusalError struct{ err error }

func (e *refusalError) Error() string { return e.err.Error() }
func (e *refusalError) Unwrap() error { return e.err }

// forwarderClient sends requests to one forwarder.
type forwarderClient struct {
	client    *http.Client
	at        *url.URL
	tokenFile string
	cluster   string // name of one of several clusters, or "" for all
}

// document requests the status document.
func (c forwarderClient) document(ctx context.Context) (d status.Document, err error) {
	query := url.Values{}
	if c.cluster != "" {
		query.Set("cluster", c.cluster)
	}
	if err = c.read(ctx, operations.StatusPath, query, &d); err == nil && d.Verdict.Level == "" {
		err = &refusalError{fmt.Errorf("%s: the answer has no verdict; is it a forwarder of this release?", c.at)}
	}
	if err == nil && c.cluster != "" && d.Cluster != c.cluster {
		err = &refusalError{fmt.Errorf("%s: it forwards the cluster %q, and --cluster is %q; leave --cluster out, or name another forwarder with --address", c.at, d.Cluster, c.cluster)}
	}
	return d, err
}

// read requests a JSON document and decodes it.
func (c forwarderClient) read(ctx context.Context, path string, query url.Values, into any) error {
	body, err := c.get(ctx, path, query, "/metrics")
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return &refusalError{fmt.Errorf("%s: %w; is it a forwarder of this release?", c.at, err)}
	}
	return nil
}

// get returns the content of a path. right is the path that the token must be allowed to get.
func (c forwarderClient) get(ctx context.Context, path string, query url.Values, right string) ([]byte, error) {
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
	response, err := c.client.Do(request)
	if err != nil {
		return nil, inTime(ctx, err, c.client.Timeout)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes+1))
	switch reason := strings.TrimSpace(string(body[:min(len(body), maxReasonBytes)])); {
	case response.StatusCode == http.StatusForbidden && strings.Contains(reason, "KUBERELAY_METRICS_AUTH"):
		return nil, &refusalError{fmt.Errorf("%s: %s; %s", &at, response.Status, reason)}
	case response.StatusCode == http.StatusUnauthorized || response.StatusCode == http.StatusForbidden:
		return nil, &refusalError{fmt.Errorf("%s: %s; %w %s", &at, response.Status, errNoToken, right)}
	case response.StatusCode == http.StatusServiceUnavailable && strings.HasPrefix(reason, operations.NotReviewed):
		return nil, &refusalError{fmt.Errorf("%s: %s; %w%s", &at, response.Status, errNotReviewed, strings.TrimPrefix(reason, operations.NotReviewed))}
	case response.StatusCode == http.StatusBadRequest && reason != "":
		return nil, &refusalError{fmt.Errorf("%s: %s", &at, reason)}
	case response.StatusCode != http.StatusOK:
		return nil, &refusalError{fmt.Errorf("%s: %s; is it a forwarder of this release?", &at, response.Status)}
	case err != nil:
		return nil, fmt.Errorf("%s: %w", &at, err)
	case len(body) > maxAnswerBytes:
		return nil, &refusalError{fmt.Errorf("%s: the answer has more than %d MiB", &at, maxAnswerBytes>>20)}
	}
	return body, nil
}
