package source

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/kuberelay/kuberelay/internal/config"
)

// TestUnchangedFilesAreNotParsed verifies that a source parses files only after a change, and again
// after some time if a kubeconfig cannot be used. An earlier version parsed all of them every 2 s: with
// 1,000 kubeconfigs, that took more than the CPU time of one core.
func TestUnchangedFilesAreNotParsed(t *testing.T) {
	for name, settings := range map[string]func(dir string) config.Fleet{
		"directory": func(dir string) config.Fleet { return config.Fleet{Dir: dir} },
		"contexts": func(dir string) config.Fleet {
			t.Setenv("KUBECONFIG", filepath.Join(dir, "one.yaml"))
			return config.Fleet{Contexts: config.List{"one=c"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				var parsed atomic.Int64
				var last atomic.Value
				path := filepath.Join(dir, "one.yaml")
				write := func(user string) {
					if err := os.WriteFile(path, []byte(with(user)), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				write("token: a")
				var missing atomic.Bool // as if another file were missing that the kubeconfig names
				s, err := New(Config{Settings: settings(dir), Complete: func(*rest.Config) error {
					if parsed.Add(1); missing.Load() {
						return os.ErrNotExist
					}
					return nil
				}})
				if err != nil {
					t.Fatal(err)
				}
				ctx, end := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					s.Watch(ctx, func(all []Cluster) {
						if all[0].Err != nil {
							last.Store("error")
						} else {
							last.Store(all[0].Kube.BearerToken)
						}
					}, func(err error) {
						if err != nil {
							t.Error(err)
						}
					})
				}()
				for _, step := range []struct {
					do   func()
					wait time.Duration
					want string
				}{
					{func() {}, poll / 2, "parsed 1 times, a"},
					{func() {}, time.Hour, "parsed 1 times, a"},
					{func() { write("token: b") }, poll, "parsed 2 times, b"},
					{func() {}, time.Hour, "parsed 2 times, b"},
					{func() { missing.Store(true); write("token: c") }, poll, "parsed 3 times, error"},
					{func() { missing.Store(false) }, reread + poll, "parsed 4 times, c"},
					{func() {}, time.Hour, "parsed 4 times, c"},
				} {
					step.do()
					time.Sleep(step.wait) // on the synctest clock
					synctest.Wait()
					if got := fmt.Sprintf("parsed %d times, %s", parsed.Load(), last.Load()); got != step.want {
						t.Errorf("got %q, want %q", got, step.want)
					}
				}
				end()
				<-ended
			})
		})
	}
}

// TestAnEmptyDirectoryThatDisappears verifies that Watch reports a directory that it can't read, even if it
// had no files.
func TestAnEmptyDirectoryThatDisappears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "clusters")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		s, err := New(Config{Settings: config.Fleet{Dir: dir}})
		if err != nil {
			t.Fatal(err)
		}
		var failing atomic.Bool
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.Watch(ctx, func([]Cluster) {}, func(err error) { failing.Store(err != nil) })
		}()
		synctest.Wait()
		if failing.Load() {
			t.Error("an empty directory is an error")
		}
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		time.Sleep(poll) // on the synctest clock
		synctest.Wait()
		if !failing.Load() {
			t.Error("no error after the directory disappeared")
		}
		end()
		<-ended
	})
}

// TestContextsShareAUser verifies that contexts of one kubeconfig do not share what client-go changes.
func TestContextsShareAUser(t *testing.T) {
	content := strings.NewReplacer("name: c, context: {cluster: c,", "name: d, context: {cluster: d, user: u}}, {name: c, context: {cluster: c,",
		"clusters: [", `clusters: [{name: d, cluster: {server: "https://127.0.0.1:2"}}, `).Replace(
		with("exec: {command: id, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never}"))
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", path)
	s, err := New(Config{Settings: config.Fleet{Contexts: config.List{"*"}}, Complete: complete})
	if err != nil {
		t.Fatal(err)
	}
	all, err := s.Read(t.Context())
	if err != nil || len(all) != 2 || all[0].Err != nil || all[1].Err != nil {
		t.Fatalf("got %+v, %v", all, err)
	}
	if all[0].Kube.Host == all[1].Kube.Host || all[0].Kube.ExecProvider == all[1].Kube.ExecProvider || all[0].Digest == all[1].Digest {
		t.Errorf("got %+v", all)
	}
}

// TestTheStatusOfAClusterChanges verifies that a change of a Cluster object or of its Secret counts
// only if the kubeconfig has changed. An earlier version parsed all kubeconfigs after each change.
func TestTheStatusOfAClusterChanges(t *testing.T) {
	w := watch{changed: make(chan struct{}, 1)}
	object := func(kubeconfig string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{}}
		if kubeconfig != "" {
			o.Object["data"] = map[string]any{kubeconfigKey: kubeconfig}
		}
		return o
	}
	for _, c := range []struct {
		before, after string
		want          int
	}{{"", "", 0}, {"a", "a", 0}, {"a", "b", 1}, {"", "a", 1}, {"a", "", 1}} {
		if w.updated(object(c.before), object(c.after)); len(w.changed) != c.want {
			t.Errorf("%q to %q: %d changes, want %d", c.before, c.after, len(w.changed), c.want)
		}
		if c.want > 0 {
			<-w.changed
		}
	}
}
