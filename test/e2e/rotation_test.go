package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kuberelay/kuberelay/test/harness"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// volume is a directory that looks like a Secret that the kubelet mounted. The files are symbolic
// links through a link to a directory. Replacing that link changes all files at once.
type volume struct {
	t       *testing.T
	dir     string
	version int
	files   map[string]string
}

func newVolume(t *testing.T, files map[string]string) *volume {
	t.Helper()
	v := &volume{t: t, dir: t.TempDir(), files: map[string]string{}}
	v.put(files)
	return v
}

func (v *volume) path(name string) string { return filepath.Join(v.dir, name) }

// put replaces the content of some files.
func (v *volume) put(files map[string]string) {
	v.t.Helper()
	must := func(err error) {
		v.t.Helper()
		if err != nil {
			v.t.Fatal(err)
		}
	}
	maps.Copy(v.files, files)
	v.version++
	data := fmt.Sprintf("..%d", v.version)
	must(os.Mkdir(v.path(data), 0o700))
	for name, content := range v.files {
		must(os.WriteFile(filepath.Join(v.path(data), name), []byte(content), 0o600))
		if _, err := os.Lstat(v.path(name)); err != nil {
			must(os.Symlink("..data/"+name, v.path(name)))
		}
	}
	must(os.Symlink(data, v.path("..data_tmp")))
	must(os.Rename(v.path("..data_tmp"), v.path("..data")))
	if v.version > 1 {
		must(os.RemoveAll(v.path(fmt.Sprintf("..%d", v.version-1))))
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// load changes the ConfigMaps of a namespace continuously: it creates, updates, deletes and
// recreates them.
type load struct {
	t       *testing.T
	changes atomic.Int64
	stop    func()

	interrupted atomic.Bool // the API server may be unavailable
}

// changers is the number of concurrent writers. Each writer has its own objects.
const changers = 4

func newLoad(t *testing.T, u *user, namespace string) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{t: t}
	var working sync.WaitGroup
	l.stop = sync.OnceFunc(func() { cancel(); working.Wait() })
	t.Cleanup(l.stop)
	for n := range changers {
		working.Go(func() { l.run(ctx, u, namespace, n) })
	}
	return l
}

func (l *load) run(ctx context.Context, u *user, namespace string, n int) {
	client := u.of(configMaps, namespace)
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprintf("load-%d-%d", n, i/10%5)
		interrupted := l.interrupted.Load() // the interruption may end before the response
		var err error
		switch i % 10 {
		case 0:
			o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}}}
			_, err = client.Create(ctx, o, metav1.CreateOptions{})
		case 9:
			err = client.Delete(ctx, name, metav1.DeleteOptions{})
		default:
			patch, _ := json.Marshal(map[string]any{"data": map[string]string{"value": fmt.Sprint(i)}})
			_, err = client.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		}
		if interrupted || l.interrupted.Load() || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
			continue // the last two occur after an interruption
		}
		if err != nil && ctx.Err() == nil {
			l.t.Errorf("change %s: %v", name, err)
			return
		}
		l.changes.Add(1)
	}
}

// rotation is a forwarder under load whose credentials are replaced.
type rotation struct {
	t        *testing.T
	f        *forwarder
	load     *load
	recorder harness.Recorder
}

// inForce waits until a credential is in use, logs how long that took, and verifies that events are
// published with it.
func (r *rotation) inForce(what string, replaced time.Time, is func(context.Context) error) {
	r.t.Helper()
	r.f.await(what+" is in force", is)
	r.t.Logf("%s in force %.1f s after it was replaced", what, time.Since(replaced).Seconds())
	r.flowing()
}

// flowing waits until new changes reach the bus.
func (r *rotation) flowing() {
	r.t.Helper()
	from, changes := uint64(0), r.load.changes.Load()
	poll.Try(r.t, "the bus is there", func(ctx context.Context) (err error) {
		from, err = r.recorder.Stored(ctx)
		return err
	})
	r.f.await("events get through", func(ctx context.Context) error {
		stored, err := r.recorder.Stored(ctx)
		switch {
		case err != nil:
			return err
		case stored < from+20 || r.load.changes.Load() < changes+20:
			return fmt.Errorf("%d events of %d changes", stored-from, r.load.changes.Load()-changes)
		}
		return r.f.Ready(ctx)
	})
}

// end stops the load and verifies that the bus is an exact copy of the cluster, with no event
// repeated or out of order.
func (r *rotation) end() {
	r.t.Helper()
	r.load.stop()
	r.f.idle()
	if err := r.recorder.CatchUp(r.t.Context(), limit); err != nil {
		r.t.Fatal(err)
	}
	code, stdout, stderr := r.f.run("verify", settle)
	if code != 0 || !strings.Contains(stdout, "0 differences") {
		r.t.Errorf("verify ended with %d:\n%s%s", code, stdout, stderr)
	}
	r.t.Logf("%d changes; verify: %s", r.load.changes.Load(), strings.TrimSpace(stdout))
	r.f.stop()
	checkNoRepeats(r.t, r.recorder)
}

// checkNoRepeats verifies that no event id on the bus is repeated and that versions don't decrease
// within a UID.
func checkNoRepeats(t *testing.T, recorder harness.Recorder) {
	t.Helper()
	all, missed, err := recorder.All()
	if err != nil || missed {
		t.Fatalf("the recording has missed messages: %v, %v", missed, err)
	}
	seen, last := map[string]harness.Place{}, map[string]*harness.Received{}
	for n := range all {
		r := &all[n]
		if !strings.HasPrefix(r.Attributes["type"], "io.kuberelay.object.") {
			continue
		}
		if at, again := seen[r.Attributes["id"]]; again {
			t.Errorf("%s: id %s at %s and again at %s", r.Subject, r.Attributes["id"], at, r.Place)
		}
		seen[r.Attributes["id"]] = r.Place
		if before := last[r.Attributes["uid"]]; before != nil && before.Attributes["sequence"] > r.Attributes["sequence"] {
			t.Errorf("%s: sequence %s at %s, then %s at %s", r.Subject, before.Attributes["sequence"], before.Place, r.Attributes["sequence"], r.Place)
		}
		last[r.Attributes["uid"]] = r
	}
	if len(seen) == 0 {
		t.Error("there is nothing on the bus")
	}
	t.Logf("%d events of %d objects, none of them twice", len(seen), len(last))
}
