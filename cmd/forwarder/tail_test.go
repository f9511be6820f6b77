package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/natsserver/natstest"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/internal/publish/nats"
)

// tailLimit bounds every wait. Only a failing test gets there.
const tailLimit = time.Minute

var (
	tailPods        = event.Resource{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}
	tailDeployments = event.Resource{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Namespaced: true}
	tailRoles       = event.Resource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles", Kind: "ClusterRole"}
)

// tailPublisher is a bus that is written to.
type tailPublisher interface {
	publish.Publisher
	Wait(context.Context) error
}

// tailBus publishes as a forwarder does.
type tailBus struct {
	t       *testing.T
	bus     tailPublisher
	cluster string
	last    map[event.Key]uint64
	n       int
}

func newTailBus(t *testing.T, url, cluster string, mode nats.ContentMode) *tailBus {
	t.Helper()
	bus, err := nats.Connect(t.Context(), nats.Options{URLs: []string{url}, Cluster: cluster, ContentMode: mode})
	if err != nil {
		t.Fatal(err)
	}
	return newTailBusOn(t, bus, cluster)
}

func newTailBusOn(t *testing.T, bus tailPublisher, cluster string) *tailBus {
	t.Helper()
	t.Cleanup(func() { bus.Close() })
	b := &tailBus{t: t, bus: bus, cluster: cluster, last: map[event.Key]uint64{}}
	b.wait()
	return b
}

func (b *tailBus) wait() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), tailLimit)
	defer cancel()
	if err := b.bus.Wait(ctx); err != nil {
		b.t.Fatal(err)
	}
}

// put publishes a state of an object; its version is one more than that of the last.
func (b *tailBus) put(typ event.Type, r event.Resource, namespace, name string) {
	b.t.Helper()
	b.putBody(typ, r, namespace, name, time.Now(), func(version string) string {
		return fmt.Sprintf(`{"kind":%q,"metadata":{"resourceVersion":%q},"spec":{"text":"é <>"}}`, r.Kind, version)
	})
}

func (b *tailBus) putBody(typ event.Type, r event.Resource, namespace, name string, observed time.Time, body func(version string) string) {
	b.t.Helper()
	b.n++
	version := fmt.Sprint(b.n)
	k := r.Key(namespace, name)
	m, err := event.Builder{Cluster: b.cluster}.Message(event.Change{
		Type: typ, Cause: event.CauseWatch, Key: k, Resource: r, Observed: observed,
		Object: &event.Object{
			APIVersion: r.APIVersion(), Kind: r.Kind, Namespace: namespace, Name: name, UID: types.UID("uid-of-" + b.cluster + name), ResourceVersion: version,
			Body: event.JSON([]byte(body(version))),
		},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	m.Expected = b.last[k]
	b.last[k] = b.publish(m)
}

func (b *tailBus) mark(typ event.Type, r event.Resource, objects int) {
	b.t.Helper()
	m, err := event.Builder{Cluster: b.cluster}.Marker(typ, r, "s1", objects, time.Now())
	if err != nil {
		b.t.Fatal(err)
	}
	b.publish(m)
}

func (b *tailBus) publish(m *event.Message) uint64 {
	b.t.Helper()
	type outcome struct {
		position uint64
		err      error
	}
	done := make(chan outcome, 1)
	b.bus.Publish(b.t.Context(), m, func(position uint64, err error) { done <- outcome{position, err} })
	select {
	case o := <-done:
		if o.err != nil {
			b.t.Fatal(o.err)
		}
		return o.position
	case <-time.After(tailLimit):
		b.t.Fatal("not acknowledged")
		return 0
	}
}

// some publishes seven events.
func (b *tailBus) some() {
	b.t.Helper()
	b.mark(event.SnapshotStarted, tailPods, 0)
	b.put(event.Snapshot, tailPods, "default", "web-1")
	b.mark(event.SnapshotCompleted, tailPods, 1)
	b.put(event.Created, tailDeployments, "shop", "cart")
	b.put(event.Updated, tailPods, "default", "web-1")
	b.put(event.Created, tailRoles, "", "\x1b[2J")
	b.put(event.Deleted, tailPods, "default", "web-1")
}

// lines are what is printed, for a test to wait for.
type lines struct {
	t    *testing.T
	name string
	ch   chan string
	w    *io.PipeWriter
}

func newLines(t *testing.T, name string) *lines {
	r, w := io.Pipe()
	l := &lines{t: t, name: name, ch: make(chan string, 10_000), w: w}
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(l.ch)
		for s := bufio.NewScanner(r); s.Scan(); {
			l.ch <- s.Text()
		}
	})
	t.Cleanup(func() { w.Close(); reading.Wait() })
	return l
}

func (l *lines) next() string {
	l.t.Helper()
	select {
	case line, ok := <-l.ch:
		if !ok {
			l.t.Fatalf("%s ended", l.name)
		}
		return line
	case <-time.After(tailLimit):
		l.t.Fatalf("nothing on %s within %s", l.name, tailLimit)
		return ""
	}
}

func (l *lines) want(wants ...string) {
	l.t.Helper()
	for _, want := range wants {
		if got := squeeze(l.next()); !strings.Contains(got, want) {
			l.t.Fatalf("got %q on %s, want %q in it", got, l.name, want)
		}
	}
}

// tailProcess is the command while it runs.
type tailProcess struct {
	t              *testing.T
	stdout, stderr *lines
	cancel         func()
	code           chan int
}

