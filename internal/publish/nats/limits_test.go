package nats

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/nats/stream"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
	"github.com/kuberelay/kuberelay/test/lab/tlstest"
)

// account returns the server configuration of an account with limits.
func account(limits string) string {
	return `accounts: {A: {jetstream: {` + limits + `}, users: [{user: "a", password: "` + secret + `"}]}}`
}

// TestAccountLimits verifies that the error names the limit and the fix if an account doesn't allow
// the stream.
func TestAccountLimits(t *testing.T) {
	for name, c := range map[string]struct {
		limits string
		want   []string
	}{
		"streams":   {"max_streams: 1, max_file: 10M", []string{"max_streams", "KUBERELAY_NATS_STREAM"}},
		"max bytes": {"max_bytes_required: true, max_file: 10M", []string{"max_bytes_required", "nats stream add"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := natstest.StartProcess(t, account(c.limits))
			if name == "streams" {
				addStream(t, s.URL)
			}
			err := connectError(t, Options{Connection: Connection{URLs: []string{s.URL}, Cluster: publishtest.Cluster, User: "a", PasswordFile: file(t, secret)}})
			if !errors.Is(err, ErrMisconfigured) {
				t.Fatalf("error is %v, want ErrMisconfigured", err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error does not say %q: %v", want, err)
				}
			}
		})
	}
}

// addStream adds another program's stream to the account.
func addStream(t *testing.T, url string) {
	t.Helper()
	nc, err := natsgo.Connect(url, natsgo.UserInfo("a", secret), natsgo.Timeout(limit))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(limit))
	if err == nil {
		_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"other"}, MaxBytes: 1000})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestAccountStorage verifies that the error names the limit if an account without free storage
// rejects an event.
func TestAccountStorage(t *testing.T) {
	s := natstest.StartProcess(t, account("max_file: 20K"))
	b := connect(t, Options{Connection: Connection{URLs: []string{s.URL}, Cluster: publishtest.Cluster, User: "a", PasswordFile: file(t, secret)}})
	var err error
	for n := 1; err == nil && n < 100; n++ {
		_, err = publishNow(t, b, publishtest.Object{Name: fmt.Sprintf("web-%d", n), Version: n, Data: strings.Repeat("x", 5_000)}.Message(t, 0))
	}
	if publish.ResultOf(err) != stream.ResultFull || !strings.Contains(err.Error(), "max_file") {
		t.Errorf("the error is %v", err)
	}
}

// TestServerName verifies that KUBERELAY_NATS_TLS_SERVER_NAME allows a server certificate with a
// name other than the host.
func TestServerName(t *testing.T) {
	ca := tlstest.NewCA(t)
	certificate, _, _ := ca.IssueFor("nats.example.com")
	s := natstest.Start(t, func(o *server.Options) { o.TLS, o.TLSConfig, o.TLSTimeout = true, ca.Config(certificate), 10 })
	o := Options{Connection: Connection{URLs: []string{s.URL}, Cluster: publishtest.Cluster, CAFile: ca.File}}
	for _, name := range []string{"", "other.example.com"} {
		o.ServerName = name
		if err := connectError(t, o); !errors.Is(err, ErrMisconfigured) || !strings.Contains(err.Error(), "KUBERELAY_NATS_TLS_SERVER_NAME") {
			t.Errorf("with the name %q: %v", name, err)
		}
	}
	o.ServerName = "nats.example.com"
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if err := connect(t, o).Wait(ctx); err != nil {
		t.Error(err)
	}
	o.CAFile = ""
	if err := connectError(t, o); !errors.Is(err, ErrMisconfigured) || !strings.Contains(err.Error(), "KUBERELAY_NATS_TLS_CA_FILE") {
		t.Errorf("without the authority: %v", err)
	}
}
