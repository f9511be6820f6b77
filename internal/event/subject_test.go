package event

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// hostileStrings are used as names in tests and fuzz targets. RBAC objects can have nearly
// all of these names.
var hostileStrings = []string{
	"", " ", ".", "..", "a.b", "a..b", ".a", "a.", "_", "__", "=", "=2E", "=5F", "=63ore", "core", "*", ">", "a.>", "$SYS",
	"system:node", "system:controller:job-controller", "a/b", "/", "%", "%2F", "%zz", "a b", "a\tb", "a\nb", "a\r\nNats-Msg-Id: x",
	"\x00", "\x7f", "\u0085", "\ufdd0", "\uffff", "\U0001ffff", "\xff", "a\xc3", "\u2028", "é", "日本", "🙂", `"`, `\`, `","x":"`, "<&>",
	"?a=b", "#a", ";", ",", "_control", "snapshot", "a_b", "A-Z", "\ufffd",
}

var subjectTests = []struct {
	name string
	key  Key
	want string
}{
	{"namespaced", Key{"apps", "deployments", "default", "web"}, "kr.c1.apps.deployments.default.web"},
	{"core group", Key{"", "pods", "default", "web-0"}, "kr.c1.core.pods.default.web-0"},
	{"cluster-scoped", Key{"", "nodes", "", "node-1"}, "kr.c1.core.nodes._.node-1"},
	{"group with dots", Key{"cluster.x-k8s.io", "machines", "a", "b"}, "kr.c1.cluster_x-k8s_io.machines.a.b"},
	{"name with dots", Key{"", "nodes", "", "ip-10-0-0-1.ec2.internal"}, "kr.c1.core.nodes._.ip-10-0-0-1=2Eec2=2Einternal"},
	{"name with colon", Key{"rbac.authorization.k8s.io", "clusterroles", "", "system:node"}, "kr.c1.rbac_authorization_k8s_io.clusterroles._.system=3Anode"},
	{"wildcards", Key{"", "nodes", "", "*.>"}, "kr.c1.core.nodes._.=2A=2E=3E"},
	{"escape character", Key{"", "nodes", "", "a=2E"}, "kr.c1.core.nodes._.a=3D2E"},
	{"unicode and newline", Key{"", "nodes", "", "é\n"}, "kr.c1.core.nodes._.=C3=A9=0A"},
	{"underscore in a name", Key{"", "nodes", "", "a_b"}, "kr.c1.core.nodes._.a_b"},
	{"underscore in a group", Key{"a_b.c", "d", "e", "f"}, "kr.c1.a=5Fb_c.d.e.f"},
	{"group called core", Key{"core", "d", "e", "f"}, "kr.c1.=63ore.d.e.f"},
	{"group beginning with core", Key{"core.x", "d", "e", "f"}, "kr.c1.core_x.d.e.f"},
	{"group like control", Key{".control", "snapshot", "e", "f"}, "kr.c1.=2Econtrol.snapshot.e.f"},
	{"namespace called _", Key{"", "pods", "_", "f"}, "kr.c1.core.pods.=5F.f"},
	{"empty name", Key{"", "pods", "a", ""}, "kr.c1.core.pods.a.="},
	{"empty resource", Key{"", "", "a", "b"}, "kr.c1.core.=.a.b"},
}

func TestSubject(t *testing.T) {
	for _, tt := range subjectTests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Subject("kr", "c1", tt.key); got != tt.want {
				t.Errorf("Subject = %q, want %q", got, tt.want)
			}
			_, _, k, marker, err := ParseSubject(tt.want)
			if err != nil || marker || k != tt.key {
				t.Errorf("ParseSubject = %q, marker %t, %v; want %q", k, marker, err, tt.key)
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
		got := MarkerSubject("kr", "c.1", tt.r)
		if got != tt.want {
			t.Errorf("MarkerSubject(%s) = %q, want %q", tt.r, got, tt.want)
		}
		prefix, cluster, k, marker, err := ParseSubject(got)
		if prefix != "kr" || cluster != "c.1" || k.GroupResource() != tt.r || !marker || err != nil {
			t.Errorf("ParseSubject(%q) = %q %q %q %t %v", got, prefix, cluster, k, marker, err)
		}
	}
}

func TestClusterSubjects(t *testing.T) {
	for cluster, want := range map[string]string{"c1": "kr.c1.>", "a.b*": "kr.a=2Eb=2A.>", "": "kr.=.>"} {
		got := ClusterSubjects("kr", cluster)
		if got != want {
			t.Errorf("ClusterSubjects(%q) = %q, want %q", cluster, got, want)
		}
		if s := Subject("kr", cluster, Key{"g", "r", "ns", "n"}); !strings.HasPrefix(s, strings.TrimSuffix(got, ">")) {
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
			if _, _, k, _, err := ParseSubject(s); err == nil {
				t.Errorf("ParseSubject(%q) = %+v, want an error", s, k)
			}
		})
	}
}

// TestIdentitiesAreInjective verifies that all hostile strings in all places give different
// subjects and different partition keys.
func TestIdentitiesAreInjective(t *testing.T) {
	subjects, partitions := map[string]Key{}, map[string]Key{}
	see := func(seen map[string]Key, s string, k Key) {
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
					k := Key{g, r, ns, n}
					see(subjects, Subject("kr", "c", k), k)
					see(partitions, PartitionKey("c", k), k)
				}
			}
		}
		for _, r := range small { // stands for a marker, because no key has this name
			k := Key{g, r, "marker", "\x00marker"}
			see(subjects, MarkerSubject("kr", "c", k.GroupResource()), k)
			see(partitions, MarkerPartitionKey("c", schema.GroupResource{Group: g, Resource: r}), k)
		}
	}
}

func FuzzSubject(f *testing.F) {
	for i, s := range hostileStrings {
		other := hostileStrings[(i+7)%len(hostileStrings)]
		f.Add("c1", "apps", "deployments", "default", s, "c1", "apps", "deployments", "default", other)
		f.Add(s, s, s, s, s, other, s, s, s, s)
		f.Add("c1", s, "r", other, "n", "c1", other, "r", s, "n")
	}
	f.Fuzz(func(t *testing.T, c1, g1, r1, ns1, n1, c2, g2, r2, ns2, n2 string) {
		k1, k2 := Key{g1, r1, ns1, n1}, Key{g2, r2, ns2, n2}
		s1, s2 := Subject("kr", c1, k1), Subject("kr", c2, k2)
		m1 := MarkerSubject("kr", c1, k1.GroupResource())
		for _, s := range []string{s1, m1} {
			checkSubjectIsSafe(t, s)
		}
		if (s1 == s2) != (c1 == c2 && k1 == k2) {
			t.Errorf("%q %+v and %q %+v: %q, %q", c1, k1, c2, k2, s1, s2)
		}
		if m1 == s1 || m1 == s2 {
			t.Errorf("a marker shares the subject %q", m1)
		}
		if claim := ClaimSubject("kr", c1); claim == s1 || claim == s2 || claim == m1 {
			t.Errorf("a claim shares the subject %q", claim)
		}
		prefix, c, k, marker, err := ParseSubject(s1)
		if prefix != "kr" || c != c1 || k != k1 || marker || err != nil {
			t.Errorf("ParseSubject(%q) = %q %q %+v %t %v", s1, prefix, c, k, marker, err)
		}
		_, c, k, marker, err = ParseSubject(m1)
		if c != c1 || k != (Key{Group: g1, Resource: r1}) || !marker || err != nil {
			t.Errorf("ParseSubject(%q) = %q %+v %t %v", m1, c, k, marker, err)
		}
	})
}

// FuzzParseSubject verifies that every subject that ParseSubject accepts is in canonical form.
func FuzzParseSubject(f *testing.F) {
	for _, tt := range subjectTests {
		f.Add(tt.want)
	}
	f.Add("kr.c._control.snapshot.core.pods")
	f.Add("kr.c._control.snapshot.core.po=2")
	f.Add("kr.c._control.cluster._.claimed")
	f.Add("kr.c._control.resolved.core.pods")
	f.Fuzz(func(t *testing.T, s string) {
		prefix, c, k, marker, err := ParseSubject(s)
		if err != nil {
			return
		}
		forms := []string{Subject(prefix, c, k)}
		switch {
		case marker && k == (Key{}):
			forms = []string{ClaimSubject(prefix, c)}
		case marker:
			forms = []string{MarkerSubject(prefix, c, k.GroupResource()), ResolvedSubject(prefix, c, k.GroupResource())}
		}
		if !slices.Contains(forms, s) {
			t.Errorf("ParseSubject(%q) = %+v, which is written %q", s, k, forms)
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
