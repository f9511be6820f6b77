package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/internal/bundle"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
)

// bundled runs the bundle command and checks its exit code. It returns the files of the bundle, with
// the heap profile decompressed, and the entries of the manifest.
func (f *forwarder) bundled(code int, args ...string) (files map[string]string, parts map[string]bundle.Entry) {
	f.t.Helper()
	path := filepath.Join(f.t.TempDir(), "bundle.tar.gz")
	got, stdout, stderr := f.run(append([]string{"bundle", "-o", path}, args...)...)
	if got != code || stderr != "" {
		f.t.Errorf("bundle ended with %d, want %d: %s%s", got, code, stdout, stderr)
	}
	info, err := os.Stat(path)
	if err != nil {
		f.t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode != 0o600 {
		f.t.Errorf("the bundle has mode %o", mode)
	}
	files = map[string]string{"the output of the command": stdout}
	archive := tar.NewReader(bytes.NewReader(ungzip(f.t, readFile(f.t, path))))
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			f.t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			f.t.Fatal(err)
		}
		if strings.HasSuffix(header.Name, ".pprof") {
			content = ungzip(f.t, string(content))
		}
		files[filepath.Base(header.Name)] = string(content)
	}
	var m bundle.Manifest
	if err := json.Unmarshal([]byte(files["manifest.json"]), &m); err != nil {
		f.t.Fatal(err)
	}
	parts = map[string]bundle.Entry{}
	for _, p := range m.Parts {
		parts[p.Part] = p
		for _, file := range p.Files {
			if _, ok := files[file.Name]; !ok {
				f.t.Errorf("the manifest names %s, which is missing", file.Name)
			}
		}
	}
	return files, parts
}

func ungzip(t *testing.T, packed string) []byte {
	t.Helper()
	r, err := gzip.NewReader(strings.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// has checks that each of the named files in the bundle contains its text.
func has(t *testing.T, files, want map[string]string) {
	t.Helper()
	for name, text := range want {
		if !strings.Contains(files[name], text) {
			t.Errorf("%s has no %q: %.2000s", name, text, files[name])
		}
	}
}

// ofForwarder contains a text from each file that the forwarder serves.
var ofForwarder = map[string]string{
	"status.txt": "configmaps", "status.json": `"level": "ok"`, "metrics.txt": "kuberelay_dirty_objects", "config.txt": "KUBERELAY_RESOURCES ",
	"goroutines.txt": "relay.(*Relay).Run(...)", "heap.pprof": "inuse_space", "log.txt": `"msg":"serving metrics and health"`,
}

// TestBundle_Slow and TestBundleKafka verify that a bundle contains every part. If one part can't be
// collected, the bundle still contains the others, and the manifest and the exit code report the
// error.
func TestBundle_Slow(t *testing.T) {
	bus := natsServer(t)
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := quietNamespace(t, u)
	u.create(configMaps, namespace, configMap("a", "1"))
	f := newForwarder(t, cp.Kubeconfig(), bus.URL, map[string]string{"RESOURCES": "configmaps", "NAMESPACES": namespace})
	f.start().idle()
	files, _ := f.bundled(0)
	has(t, files, ofForwarder)
	has(t, files, map[string]string{"bus.json": `"name": "KUBERELAY"`})

	files, parts := f.bundled(0, "--no-logs")
	if _, ok := files["log.txt"]; ok || parts["log"].Skipped != "--no-logs" {
		t.Errorf("--no-logs: %+v", parts["log"])
	}

	bus.Kill()
	f.says(2, "CRITICAL: bus unavailable for ")
	files, parts = f.bundled(1)
	has(t, files, map[string]string{"status.json": "bus_unavailable", "log.txt": "serving metrics", "goroutines.txt": "goroutine "})
	if parts["bus"].Error == "" {
		t.Errorf("without a bus: %+v", parts["bus"])
	}
	bus.Start()
	f.well()

	f.stop()
	_, parts = f.bundled(1)
	for _, name := range []string{"status", "metrics", "config", "goroutines", "heap", "log"} {
		if parts[name].Error == "" {
			t.Errorf("without a forwarder: %+v", parts[name])
		}
	}
	if len(parts["bus"].Files) != 1 {
		t.Errorf("without a forwarder: %+v", parts["bus"])
	}
}

func TestBundleKafka(t *testing.T) {
	broker := kafkabrokertest.Start(t, kafkabroker.Options{})
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := quietNamespace(t, u)
	u.create(configMaps, namespace, configMap("a", "1"))
	f := newForwarder(t, cp.Kubeconfig(), "", onKafka(topic{t, broker.Addr(), "bundle-{resource}"}, map[string]string{
		"RESOURCES": "configmaps", "NAMESPACES": namespace, "KAFKA_TRANSACTIONAL_ID": "bundle", "KAFKA_CHECKPOINT_TOPIC": "bundle.checkpoint",
	}))
	f.start().idle()
	files, _ := f.bundled(0)
	has(t, files, ofForwarder)
	has(t, files, map[string]string{"bus.json": `"name": "bundle-configmaps"`})
	has(t, files, map[string]string{"bus.json": `"cleanupPolicy": "compact"`})
	f.stop()
}

// searchBundle searches every file of a bundle for canaries and checks that each file contains its
// expected text.
func (h *hidden) searchBundle(when string, code int) {
	h.t.Helper()
	files, parts := h.bundled(code)
	for name, content := range files {
		h.canaries.search(h.t, fmt.Sprintf("%s of the bundle %s", name, when), []byte(content))
	}
	has(h.t, files, map[string]string{
		"status.json": "secrets", "metrics.txt": "kuberelay_dirty_objects", "config.txt": "KUBERELAY_REDACTION_KEY_FILE", "goroutines.txt": "goroutine ",
		"heap.pprof": "inuse_space", "log.txt": `"level":"DEBUG"`,
	})
	if code == 0 && len(parts["bus"].Files) == 0 {
		h.t.Errorf("the bundle %s has no settings of the bus: %+v", when, parts["bus"])
	}
}
