package client

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/credential"
	"github.com/kuberelay/kuberelay/internal/operations"
)

// Address says how to reach a forwarder.
type Address struct {
	Forwarder string        // host:port or URL; "" for the listen address in the settings, on this machine
	TokenFile string        // file with the bearer token, or ""
	CAFile    string        // PEM file with the CA certificates that verify the server's certificate, or ""
	Timeout   time.Duration // limit for one response
}

// Connect returns a client of the forwarder. Each request of the client takes no longer than the
// timeout. Connect sends no request.
func (a Address) Connect(o config.Operations) (*Client, error) {
	at, err := a.url(o)
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if ip := net.ParseIP(at.Hostname()); a.CAFile != "" {
		if transport.TLSClientConfig.RootCAs, err = credential.Roots(a.CAFile); err != nil {
			return nil, fmt.Errorf("--ca-file: %w", err)
		}
	} else if at.Hostname() == "localhost" || ip.IsLoopback() {
		// The certificate can be self-signed, or have the name of a Service. The command trusts a
		// server on this machine, in this pod, or behind a port-forward.
		transport.TLSClientConfig.InsecureSkipVerify = true
	}
	client := &http.Client{Transport: transport, Timeout: a.Timeout, CheckRedirect: refuseRedirect}
	return &Client{at: at, http: client, tokenFile: a.TokenFile}, nil
}

// refuseRedirect follows no redirect, because net/http would send the token even to an unencrypted address
// of the same host.
func refuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// url returns the URL of the status document.
func (a Address) url(o config.Operations) (*url.URL, error) {
	address, secure := a.Forwarder, a.TokenFile != "" || a.CAFile != ""
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
	case strings.Contains(address, "@"): // the error must not show the address
		return nil, errors.New("--address contains credentials; use --token-file")
	case err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https":
		return nil, fmt.Errorf("--address=%q: use host:port, or a URL that begins with http:// or https://", a.Forwarder)
	case a.TokenFile != "" && at.Scheme == "http":
		return nil, errors.New("--token-file: a token must not cross the network unencrypted; use an address that begins with https://")
	}
	at.Path = operations.StatusPath
	return at, nil
}
