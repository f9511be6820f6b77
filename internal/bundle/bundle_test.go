package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/deadline"
	"github.com/kuberelay/kuberelay/internal/publish/kafka"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/nats"
)

func TestBundle(t *testing.T) {
	of := func(name string, err error) part {
		return part{name: name, collect: func(context.Context) ([]file, error) {
			if err != nil {
				return nil, err
			}
			return []file{{name + ".txt", []byte("content of " + name)}}, nil
		}}
	}
	skipped := of("log", nil)
	skipped.skip = "--no-logs"
	all := collect(t.Context(), of("status", nil), of("metrics", errors.New("no\nanswer")), skipped, of("heap", nil))
	m := Manifest{Time: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), Cluster: "../prod eu/1"}.index(all)
	const name = "kuberelay-bundle-..-prod-eu-1-20260304T050607Z"
	if m.Name() != name || m.Failed() != 1 {
		t.Errorf("got %s with %d failed parts", m.Name(), m.Failed())
	}
	if got := (Manifest{Time: m.Time}).Name(); got != "kuberelay-bundle-unknown-20260304T050607Z" {
		t.Errorf("without a cluster, got %s", got)
	}

	var packed bytes.Buffer
	if err := (Bundle{m, all}).Write(&packed); err != nil {
		t.Fatal(err)
	}
	unpacked, err := gzip.NewReader(&packed)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	contents := map[string]string{}
	for archive := tar.NewReader(unpacked); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil || header.Mode != 0o600 {
			t.Errorf("%s: mode %o, %v", header.Name, header.Mode, err)
		}
		names = append(names, header.Name)
		contents[header.Name] = string(content)
	}
	if got, want := strings.Join(names, " "), name+"/manifest.json "+name+"/status.txt "+name+"/heap.txt"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := contents[name+"/heap.txt"]; got != "content of heap" {
		t.Errorf("got %q", got)
	}
	var read Manifest
	if err := json.Unmarshal([]byte(contents[name+"/manifest.json"]), &read); err != nil {
		t.Fatal(err)
	}
	if p := read.Parts; read.Format != 1 || len(p) != 4 || p[0].Files[0] != (FileEntry{"status.txt", 17}) || p[1].Error != "no\nanswer" || p[2].Skipped != "--no-logs" {
		t.Errorf("got %+v", read)
	}

	var said strings.Builder
	if err := m.WriteText(&said); err != nil {
		t.Fatal(err)
	}
	const want = `status      status.txt
metrics     failed: no; answer
log         skipped: --no-logs
heap        heap.txt
`
	if said.String() != want {
		t.Errorf("got\n%s", said.String())
	}
}

func TestBus(t *testing.T) {
	stream := &jetstream.StreamInfo{Config: jetstream.StreamConfig{Name: "KUBERELAY", MaxMsgsPerSubject: 5}}
	onNATS, err := natsFile(nats.Inspection{Version: "2.11.0", Stream: stream, Settings: errors.New("wrong retention"), Denied: []string{"publish x"}})
	if err != nil {
		t.Fatal(err)
	}
	onKafka, err := kafkaFile(kafka.Inspection{Brokers: 3, Topics: []kafka.TopicInspection{
		{Name: "events", Inspection: broker.Inspection{Topic: broker.Topic{Partitions: 7, CleanupPolicy: "compact"}, InSync: 2}},
	}, Checkpoint: kafka.TopicInspection{Name: "events.checkpoint", Err: errors.New("not allowed")}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		files []file
		want  []string
	}{
		{onNATS, []string{`"version": "2.11.0"`, `"max_msgs_per_subject": 5`, `"settingsError": "wrong retention"`, `"publish x"`}},
		{onKafka, []string{`"brokers": 3`, `"partitions": 7`, `"cleanupPolicy": "compact"`, `"inSync": 2`, `"error": "not allowed"`}},
	} {
		for _, want := range c.want {
			if len(c.files) != 1 || c.files[0].name != "bus.json" || !strings.Contains(string(c.files[0].content), want) {
				t.Errorf("no %s in %s", want, c.files)
			}
		}
	}
}

// TestNoSuchFlag verifies that the error of a part that took too long doesn't name the flag --timeout, which
// 'forwarder bundle' doesn't have.
func TestNoSuchFlag(t *testing.T) {
	late := &deadline.Error{Timeout: time.Second, Err: context.DeadlineExceeded}
	got := collect(t.Context(), part{name: "heap", collect: func(context.Context) ([]file, error) { return nil, late }})
	if text, want := got[0].err.Error(), "no response within 1s: context deadline exceeded"; text != want {
		t.Errorf("got %q, want %q", text, want)
	}
}
