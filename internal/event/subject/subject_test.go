package subject

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/test/lab/nametest"
)

func key(group, resource, namespace, name string) event.Key {
	return event.Key{Group: group, Resource: resource, Namespace: namespace, Name: name}
}

var subjectTests = []struct {
	name string
	key  event.Key
	want string
}{
	{"namespaced", key("apps", "deployments", "default", "web"), "kr.c1.apps.deployments.default.web"},
	{"core group", key("", "pods", "default", "web-0"), "kr.c1.core.pods.default.web-0"},
	{"cluster-scoped", key("", "nodes", "", "node-1"), "kr.c1.core.nodes._.node-1"},
	{"group with dots", key("cluster.x-k8s.io", "machines", "a", "b"), "kr.c1.cluster_x-k8s_io.machines.a.b"},
	{"name with dots", key("", "nodes", "", "ip-10-0-0-1.ec2.internal"), "kr.c1.core.nodes._.ip-10-0-0-1=2Eec2=2Einternal"},
	{"name with colon", key("rbac.authorization.k8s.io", "clusterroles", "", "system:node"), "kr.c1.rbac_authorization_k8s_io.clusterroles._.system=3Anode"},
	{"wildcards", key("", "nodes", "", "*.>"), "kr.c1.core.nodes._.=2A=2E=3E"},
	{"escape character", key("", "nodes", "", "a=2E"), "kr.c1.core.nodes._.a=3D2E"},
	{"unicode and newline", key("", "nodes", "", "é\n"), "kr.c1.core.nodes._.=C3=A9=0A"},
	{"underscore in a name", key("", "nodes", "", "a_b"), "kr.c1.core.nodes._.a_b"},
	{"underscore in a group", key("a_b.c", "d", "e", "f"), "kr.c1.a=5Fb_c.d.e.f"},
	{"group called core", key("core", "d", "e", "f"), "kr.c1.=63ore.d.e.f"},
	{"group beginning with core", key("core.x", "d", "e", "f"), "kr.c1.core_x.d.e.f"},
	{"group like control", key(".control", "snapshot", "e", "f"), "kr.c1.=2Econtrol.snapshot.e.f"},
	{"namespace called _", key("", "pods", "_", "f"), "kr.c1.core.pods.=5F.f"},
	{"empty name", key("", "pods", "a", ""), "kr.c1.core.pods.a.="},
	{"empty resource", key("", "", "a", "b"), "kr.c1.core.=.a.b"},
}

func TestSubject(t *testing.T) {
	for _, tt := range subjectTests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Object("kr", "c1", tt.key); got != tt.want {
				t.Errorf("Object = %q, want %q", got, tt.want)
			}
			_, _, k, marker, err := Parse(tt.want)
			if err != nil || marker || k != tt.key {
				t.Errorf("Parse = %q, marker %t, %v; want %q", k, marker, err, tt.key)
			}
		})
	}
}

func TestMarkerSubject(t *testing.T) {
	tests := []struct {
		r    schema.GroupResource
		want string
	}{
		{schema.GroupResource{Resource: "pods"}, "kr.c=2E1._control.snapshot.core.pods"},
		{schema.GroupResource{Group: "metrics.k8s.io", Resource: "nodes"}, "kr.c=2E1._control.snapshot.metrics_k8s_io.nodes"},
	}
	for _, tt := range tests {
		got := Marker("kr", "c.1", tt.r)
		if got != tt.want {
			t.Errorf("Marker(%s) = %q, want %q", tt.r, got, tt.want)
		}
		prefix, cluster, k, marker, err := Parse(got)
		if prefix != "kr" || cluster != "c.1" || k.GroupResource() != tt.r || !marker || err != nil {
			t.Errorf("Parse(%q) = %q %q %q %t %v", got, prefix, cluster, k, marker, err)
		}
	}
}

func TestClusterSubjects(t *testing.T) {
	for cluster, want := range map[string]string{"c1": "kr.c1.>", "a.b*": "kr.a=2Eb=2A.>", "": "kr.=.>"} {
		got := Cluster("kr", cluster)
		if got != want {
			t.Errorf("Cluster(%q) = %q, want %q", cluster, got, want)
		}
		if s := Object("kr", cluster, key("g", "r", "ns", "n")); !strings.HasPrefix(s, strings.TrimSuffix(got, ">")) {
			t.Errorf("%q does not match %q", got, s)
		}
	}
}