func startTail(t *testing.T, args ...string) *tailProcess {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p := &tailProcess{t: t, stdout: newLines(t, "stdout"), stderr: newLines(t, "stderr"), cancel: cancel, code: make(chan int, 1)}
	var running sync.WaitGroup
	running.Go(func() { p.code <- run(ctx, append([]string{"tail"}, args...), p.stdout.w, p.stderr.w) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return p
}

func (p *tailProcess) exits(want int) {
	p.t.Helper()
	select {
	case got := <-p.code:
		if got != want {
			p.t.Errorf("exit code %d, want %d", got, want)
		}
	case <-time.After(tailLimit):
		p.t.Fatalf("not ended within %s", tailLimit)
	}
}

// runTail is the command where it ends by itself. A want of exit code 0 is a want of
// silence on stderr.
func runTail(t *testing.T, code int, args ...string) (stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), tailLimit)
	defer cancel()
	var out, errs bytes.Buffer
	got := run(ctx, append([]string{"tail"}, args...), &out, &errs)
	if ctx.Err() != nil {
		t.Fatalf("not ended within %s, stderr %q, stdout %q", tailLimit, errs.String(), out.String())
	}
	if got != code {
		t.Fatalf("exit code %d, want %d; stderr %q", got, code, errs.String())
	}
	return out.String(), errs.String()
}

var tailTime = regexp.MustCompile(`(?m)^(\d{4}-\d\d-\d\d | *)\d\d:\d\d:\d\d\.\d{3}  `)

// squeeze leaves out the time and what aligns.
func squeeze(s string) string {
	return regexp.MustCompile(` +`).ReplaceAllString(tailTime.ReplaceAllString(s, ""), " ")
}

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

// All clusters on the bus, unless one is named.
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

// A person at a terminal: nothing there yet, then a stream, then a server that
// restarts, then Ctrl-C. The server is the built-in one of another process.
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
	ns.Restart()
	p.stderr.want("forwarder: not connected", "forwarder: reading the bus")
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

// What is not an event of ours is named on stderr, harmlessly, and left out.
func TestTailForeign(t *testing.T) {
	url := natstest.Start(t).URL
	bus := newTailBus(t, url, "prod", nats.Binary)
	nc, err := natsgo.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	subject := event.Subject("kuberelay", "prod", tailPods.Key("default", "x"))
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

func TestTailRefuses(t *testing.T) {
	noJetStream := natstest.Start(t, func(o *server.Options) { o.JetStream = false }).URL
	for _, tc := range []struct {
		args, env string
		says      string
	}{
		{"-o=yaml", "", `--output="yaml": use text or json`},
		{"--color=blue", "", `--color="blue": use auto, always or never`},
		{"--count=-1", "", "--count=-1"},
		{"--last --from-start", "", "--last and --from-start"},
		{"--since=10m --last", "", "--since and --last cannot be used together"},
		{"--since=10m --from-start", "", "--since and --from-start cannot be used together"},
		{"--since=10", "", `--since="10": use a duration in hours, minutes and seconds, as 10m or 24h, or a time`},
		{"--since=", "", `--since="": use a duration`},
		{"--since=yesterday", "", `--since="yesterday": use`},
		{"--since=-10m", "", `--since="-10m" is not in the past`},
		{"--since=0s", "", `--since="0s" is not in the past`},
		{"--since=2999-01-01T00:00:00Z", "", "is not in the past"},
		{"--skip-past", "", "--skip-past is for --diff"},
		{"--resource=pods/log", "", `--resource="pods/log"`},
		{"--resource=", "", "--resource is empty"},
		{"--namespace=*", "", `--namespace="*"`},
		{"--namespace=", "", "--namespace is empty"},
		{"pods", "", "unknown command"},
		{"", "KUBERELAY_SINK=stdout", "KUBERELAY_SINK is stdout"},
		{"", "KUBERELAY_NATS_LISTEN=127.0.0.1:0", "KUBERELAY_NATS_LISTEN has port 0"},
		{"", "KUBERELAY_NATS_URL=" + noJetStream, "JetStream is not enabled"},
	} {
		t.Run(tc.args+tc.env, func(t *testing.T) {
			if name, value, ok := strings.Cut(tc.env, "="); ok {
				t.Setenv(name, value)
			}
			_, stderr := runTail(t, exitUsage, strings.Fields(tc.args)...)
			if !strings.Contains(stderr, tc.says) || strings.Count(stderr, "\n") != 1 {
				t.Errorf("got %q, want one line with %q", stderr, tc.says)
			}
		})
	}
}

func TestBuiltInURL(t *testing.T) {
	for listen, want := range map[string]string{
		"127.0.0.1:4222": "nats://127.0.0.1:4222",
		":4222":          "nats://127.0.0.1:4222",
		"0.0.0.0:5000":   "nats://127.0.0.1:5000",
		"[::]:4222":      "nats://[::1]:4222",
		"10.0.0.7:4222":  "nats://10.0.0.7:4222",
		"localhost:4222": "nats://localhost:4222",
	} {
		if got, err := builtInURL(listen); err != nil || got != want {
			t.Errorf("%s: got %q (%v), want %q", listen, got, err, want)
		}
	}
}

func TestUseColor(t *testing.T) {
	for _, tc := range []struct {
		color         string
		terminal      bool
		noColor, term string
		want          bool
	}{
		{"auto", true, "", "xterm", true},
		{"auto", false, "", "xterm", false},
		{"auto", true, "1", "xterm", false},
		{"auto", true, "", "dumb", false},
		{"always", false, "1", "dumb", true},
		{"never", true, "", "xterm", false},
	} {
		t.Setenv("NO_COLOR", tc.noColor)
		t.Setenv("TERM", tc.term)
		f := tailFlags{color: tc.color}
		if got, err := f.useColor(tc.terminal); err != nil || got != tc.want {
			t.Errorf("%+v: got %v (%v)", tc, got, err)
		}
	}
}
