package event

import (
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/test/lab/nametest"
)

func TestPartitionKey(t *testing.T) {
	tests := []struct {
		name string
		key  Key
		want string
	}{
		{"namespaced", Key{"apps", "deployments", "default", "web"}, "c1/apps/deployments/default/web"},
		{"core group", Key{"", "pods", "default", "web-0"}, "c1/core/pods/default/web-0"},
		{"cluster-scoped", Key{"", "nodes", "", "a.b"}, "c1/core/nodes/_/a.b"},
		{"name with colon", Key{"g.io", "clusterroles", "", "system:node"}, "c1/g.io/clusterroles/_/system:node"},
		{"name with spaces and letters", Key{"", "r", "", "é b"}, "c1/core/r/_/é b"},
		{"control characters", Key{"", "r", "", "a\nb\x7f\u0085"}, "c1/core/r/_/a%0Ab%7F%C2%85"},
		{"noncharacter and bad UTF-8", Key{"", "r", "", "\uffff\xff"}, "c1/core/r/_/%EF%BF%BF%FF"},
		{"replacement character", Key{"", "r", "", "\ufffd"}, "c1/core/r/_/\ufffd"},
		{"slash and percent", Key{"", "r", "", "a/b%2F"}, "c1/core/r/_/a%2Fb%252F"},
		{"namespace called _", Key{"", "r", "_", "n"}, "c1/core/r/%5F/n"},
		{"group called core", Key{"core", "r", "ns", "n"}, "c1/%63ore/r/ns/n"},
		{"group like control", Key{"_control", "snapshot", "ns", "n"}, "c1/%5Fcontrol/snapshot/ns/n"},
		{"empty", Key{}, "c1/core//_/"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := PartitionKey("c1", tt.key); got != tt.want {
				t.Errorf("PartitionKey = %q, want %q", got, tt.want)
			}
			if _, k, err := ParsePartitionKey(tt.want); k != tt.key || err != nil {
				t.Errorf("ParsePartitionKey(%q) = %+v, %v; want %+v", tt.want, k, err, tt.key)
			}
		})
	}
}

func TestParsePartitionKeyRefuses(t *testing.T) {
	tests := map[string]string{
		"nothing":         "",
		"four segments":   "c/core/pods/a",
		"six segments":    "c/core/pods/a/b/c",
		"empty group":     "c//pods/a/b",
		"empty namespace": "c/core/pods//b",
		"needless escape": "c/core/pods/a/%41",
		"bare percent":    "c/core/pods/a/100%",
		"bare newline":    "c/core/pods/a/b\n",
		"a marker's":      MarkerPartitionKey("c", schema.GroupResource{Resource: "pods"}),
	}
	for name, s := range tests {
		t.Run(name, func(t *testing.T) {
			if _, k, err := ParsePartitionKey(s); err == nil {
				t.Errorf("ParsePartitionKey(%q) = %+v, want an error", s, k)
			}
		})
	}
}

func FuzzPartitionKey(f *testing.F) {
	hostile := nametest.Hostile()
	for i, s := range hostile {
		f.Add("c1", "apps", "deployments", hostile[(i+7)%len(hostile)], s)
		f.Add(s, s, s, s, s)
	}
	f.Fuzz(func(t *testing.T, cluster, g, r, ns, n string) {
		k := Key{g, r, ns, n}
		s := PartitionKey(cluster, k)
		checkString(t, "partitionkey", s)
		if strings.Count(s, "/") != 4 {
			t.Errorf("PartitionKey(%+v) = %q, want four slashes", k, s)
		}
		gotCluster, got, err := ParsePartitionKey(s)
		if gotCluster != cluster || got != k || err != nil {
			t.Errorf("ParsePartitionKey(%q) = %q %+v %v, want %q %+v", s, gotCluster, got, err, cluster, k)
		}
	})
}

// checkString fails the test unless s is a valid String of CloudEvents 1.0, section 3.1.
func checkString(t *testing.T, name, s string) {
	t.Helper()
	if s == "" && name != "partitionkey" || !utf8.ValidString(s) {
		t.Errorf("%s = %q is not a CloudEvents string", name, s)
	}
	for _, r := range s {
		if r < 0x20 || r >= 0x7f && r <= 0x9f || r >= 0xfdd0 && r <= 0xfdef || r%0x10000 >= 0xfffe {
			t.Errorf("%s = %q holds %U", name, s, r)
		}
	}
}
