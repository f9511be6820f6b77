package chart

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write charts/kuberelay/files/resources.yaml anew")

// known is a line of files/resources.yaml.
type known struct {
	Name       string   `json:"name"`
	Group      string   `json:"group"`
	Namespaced bool     `json:"namespaced"`
	Also       []string `json:"also"` // singular, kind in lower case, short names
}

// TestKnownResources: what the chart takes for Kubernetes' own resources is what the
// API server serves.
func TestKnownResources(t *testing.T) {
	client, err := discovery.NewDiscoveryClientForConfig(cluster.ControlPlane(t).Config())
	if err != nil {
		t.Fatal(err)
	}
	version, err := client.ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	of := version.Major + "." + version.Minor
	file := filepath.Join(chart, "files", "resources.yaml")
	content, err := os.ReadFile(file)
	if err != nil && !*update {
		t.Fatal(err)
	}
	served := servedResources(t, client)
	if *update {
		writeKnown(t, file, of, served)
		return
	}
	var got struct {
		Kubernetes string  `json:"kubernetes"`
		Resources  []known `json:"resources"`
	}
	if err := yaml.Unmarshal(content, &got); err != nil {
		t.Fatal(err)
	}
	if got.Kubernetes != of { // of KUBEBUILDER_ASSETS: what both have has to be the same
		both := func(one, other []known) []known {
			return slices.DeleteFunc(slices.Clone(one), func(r known) bool {
				return !slices.ContainsFunc(other, func(o known) bool { return o.Name == r.Name && o.Group == r.Group })
			})
		}
		got.Resources, served = both(got.Resources, served), both(served, got.Resources)
	}
	if want := served; !slices.EqualFunc(got.Resources, want, func(a, b known) bool { return fmt.Sprint(a) == fmt.Sprint(b) }) {
		t.Errorf("got  %v\nwant %v\nrun: go test ./test/chart -run TestKnownResources -update", got.Resources, want)
	}
}

// servedResources gives what can be listed and watched, the core group first, as
// kubectl would choose.
func servedResources(t *testing.T, client discovery.DiscoveryInterface) []known {
	t.Helper()
	lists, err := client.ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	var all []known
	for _, l := range lists {
		group, _, found := strings.Cut(l.GroupVersion, "/")
		if !found {
			group = ""
		}
		for _, r := range l.APIResources {
			if !watchable(r) || strings.Contains(r.Name, "/") {
				continue
			}
			also := append([]string{r.SingularName, strings.ToLower(r.Kind)}, r.ShortNames...)
			slices.Sort(also)
			also = slices.DeleteFunc(slices.Compact(also), func(s string) bool { return s == "" || s == r.Name })
			all = append(all, known{Name: r.Name, Group: group, Namespaced: r.Namespaced, Also: also})
		}
	}
	slices.SortFunc(all, func(a, b known) int { return strings.Compare(a.Group+" "+a.Name, b.Group+" "+b.Name) })
	return all
}

func watchable(r metav1.APIResource) bool {
	return slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "watch")
}

func writeKnown(t *testing.T, file, version string, all []known) {
	t.Helper()
	var b strings.Builder
	b.WriteString("# What Kubernetes itself serves and lets be watched. Made by\n# \"go test ./test/chart -run TestKnownResources -update\".\n")
	fmt.Fprintf(&b, "kubernetes: %q\nresources:\n", version)
	for _, r := range all {
		also := strings.Join(r.Also, `", "`) // quoted, or the short name of nodes would be false
		fmt.Fprintf(&b, "- {name: %s, group: %q, namespaced: %v, also: [%s]}\n", r.Name, r.Group, r.Namespaced, `"`+also+`"`)
	}
	if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
