package kubeconfig

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/kuberelay/kuberelay/internal/config"
)

// TestKubeconfigPasswords verifies that neither the address of the API server nor an error shows a
// password from the kubeconfig.
func TestKubeconfigPasswords(t *testing.T) {
	kubeconfig := func(cluster, user string) string {
		path := filepath.Join(t.TempDir(), "config")
		text := `{"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
			"clusters": [{"name": "c", "cluster": {` + cluster + `}}], "users": [{"name": "u", "user": {` + user + `}}]}`
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, c := range map[string]struct{ path, host, username, fails string }{
		"in the server":             {path: kubeconfig(`"server": "https://me:canary@api:6443/k8s"`, ""), host: "https://api:6443/k8s", username: "me"},
		"beside a token":            {path: kubeconfig(`"server": "https://me:canary@api:6443"`, `"token": "t"`), host: "https://api:6443"},
		"in a malformed server":     {path: kubeconfig(`"server": "https://me:canary%@api"`, ""), fails: "server in the kubeconfig is not a valid URL"},
		"in a malformed proxy":      {path: kubeconfig(`"server": "https://api", "proxy-url": "http://me:canary%@proxy"`, ""), fails: "proxy-url in the kubeconfig is not a valid URL"},
		"the content in KUBECONFIG": {path: "apiVersion: v1\ntoken: canary", fails: "KUBECONFIG is not the path of a file"},
		"no password":               {path: kubeconfig(`"server": "https://api"`, ""), host: "https://api"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(clientcmd.RecommendedConfigPathEnvVar, c.path)
			kube, err := Finder{}.Load(t.Context())
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) || strings.Contains(err.Error(), "canary") {
					t.Errorf("got %v, want %s, and no password", err, c.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if kube.Host != c.host || kube.Username != c.username || (kube.Password == "canary") != (c.username != "") {
				t.Errorf("got host %s, user %q, password %t", kube.Host, kube.Username, kube.Password != "")
			}
		})
	}
}

// TestNoCluster verifies that the error tells an empty kubeconfig from one whose current context names
// no cluster.
func TestNoCluster(t *testing.T) {
	const clusters = `{"apiVersion": "v1", "kind": "Config", "clusters": [{"name": "c", "cluster": {"server": "https://api"}}], `
	for name, c := range map[string]struct{ content, want string }{
		"an empty kubeconfig":  {`{}`, "set KUBECONFIG to a kubeconfig file, or run in a pod with the token of a service account"},
		"no current context":   {clusters + `"contexts": [{"name": "c", "context": {"cluster": "c"}}]}`, "kubectl config use-context"},
		"a context of nothing": {clusters + `"contexts": [{"name": "c", "context": {"cluster": "d"}}], "current-context": "c"}`, "kubectl config use-context"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config")
			if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
			t.Setenv(clientcmd.RecommendedConfigPathEnvVar, path)
			if _, err := (Finder{}).Load(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

// TestContextOfTheSource verifies that a read of the management cluster ends with the context, so that
// a command can be interrupted and keeps its timeout.
func TestContextOfTheSource(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		interrupt() // while the server does not respond
		<-r.Context().Done()
	}))
	defer server.Close()
	path := filepath.Join(t.TempDir(), "config")
	content := `{"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c"}}],
		"clusters": [{"name": "c", "cluster": {"server": "` + server.URL + `"}}]}`
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(clientcmd.RecommendedConfigPathEnvVar, path)
	f := Finder{Logger: slog.New(slog.DiscardHandler)}
	f.Settings.Fleet.ClusterAPI, f.Settings.Event.ClusterName = config.List{"fleet"}, "fleet.prod"
	if _, err := f.Config(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that the context was canceled", err)
	}
}
