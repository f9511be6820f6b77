package e2e

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
)

// goldenBuses has a directory for each release. Each directory contains the files of a NATS server and of
// a Kafka broker that the release's forwarder wrote, and the files of the etcd from which it copied.
const goldenBuses = "testdata/golden"

var writeGolden = flag.String("golden", "", "write a golden bus with this name, such as v1.2.3")

const goldenNamespace = "golden"

// goldenBus is a kind of bus that can start from the files in a directory.
type goldenBus struct {
	name  string
	start func(t *testing.T, dir string) (url string, set map[string]string, stop func())
}

func goldenKinds() []goldenBus {
	return []goldenBus{
		{"nats", func(t *testing.T, dir string) (string, map[string]string, func()) {
			s := natstest.Start(t, func(o *server.Options) { o.StoreDir = dir })
			return s.URL, nil, s.Stop
		}},
		{"kafka", func(t *testing.T, dir string) (string, map[string]string, func()) {
			b := kafkabrokertest.Start(t, kafkabroker.Options{Dir: dir})
			return "", onKafka(topic{t, b.Addr(), "golden"}, nil), b.Stop
		}},
	}
}

// changedLater counts the changes after the end of the forwarder that wrote a golden bus, by event
// type.
var changedLater = map[string]int{"created": 1, "updated": 1, "deleted": 1}

// TestGoldenBuses_Slow starts a forwarder on the buses that earlier releases wrote. The forwarder must
// publish only the changes since then. A restart must publish nothing.
func TestGoldenBuses_Slow(t *testing.T) {
	if *writeGolden != "" {
		makeGolden(t, filepath.Join(goldenBuses, *writeGolden))
	}
	releases, err := os.ReadDir(goldenBuses)
	if err != nil || len(releases) == 0 {
		t.Fatalf("there is no golden bus: %v", err)
	}
	for _, release := range releases {
		from := filepath.Join(goldenBuses, release.Name())
		cp := controlplanetest.New(t, controlplane.Options{})
		disk := t.TempDir()
		unpack(t, filepath.Join(from, "etcd.tar.gz"), disk)
		if err := cp.RestoreEtcd(t.Context(), disk); err != nil {
			t.Fatal(err)
		}
		for _, bus := range goldenKinds() {
			t.Run(release.Name()+"/"+bus.name, func(t *testing.T) {
				dir := t.TempDir()
				unpack(t, filepath.Join(from, bus.name+".tar.gz"), dir)
				url, set, _ := bus.start(t, dir)
				f := newForwarder(t, cp.Kubeconfig(), url, goldenSettings(set))
				f.start().idle()
				f.clean() // waits for the delete, which the forwarder finds after its first list
				if got := f.published(); !maps.Equal(got, changedLater) {
					t.Errorf("the takeover published %v, want %v", got, changedLater)
				}
				f.kill()
				f.start().idle()
				if got := f.published(); len(got) > 0 {
					t.Errorf("the restart published %v", got)
				}
				f.stop()
			})
		}
	}
}

// goldenSettings returns the settings of the forwarders that write and read a golden bus. The delete
// retention is so long that deletes stay even on an old bus.
func goldenSettings(more map[string]string) map[string]string {
	return merged(map[string]string{"RESOURCES": "configmaps", "NAMESPACES": goldenNamespace, "DELETE_RETENTION": "876000h"}, more)
}

var publishedLine = regexp.MustCompile(`(?m)^kuberelay_events_published_total\{.*type="([a-z]+)".*\} ([0-9]+)$`)

// published returns the number of events of each type that the bus has acknowledged since the start.
func (f *forwarder) published() map[string]int {
	f.t.Helper()
	_, body, err := f.get(f.t.Context(), "/metrics")
	if err != nil {
		f.t.Fatal(err)
	}
	all := map[string]int{}
	for _, match := range publishedLine.FindAllStringSubmatch(body, -1) {
		if n, _ := strconv.Atoi(match[2]); n > 0 {
			all[match[1]] += n
		}
	}
	return all
}

// makeGolden writes a golden bus with this build. Its objects are in every state that a bus can
// show: snapshot, created, updated, deleted and recreated. Three objects change after the forwarder
// has ended.
func makeGolden(t *testing.T, to string) {
	cp := controlplanetest.New(t, controlplane.Options{})
	u := newUser(t, cp)
	u.create(gvr("", "v1", "namespaces"), "", fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}", goldenNamespace))
	for _, name := range []string{"snapshot", "updated", "recreated", "deleted", "updated-later", "deleted-later"} {
		u.create(configMaps, goldenNamespace, configMap(name, "1"))
	}
	var stops []func()
	var forwarders []*forwarder
	for _, bus := range goldenKinds() {
		dir := t.TempDir()
		url, set, stop := bus.start(t, dir)
		f := newForwarder(t, cp.Kubeconfig(), url, goldenSettings(set))
		f.start().idle()
		forwarders = append(forwarders, f)
		stops = append(stops, func() { stop(); pack(t, dir, filepath.Join(to, bus.name+".tar.gz")) })
	}
	idle := func() {
		for _, f := range forwarders {
			f.idle()
		}
	}
	u.create(configMaps, goldenNamespace, configMap("created", "1"))
	u.label(configMaps, goldenNamespace, "updated", "2")
	u.delete(configMaps, goldenNamespace, "deleted")
	u.delete(configMaps, goldenNamespace, "recreated")
	idle()
	u.create(configMaps, goldenNamespace, configMap("recreated", "2"))
	idle()
	for i, f := range forwarders {
		f.stop()
		stops[i]()
	}
	u.create(configMaps, goldenNamespace, configMap("created-later", "1"))
	u.label(configMaps, goldenNamespace, "updated-later", "2")
	u.delete(configMaps, goldenNamespace, "deleted-later")
	disk := filepath.Join(t.TempDir(), "etcd")
	if err := cp.SnapshotEtcd(t.Context(), disk); err != nil {
		t.Fatal(err)
	}
	pack(t, disk, filepath.Join(to, "etcd.tar.gz"))
}

// temporary matches a broker's files that aren't part of the bus.
var temporary = regexp.MustCompile(`^(tmp|kafka\.log|server\.properties)(/|$)`)

// pack writes the files of a directory to an archive.
func pack(t *testing.T, dir, archive string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(archive), 0o750); err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(archive)
	if err != nil {
		t.Fatal(err)
	}
	zip, _ := gzip.NewWriterLevel(out, gzip.BestCompression) // the level is valid
	w := tar.NewWriter(zip)
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, path) // path is below dir
		if err != nil || !d.Type().IsRegular() || temporary.MatchString(name) {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		err = w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(content))})
		_, failed := w.Write(content)
		return errors.Join(err, failed)
	})
	if err := errors.Join(err, w.Close(), zip.Close(), out.Close()); err != nil {
		t.Fatal(err)
	}
}

// unpack extracts the files of an archive into a directory.
func unpack(t *testing.T, archive, dir string) {
	t.Helper()
	in, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	zip, err := gzip.NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := root.MkdirAll(filepath.Dir(h.Name), 0o700); err != nil {
			t.Fatal(err)
		}
		file, err := root.Create(h.Name)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(file, r)
		if err := errors.Join(err, file.Close()); err != nil {
			t.Fatal(err)
		}
	}
}