func TestParseSubjectRefuses(t *testing.T) {
	tests := map[string]string{
		"nothing":               "",
		"five tokens":           "kr.c.core.pods.a",
		"seven tokens":          "kr.c.core.pods.a.b.c",
		"no prefix":             ".c.core.pods.a.b",
		"empty token":           "kr.c.core.pods.a.",
		"lower-case hex":        "kr.c.core.pods.a.=2e",
		"needless escape":       "kr.c.core.pods.a.=41",
		"cut escape":            "kr.c.core.pods.a.=2",
		"not hex":               "kr.c.core.pods.a.=GG",
		"bare byte":             "kr.c.core.pods.a.b:c",
		"empty group":           "kr.c.=.pods.a.b",
		"escaped dot in group":  "kr.c.a=2Eb.pods.a.b",
		"empty namespace":       "kr.c.core.pods.=.b",
		"unknown control":       "kr.c._control.other.core.pods",
		"marker, bad resource":  "kr.c._control.snapshot.core.po:ds",
		"wildcard subscription": "kr.c.core.pods.*.>",
	}
	for name, s := range tests {
		t.Run(name, func(t *testing.T) {
			if _, _, k, _, err := Parse(s); err == nil {
				t.Errorf("Parse(%q) = %+v, want an error", s, k)
			}
		})
	}
}

// TestIdentitiesAreInjective verifies that all hostile strings in all places give different
// subjects and different partition keys.
func TestIdentitiesAreInjective(t *testing.T) {
	subjects, partitions := map[string]event.Key{}, map[string]event.Key{}
	see := func(seen map[string]event.Key, s string, k event.Key) {
		if other, ok := seen[s]; ok && other != k {
			t.Errorf("%+v and %+v share %q", k, other, s)
		}
		seen[s] = k
	}
	small := []string{"", "_", "core", ".", "a", "_control", ".control", "snapshot", "=", "%", "/", "a/b", "%5F", "=5F"}
	for _, g := range small {
		for _, r := range small {
			for _, ns := range small {
				for _, n := range small {
					k := key(g, r, ns, n)
					see(subjects, Object("kr", "c", k), k)
					see(partitions, event.PartitionKey("c", k), k)
				}
			}
		}
		for _, r := range small { // stands for a marker, because no key has this name
			k := key(g, r, "marker", "\x00marker")
			see(subjects, Marker("kr", "c", k.GroupResource()), k)
			see(partitions, event.MarkerPartitionKey("c", schema.GroupResource{Group: g, Resource: r}), k)
		}
	}
}

func FuzzSubject(f *testing.F) {
	hostile := nametest.Hostile()
	for i, s := range hostile {
		other := hostile[(i+7)%len(hostile)]
		f.Add("c1", "apps", "deployments", "default", s, "c1", "apps", "deployments", "default", other)
		f.Add(s, s, s, s, s, other, s, s, s, s)
		f.Add("c1", s, "r", other, "n", "c1", other, "r", s, "n")
	}
	f.Fuzz(func(t *testing.T, c1, g1, r1, ns1, n1, c2, g2, r2, ns2, n2 string) {
		k1, k2 := key(g1, r1, ns1, n1), key(g2, r2, ns2, n2)
		s1, s2 := Object("kr", c1, k1), Object("kr", c2, k2)
		m1 := Marker("kr", c1, k1.GroupResource())
		for _, s := range []string{s1, m1} {
			checkSubjectIsSafe(t, s)
		}
		if (s1 == s2) != (c1 == c2 && k1 == k2) {
			t.Errorf("%q %+v and %q %+v: %q, %q", c1, k1, c2, k2, s1, s2)
		}
		if m1 == s1 || m1 == s2 {
			t.Errorf("a marker shares the subject %q", m1)
		}
		if claim := Claim("kr", c1); claim == s1 || claim == s2 || claim == m1 {
			t.Errorf("a claim shares the subject %q", claim)
		}
		prefix, c, k, marker, err := Parse(s1)
		if prefix != "kr" || c != c1 || k != k1 || marker || err != nil {
			t.Errorf("Parse(%q) = %q %q %+v %t %v", s1, prefix, c, k, marker, err)
		}
		_, c, k, marker, err = Parse(m1)
		if c != c1 || k != (event.Key{Group: g1, Resource: r1}) || !marker || err != nil {
			t.Errorf("Parse(%q) = %q %+v %t %v", m1, c, k, marker, err)
		}
	})
}

