package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	natsgo "github.com/nats-io/nats.go"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/event/subject"
	"github.com/kuberelay/kuberelay/internal/publish/nats"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
)

func TestTail(t *testing.T) {
	for _, mode := range []nats.ContentMode{nats.Binary, nats.Structured} {
		t.Run(string(mode), func(t *testing.T) {
			url := natstest.Start(t).URL
			newTailBus(t, url, "prod", mode).some()
			t.Setenv("KUBERELAY_NATS_URL", url)
			for _, tc := range []struct {
				args string
				want []string
			}{
				{"--from-start --count=7", []string{
					"snapshot started pods",
					"snapshot pods default/web-1 v1 watch",
					"snapshot completed pods 1 object",
					"created deployments.apps shop/cart v2 watch",
					"updated pods default/web-1 v3 watch",
					`created clusterroles.rbac.authorization.k8s.io "\x1b[2J" v4 watch`,
					"deleted pods default/web-1 v5 watch",
				}},
				{"--last --count=4", []string{
					"snapshot completed pods 1 object",
					"created deployments.apps shop/cart v2 watch",
					`created clusterroles.rbac.authorization.k8s.io "\x1b[2J" v4 watch`,
					"deleted pods default/web-1 v5 watch",
				}},
				{"--from-start --count=2", []string{"snapshot started pods", "snapshot pods default/web-1 v1 watch"}},
				{"--from-start --resource=deployments.apps,Pod -n=default --count=3", []string{
					"snapshot pods default/web-1 v1 watch", "updated pods default/web-1 v3 watch", "deleted pods default/web-1 v5 watch",
				}},
				{"--from-start -n=shop -n=default --resource=deploy --resource=po --count=4", []string{
					"snapshot pods default/web-1 v1 watch", "created deployments.apps shop/cart v2 watch",
					"updated pods default/web-1 v3 watch", "deleted pods default/web-1 v5 watch",
				}},
				{"--from-start --resource=ClusterRole --count=1 --color=always", []string{
					"\x1b[32mcreated\x1b[0m " + `clusterroles.rbac.authorization.k8s.io "\x1b[2J" v4 watch`,
				}},
			} {
				t.Run(tc.args, func(t *testing.T) {
					stdout, stderr := runTail(t, 0, strings.Fields(tc.args)...)
					if got := strings.Split(strings.TrimSuffix(squeeze(stdout), "\n"), "\n"); !slices.Equal(got, tc.want) {
						t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
					}
					if stderr != "" {
						t.Errorf("on stderr: %q", stderr)
					}
				})
			}
		})
	}
}

func TestTailJSON(t *testing.T) {
	url := natstest.Start(t).URL
	newTailBus(t, url, "prod", nats.Binary).some()
	t.Setenv("KUBERELAY_NATS_URL", url)
	stdout, _ := runTail(t, 0, "--from-start", "--count=7", "-o=json", "--color=always")
	all := strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
	if len(all) != 7 || strings.Contains(stdout, "\x1b") {
		t.Fatalf("got %q", stdout)
	}
	m, err := event.ParseStructured([]byte(all[4]))
	if err != nil {
		t.Fatal(err)
	}
	const data = `{"kind":"Pod","metadata":{"resourceVersion":"3"},"spec":{"text":"é <>"}}`
	if string(m.Data) != data || m.ID != "uid-of-prodweb-1.3" || m.Attribute("type") != string(event.Updated) || m.Attribute("source") != "/kubernetes/prod" {
		t.Errorf("got %s", all[4])
	}
}

