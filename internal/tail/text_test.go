package tail

import (
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/test/lab/golden"
)

var (
	pods        = event.Resource{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}
	deployments = event.Resource{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Namespaced: true}
	roles       = event.Resource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles", Kind: "ClusterRole"}
	crds        = event.Resource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions", Kind: "CustomResourceDefinition"}
)

var someTime = time.Date(2026, 3, 1, 15, 4, 5, 678_900_000, time.UTC)

// change returns an event of an object. The changes modify the input of the event builder.
func change(t testing.TB, typ event.Type, r event.Resource, namespace, name, version string, changes ...func(*event.Change)) Event {
	t.Helper()
	c := event.Change{
		Type: typ, Cause: event.CauseWatch, Key: r.Key(namespace, name), Resource: r, Observed: someTime,
		Object: &event.Object{
			APIVersion: r.APIVersion(), Kind: r.Kind, Namespace: namespace, Name: name, UID: types.UID("uid-of-" + name), ResourceVersion: version,
			Body: event.JSON([]byte(`{"kind":"` + r.Kind + `","metadata":{}}`)),
		},
	}
	for _, f := range changes {
		f(&c)
	}
	m, err := event.Builder{Cluster: "prod"}.Message(c)
	if err != nil {
		t.Fatal(err)
	}
	return Event{Delivery: publish.Delivery{Cluster: "prod", Stored: someTime.Add(time.Second)}, Message: m}
}

func marker(t testing.TB, typ event.Type, r event.Resource, objects int) Event {
	t.Helper()
	m, err := event.Builder{Cluster: "prod"}.Marker(typ, r, "s1", objects, someTime)
	if err != nil {
		t.Fatal(err)
	}
	return Event{Delivery: publish.Delivery{Cluster: "prod", Stored: someTime}, Message: m}
}

func writerStarted(t testing.TB, writer string) Event {
	t.Helper()
	m, err := event.Builder{Cluster: "prod"}.WriterStarted(writer, "s1", "kuberelay", 2, someTime)
	if err != nil {
		t.Fatal(err)
	}
	return Event{Delivery: publish.Delivery{Cluster: "prod", Stored: someTime}, Message: m}
}

func clusterClaimed(t testing.TB, replaces string) Event {
	t.Helper()
	m, err := event.Builder{Cluster: "prod"}.ClusterClaimed(event.Claim{UID: "uid-1", Replaces: replaces, Claimed: someTime})
	if err != nil {
		t.Fatal(err)
	}
	return Event{Delivery: publish.Delivery{Cluster: "prod", Stored: someTime}, Message: m}
}

// of returns the event as an event of another cluster.
func (e Event) of(cluster string) Event {
	e.Cluster = cluster
	return e
}

// foreign returns a CloudEvent of another writer.
func foreign(typ, subject string) Event {
	return Event{
		Message: &event.Message{
			ID: "1", Key: event.Key{Resource: "pods", Namespace: "default", Name: "web"}, Data: []byte(`null`),
			Attributes: []event.Attribute{{Name: "id", Value: "1"}, {Name: "specversion", Value: "1.0"}, {Name: "type", Value: typ}, {Name: "subject", Value: subject}},
		},
		Delivery: publish.Delivery{Cluster: "prod", Stored: someTime.Add(time.Second)},
	}
}

func atNoon(t *Text) *Text {
	t.Location = time.UTC
	t.Now = func() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }
	return t
}

