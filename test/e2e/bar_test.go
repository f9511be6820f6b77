package e2e

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/creack/pty"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// screen records the output that a terminal receives.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// holding returns a kubeconfig for a proxy to the API server. The proxy holds back requests for a
// path until held is closed.
func holding(t *testing.T, cp *controlplane.ControlPlane, path string, held <-chan struct{}) string {
	t.Helper()
	transport, err := rest.TransportFor(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	host, err := url.Parse(cp.Config().Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(host)
	proxy.Transport = transport
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, path) {
			<-held
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	config, err := clientcmd.LoadFromFile(cp.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range config.Clusters {
		c.Server, c.CertificateAuthority = server.URL, ""
		c.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestVerifyShowsItsProgress_Slow verifies the progress bar of verify. On a terminal, verify shows a bar
// while a list request hangs, and removes the bar at the end. In a pipe, verify writes no control
// characters.
func TestVerifyShowsItsProgress_Slow(t *testing.T) {
	bus := natsServer(t)
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := quietNamespace(t, u)
	f := newForwarder(t, cp.Kubeconfig(), bus.URL, map[string]string{"RESOURCES": "configmaps", "NAMESPACES": namespace})
	const objects = 300
	for n := range objects {
		u.create(configMaps, namespace, configMap(fmt.Sprintf("c%d", n), "1"))
	}
	f.start().idle()

	held := make(chan struct{})
	release := sync.OnceFunc(func() { close(held) })
	defer release()
	reader := newForwarder(t, holding(t, cp, "/configmaps", held), bus.URL, map[string]string{"RESOURCES": "configmaps", "NAMESPACES": namespace, "LOG_LEVEL": "warn"})
	var piped bytes.Buffer // output of the command that waits in a pipe
	behind := reader.Command(t.Context(), "verify", settle)
	behind.Stdout, behind.Stderr = &piped, &piped
	if err := behind.Start(); err != nil {
		t.Fatal(err)
	}
	terminal, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	var shown screen
	var reading sync.WaitGroup
	reading.Go(func() { _, _ = io.Copy(&shown, terminal) }) // until the command ends
	var report bytes.Buffer
	cmd := reader.Command(t.Context(), "verify", settle)
	cmd.Stdout, cmd.Stderr = &report, tty
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	tty.Close()
	poll.Try(t, "the terminal shows a bar", func(context.Context) error {
		if !strings.Contains(shown.String(), "comparing with the cluster [....................] 0%, 0 of 1 resources") {
			return errors.New(shown.String())
		}
		return nil
	})
	release()
	if err := cmd.Wait(); err != nil {
		t.Errorf("verify: %v\n%s%s", err, &report, shown.String())
	}
	reading.Wait()
	if text := shown.String(); !strings.HasSuffix(text, "\r\x1b[K") {
		t.Errorf("something of the bar is left: %q", text[max(0, len(text)-200):])
	}
	if strings.ContainsAny(report.String(), "\r\x1b") {
		t.Errorf("the report has control characters:\n%q", report.String())
	}
	if err := behind.Wait(); err != nil || strings.ContainsAny(piped.String(), "\r\x1b") {
		t.Errorf("piped, it ended with %v and wrote %q", err, piped.String())
	}
}