// TestTailClusters verifies that tail shows all clusters on the bus unless KUBERELAY_CLUSTER_NAME is
// set.
func TestTailClusters(t *testing.T) {
	url := natstest.Start(t).URL
	newTailBus(t, url, "prod", nats.Binary).put(event.Created, tailPods, "default", "a")
	newTailBus(t, url, "staging.eu", nats.Binary).put(event.Created, tailPods, "default", "b")
	t.Setenv("KUBERELAY_NATS_URL", url)
	stdout, _ := runTail(t, 0, "--from-start", "--count=2")
	if got, want := squeeze(stdout), "created pods default/a v1 watch\ncreated pods default/b v1 watch [staging.eu]\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	t.Setenv("KUBERELAY_CLUSTER_NAME", "staging.eu")
	for _, args := range []string{"--last", "--last --resource=pods"} {
		stdout, _ = runTail(t, 0, append(strings.Fields(args), "--count=1")...)
		if got, want := squeeze(stdout), "created pods default/b v1 watch\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestTailWaits verifies the messages that a user sees while tail waits for a server, for a stream, and
// for a server that restarts, until Ctrl-C. The server stands in for the built-in server of another
// process.
func TestTailWaits(t *testing.T) {
	ns := natstest.Start(t)
	ns.Stop()
	t.Setenv("KUBERELAY_NATS_LISTEN", ns.Addr())
	p := startTail(t)
	p.stderr.want("forwarder: not connected to " + ns.URL)
	ns.Restart()
	p.stderr.want("forwarder: the stream KUBERELAY does not exist yet; waiting for a forwarder")
	bus := newTailBus(t, ns.URL, "prod", nats.Binary)
	bus.put(event.Created, tailPods, "default", "a")
	p.stdout.want("created pods default/a v1 watch")
	p.stderr.want("forwarder: reading the bus")
	ns.Restart() // the connection ends, or the server first announces its shutdown
	p.stderr.want("; trying again", "forwarder: reading the bus")
	bus = newTailBus(t, ns.URL, "prod", nats.Binary)
	bus.put(event.Created, tailPods, "default", "b")
	p.stdout.want("created pods default/b v1 watch")
	p.cancel()
	p.exits(0)
	p.stderr.w.Close()
	for line := range p.stderr.ch {
		t.Errorf("also on stderr: %q", line)
	}
}

// TestTailForeign verifies that tail skips messages that are not events, and reports them on standard
// error without control characters.
func TestTailForeign(t *testing.T) {
	url := natstest.Start(t).URL
	bus := newTailBus(t, url, "prod", nats.Binary)
	nc, err := natsgo.Connect(url, natsgo.Timeout(tailLimit))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	subject := subject.Object("kuberelay", "prod", tailPods.Key("default", "x"))
	for _, m := range []*natsgo.Msg{
		{Subject: "kuberelay.\x1b[2J", Data: []byte("{}")},
		{Subject: subject, Data: []byte("\x1b[2J")},
		{Subject: subject, Data: []byte("\x1b[2J"), Header: natsgo.Header{"ce-id": {"1"}, "ce-specversion": {"1.0"}}},
	} {
		if err := nc.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	bus.put(event.Created, tailPods, "default", "a")
	t.Setenv("KUBERELAY_NATS_URL", url)
	for output, want := range map[string]int{"text": 2, "json": 3} {
		t.Run(output, func(t *testing.T) {
			_, stderr := runTail(t, 0, "--from-start", fmt.Sprintf("--count=%d", 4-want), "-o", output)
			if n := strings.Count(stderr, "forwarder: skipped message "); n != want || strings.Contains(stderr, "\x1b") {
				t.Errorf("%d skipped, want %d: %q", n, want, stderr)
			}
		})
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

func TestTailOutputFails(t *testing.T) {
	url := natstest.Start(t).URL
	newTailBus(t, url, "prod", nats.Binary).some()
	t.Setenv("KUBERELAY_NATS_URL", url)
	reader, closedFile, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer closedFile.Close()
	reader.Close()
	pipeReader, closedPipe := io.Pipe()
	pipeReader.Close()
	for _, tc := range []struct {
		name   string
		stdout io.Writer
		code   int
		says   string
	}{
		{"head has ended", closedFile, 0, ""},
		{"a reader has ended", closedPipe, 0, ""},
		{"disk is full", failingWriter{errors.New("no space left")}, exitFailure, "forwarder: print event \"pods.core.started.s1\": no space left\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), tailLimit)
			defer cancel()
			var stderr bytes.Buffer
			code := run(ctx, []string{"tail", "--from-start"}, tc.stdout, &stderr)
			if ctx.Err() != nil {
				t.Fatalf("not ended within %s", tailLimit)
			}
			if code != tc.code || stderr.String() != tc.says {
				t.Errorf("exit code %d, want %d; stderr %q, want %q", code, tc.code, stderr.String(), tc.says)
			}
		})
	}
}