// TestLine verifies the lines that the documentation shows.
func TestLine(t *testing.T) {
	unknown := func(c *event.Change) { c.Object.Body, c.Cause = event.Body{}, event.CauseReconcile }
	for _, tc := range []struct {
		name  string
		event Event
		want  string
	}{
		{"created", change(t, event.Created, pods, "default", "web-1", "12345"), "15:04:05.678  created   pods            default/web-1   v12345  watch"},
		{"cluster-scoped", change(t, event.Updated, roles, "", "system:node", "7"), "15:04:05.678  updated   clusterroles.rbac.authorization.k8s.io  system:node  v7  watch"},
		{"unknown final state", change(t, event.Deleted, pods, "default", "web-1", "12345", unknown), "15:04:05.678  deleted   pods            default/web-1   v12345  reconcile, final state unknown"},
		{"truncated", change(t, event.Updated, pods, "a", "b", "1", func(c *event.Change) { c.Truncated = true }), "15:04:05.678  updated   pods            a/b             v1      watch, truncated"},
		{"no version", change(t, event.Deleted, pods, "a", "b", "", unknown), "15:04:05.678  deleted   pods            a/b             -       reconcile, final state unknown"},
		{"snapshot", change(t, event.Snapshot, deployments, "a", "b", "1", func(c *event.Change) { c.Cause = event.CauseSnapshot }), "15:04:05.678  snapshot  deployments.apps  a/b             v1      snapshot"},
		{"snapshot started", marker(t, event.SnapshotStarted, deployments, 0), "15:04:05.678  snapshot started  deployments.apps"},
		{"snapshot completed", marker(t, event.SnapshotCompleted, pods, 12), "15:04:05.678  snapshot completed  pods  12 objects"},
		{"one object", marker(t, event.SnapshotCompleted, pods, 1), "15:04:05.678  snapshot completed  pods  1 object"},
		{"none", marker(t, event.SnapshotCompleted, pods, 0), "15:04:05.678  snapshot completed  pods  0 objects"},
		{"writer started", writerStarted(t, "forwarder-7d4b"), "15:04:05.678  writer started  kuberelay:2  forwarder-7d4b"},
		{"cluster claimed", clusterClaimed(t, ""), "15:04:05.678  cluster claimed  prod     uid-1"},
		{"cluster replaced", clusterClaimed(t, "uid-0"), "15:04:05.678  cluster claimed  prod     uid-1, replacing uid-0"},
		{"another day", change(t, event.Created, pods, "default", "web-1", "1", func(c *event.Change) { c.Observed = someTime.AddDate(0, 0, -1) }), "2026-02-28 15:04:05.678  created   pods            default/web-1   v1      watch"},
		{"of another writer", foreign("com.example.thing", "x"), "15:04:06.678  com.example.thing  pods   default/web     -"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := atNoon(&Text{}).Line(tc.event); got != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
}

// TestLines compares several lines, with and without color, with the golden files. The lines show how
// columns grow, and the effects of a long name and of a second cluster.
func TestLines(t *testing.T) {
	long := strings.Repeat("long-", 14) + "name"
	events := []Event{
		marker(t, event.SnapshotStarted, pods, 0),
		change(t, event.Snapshot, pods, "default", "web-1", "10", func(c *event.Change) { c.Cause = event.CauseSnapshot }),
		marker(t, event.SnapshotCompleted, pods, 1),
		change(t, event.Created, pods, "default", "web-2", "12345"),
		change(t, event.Updated, deployments, "kube-system", "coredns-autoscaler", "12346"),
		change(t, event.Deleted, pods, "default", "web-1", "12347"),
		change(t, event.Created, crds, "", "widgets.example.com", "12348"),
		change(t, event.Updated, pods, "default", long, "12349"),
		change(t, event.Updated, pods, "default", "web-2", "12350"),
		change(t, event.Created, pods, "default", "café", "12351").of("staging"),
		change(t, event.Updated, pods, "default", "web-2", "12352", func(c *event.Change) { c.Observed = someTime.AddDate(0, 0, -1) }),
		marker(t, event.SnapshotStarted, deployments, 0),
		change(t, event.Updated, pods, "default", "web-2", "12353"),
	}
	for _, color := range []bool{false, true} {
		name := map[bool]string{false: "lines.txt", true: "lines-color.txt"}[color]
		t.Run(name, func(t *testing.T) {
			text := atNoon(&Text{Color: color})
			var got strings.Builder
			for _, e := range events {
				got.WriteString(text.Line(e) + "\n")
			}
			golden.Check(t, name, got.String())
		})
	}
}

func TestLineHostile(t *testing.T) {
	for _, tc := range []struct{ name, object, want string }{
		{"escape sequence", "\x1b[2J\x1b]0;owned\x07", `"\x1b[2J\x1b]0;owned\a"`},
		{"eight-bit control", "a\u009b31m", `"a\u009b31m"`},
		{"newline", "a\nb", `"a\nb"`},
		{"carriage return", "a\rb", `"a\rb"`},
		{"overwritten", "a\bb\x7f", `"a\bb\x7f"`},
		{"right to left", "a\u202egnp.exe", `"a\u202egnp.exe"`},
		{"no width", "a\u200bb", `"a\u200bb"`},
		{"line separator", "a\u2028b", `"a\u2028b"`},
		{"several words", "a  v1  watch", `"a  v1  watch"`},
		{"quoted", `"a"`, `"\"a\""`},
		{"backslash", `a\x1b`, `"a\\x1b"`},
		{"other scripts", "naïve-日本", "naïve-日本"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			line := atNoon(&Text{}).Line(change(t, event.Created, roles, "", tc.object, "1"))
			want := "15:04:05.678  created   clusterroles.rbac.authorization.k8s.io  " + tc.want + "  v1  watch"
			if got := strings.Join(strings.Fields(line), " "); got != strings.Join(strings.Fields(want), " ") {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// FuzzLine verifies that any message results in one line of printable characters.
func FuzzLine(f *testing.F) {
	f.Add("a", "b", "io.kuberelay.object.created", "watch", "1", "c", false)
	f.Add("\x1b[2J", "\u009b", "io.kuberelay.\x1b", "\r", "\n", "\x9b", true)
	f.Fuzz(func(t *testing.T, namespace, name, typ, cause, version, cluster string, isMarker bool) {
		text := atNoon(&Text{cluster: "another"})
		line := text.Line(Event{Delivery: publish.Delivery{Cluster: cluster}, Message: &event.Message{
			Key: event.Key{Group: cluster, Resource: version, Namespace: namespace, Name: name}, Marker: isMarker,
			Attributes: []event.Attribute{
				{Name: "type", Value: typ}, {Name: "cause", Value: cause}, {Name: "resourceversion", Value: version}, {Name: "time", Value: name},
			},
		}})
		if i := strings.IndexFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 || !utf8.ValidString(line) {
			t.Errorf("%q has what does not print", line)
		}
	})
}
