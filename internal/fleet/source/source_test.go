package source

import (
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/kuberelay/kuberelay/internal/config"
)

const kubeconfig = `apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u, namespace: here}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {USER}}]
`

func with(user string) string { return strings.Replace(kubeconfig, "USER", user, 1) }

func complete(*rest.Config) error { return nil }

// TestDirectory verifies that each file is a cluster. A cluster that can't be used has its own error,
// which does not contain the content of the file.
func TestDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "directory"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"well.yaml": with("token: hunter2"), "prod.eu1.yaml": with("token: hunter2"), "twice.yaml": with("token: a"), "twice.conf": with("token: b"),
		"broken.yaml": "hunter2", "no name.yaml": with("token: a"), ".hidden": with("token: a"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("nothing", filepath.Join(dir, "link.yaml")); err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Settings: config.Fleet{Dir: dir}, Complete: complete})
	if err != nil {
		t.Fatal(err)
	}
	all, err := s.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range all {
		state := ""
		if c.Err != nil {
			state = "!"
			if strings.Contains(c.Err.Error(), "hunter2") {
				t.Errorf("the error %q has the content", c.Err)
			}
		} else if c.Kube.Host != "https://127.0.0.1:1" || c.Namespace != "here" {
			t.Errorf("%s: got %s and %s", c.Name, c.Kube.Host, c.Namespace)
		}
		got = append(got, c.Name+state)
	}
	if want := "broken!,link!,no name!,prod.eu1,twice!,well"; strings.Join(got, ",") != want {
		t.Fatalf("got %q, want %s", got, want)
	}
	before := all[5].Digest
	if err := os.WriteFile(filepath.Join(dir, "well.yaml"), []byte(with("token: other")), 0o600); err != nil {
		t.Fatal(err)
	}
	if all, err = s.Read(t.Context()); err != nil || all[5].Digest == before {
		t.Errorf("the digest is the same with another token (%v)", err)
	}
}

// TestSecretIsIsolated verifies that a kubeconfig in a Secret can neither start a program nor read
// a file of the forwarder.
func TestSecretIsIsolated(t *testing.T) {
	s := &clusterAPI{Config: Config{Complete: complete}}
	for user, refused := range map[string]bool{
		"token: a":                          false,
		"tokenFile: /etc/hostname":          true,
		"client-certificate: /etc/hostname": true,
		"exec: {command: id, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never}": true,
	} {
		secret := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{
			kubeconfigKey: base64.StdEncoding.EncodeToString([]byte(with(user))),
		}}}
		if c := s.of("a.b", "b-kubeconfig", secret); (c.Err != nil) != refused {
			t.Errorf("%s: got the error %v", user, c.Err)
		}
	}
}

// TestSecretThatCannotBeRead verifies that a Secret that can't be read is not treated as a Secret
// that does not exist.
func TestSecretThatCannotBeRead(t *testing.T) {
	s := &clusterAPI{Config: Config{Complete: complete}}
	object := &unstructured.Unstructured{}
	object.SetNamespace("fleet")
	object.SetName("a")
	for want, err := range map[string]error{"waiting for its kubeconfig": nil, "forbidden": errors.New("forbidden")} {
		all := s.all([]*unstructured.Unstructured{object}, func(namespace, name string) (*unstructured.Unstructured, error) {
			if namespace != "fleet" || name != "a-kubeconfig" {
				t.Errorf("reads the Secret %s/%s", namespace, name)
			}
			return nil, err
		})
		if len(all) != 1 || all[0].Name != "fleet.a" || all[0].Err == nil || !strings.Contains(all[0].Err.Error(), want) {
			t.Errorf("got %+v, want %q", all, want)
		}
	}
}
