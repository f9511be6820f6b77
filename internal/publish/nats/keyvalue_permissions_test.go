package nats

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
)

// documentedPermissions returns the configuration in docs/permissions.md for a server with a
// key-value bucket, adapted to the cluster of the tests.
func documentedPermissions(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../../docs/permissions.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := func(heading string) (all []string) {
		_, section, _ := strings.Cut(string(page), "\n## "+heading+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		for n, block := range strings.Split(section, "```") {
			if n%2 == 1 {
				all = append(all, strings.TrimPrefix(block, "text\n"))
			}
		}
		return all
	}
	accounts, bucket := blocks("NATS"), blocks("A key-value bucket")
	if len(accounts) != 2 || len(bucket) != 2 { // the second account is for a reader of one cluster
		t.Fatalf("docs/permissions.md has %d blocks about NATS and %d about a bucket, want 2 and 2", len(accounts), len(bucket))
	}
	var exports, publish, imports strings.Builder
	for subject := range strings.FieldsSeq(bucket[1]) {
		fmt.Fprintf(&exports, "{service: %q}\n", subject)
		fmt.Fprintf(&publish, "%q\n", subject)
		fmt.Fprintf(&imports, "{service: {account: KUBERELAY, subject: %q}}\n", subject)
	}
	text := accounts[0]
	add := func(after, before, what string) {
		head, tail, found := strings.Cut(text, after)
		middle, tail, ended := strings.Cut(tail, before)
		if !found || !ended {
			t.Fatalf("docs/permissions.md has no %q before %q", after, before)
		}
		text = head + after + middle + what + before + tail
	}
	add("users: [", "{", bucket[0]+"\n")
	add("exports: [", "{", exports.String())
	add("user: reader", `"$JS.`, publish.String())
	add("imports: [", "{", imports.String())
	return strings.ReplaceAll(text, "prod-eu1", "test=2Ecluster")
}

// TestKeyValuePermissions verifies that the permissions in docs/permissions.md suffice for the user
// that creates and deletes a bucket, and for the user that reads it. The reading user cannot create
// a bucket.
func TestKeyValuePermissions(t *testing.T) {
	s := natstest.StartProcess(t, documentedPermissions(t))
	bus := connect(t, Options{Connection: Connection{URLs: []string{s.URL}, Cluster: publishtest.Cluster, User: "forwarder", PasswordFile: file(t, "change-me")}})
	waitReady(t, bus)
	m := publishtest.Object{Name: "a", Version: 1}.Message(t, 0)
	publishOK(t, bus, m)
	config := bucketIn(t)
	reader := observe(t, s.URL, natsgo.UserInfo("reader", "change-me-too"))
	bounded, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := reader.CreateStream(bounded, config); err == nil {
		t.Error("the reader creates the bucket")
	}
	poll.Holds(t, "a permission violation", func() bool { return errors.Is(reader.Conn().LastError(), natsgo.ErrPermissionViolation) })

	creator := observe(t, s.URL, natsgo.UserInfo("bucket", "change-me-three"))
	if _, err := creator.CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	bucket, err := reader.KeyValue(t.Context(), "objects")
	if err != nil {
		t.Fatal(err)
	}
	watcher, err := bucket.WatchAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var watched jetstream.KeyValueEntry
	for watched == nil { // the initial values can end before the bucket has the object
		select {
		case watched = <-watcher.Updates():
		case <-time.After(limit):
			t.Fatal("the watcher gets nothing")
		}
	}
	if err := watcher.Stop(); err != nil {
		t.Error(err)
	}
	if e, err := bucket.Get(t.Context(), watched.Key()); err != nil || string(e.Value()) != string(m.Data) {
		t.Errorf("get %s: %v, %v, want %s", watched.Key(), e, err, m.Data)
	}
	if err := creator.DeleteStream(t.Context(), config.Name); err != nil {
		t.Error(err)
	}
	if err := creator.Conn().LastError(); err != nil {
		t.Errorf("the server refuses the creator: %v", err)
	}
	if err := reader.Conn().LastError(); !strings.Contains(err.Error(), "STREAM.CREATE") {
		t.Errorf("the server refuses the reader: %v", err)
	}
}