// FuzzParseSubject verifies that every subject that Parse accepts is in canonical form.
func FuzzParseSubject(f *testing.F) {
	for _, tt := range subjectTests {
		f.Add(tt.want)
	}
	f.Add("kr.c._control.snapshot.core.pods")
	f.Add("kr.c._control.snapshot.core.po=2")
	f.Add("kr.c._control.cluster._.claimed")
	f.Add("kr.c._control.resolved.core.pods")
	f.Fuzz(func(t *testing.T, s string) {
		prefix, c, k, marker, err := Parse(s)
		if err != nil {
			return
		}
		forms := []string{Object(prefix, c, k)}
		switch {
		case marker && k == (event.Key{}):
			forms = []string{Claim(prefix, c)}
		case marker:
			forms = []string{Marker(prefix, c, k.GroupResource()), Resolved(prefix, c, k.GroupResource())}
		}
		if !slices.Contains(forms, s) {
			t.Errorf("Parse(%q) = %+v, which is written %q", s, k, forms)
		}
	})
}

func checkSubjectIsSafe(t *testing.T, s string) {
	t.Helper()
	tokens := strings.Split(s, ".")
	if len(tokens) != 6 {
		t.Errorf("%q has %d tokens, want 6", s, len(tokens))
	}
	for _, token := range tokens {
		if token == "" {
			t.Errorf("%q has an empty token", s)
		}
		if rest := strings.Trim(token, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-="); rest != "" {
			t.Errorf("%q has unsafe characters: %q", s, rest)
		}
	}
}

func TestClaimSubject(t *testing.T) {
	const claim, key = "kr.c=2E1._control.cluster._.claimed", "c.1/_control/cluster/_/claimed"
	if got := Claim("kr", "c.1"); got != claim {
		t.Errorf("got %q", got)
	}
	if got := event.ClaimPartitionKey("c.1"); got != key {
		t.Errorf("got %q", got)
	}
	prefix, cluster, k, marker, err := Parse(claim)
	if prefix != "kr" || cluster != "c.1" || k != (event.Key{}) || !marker || err != nil {
		t.Errorf("got %q, %q, %+v, %t, %v", prefix, cluster, k, marker, err)
	}
	for _, s := range []string{"kr.c._control.cluster._.lost", "kr.c._control.cluster.core.pods", "kr.c=2D._control.cluster._.claimed"} {
		if _, _, k, _, err := Parse(s); err == nil {
			t.Errorf("%s was taken for %+v", s, k)
		}
	}
	m, err := event.Builder{Cluster: "c.1"}.ClusterClaimed(event.Claim{UID: "u", Claimed: time.Unix(1, 0)})
	if err != nil {
		t.Fatal(err)
	}
	if got := Message("kr", "c.1", m); got != claim {
		t.Errorf("the message is under %q", got)
	}
	if !strings.HasPrefix(m.Attribute("partitionkey"), string(event.ClusterPartitionKeys("c.1"))) {
		t.Errorf("the partition key %q is not of the cluster", m.Attribute("partitionkey"))
	}
}

func BenchmarkSubject(b *testing.B) {
	k := key("cluster.x-k8s.io", "machinedeployments", "team-a", "ip-10-0-0-1.eu-west-1.compute.internal")
	b.ReportAllocs()
	for b.Loop() {
		Object("kuberelay", "6f1b0a1c-6d4c-4f6e-9a53-1f8a3a8f7d11", k)
	}
}

func BenchmarkParseSubject(b *testing.B) {
	s := Object("kuberelay", "c1", key("apps", "deployments", "default", "web"))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, _, _, err := Parse(s); err != nil {
			b.Fatal(err)
		}
	}
}
