package chart

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// example is an installation that the documentation shows.
type example struct {
	name      string
	account   string // the installation's service account
	manifests func(t *testing.T, namespace string) manifests
}

// examples returns the installations in the documentation, and the installations that get the most
// permissions without an opt-in value.
func examples(t *testing.T) (all []example) {
	t.Helper()
	for name, config := range map[string]values{
		"everything":               {"resources": []string{"*"}},
		"everything in namespaces": {"resources": []string{"*"}, "namespaces": []string{"team-a"}},
	} {
		all = append(all, chartExample(name, values{"config": config}))
	}
	files, err := filepath.Glob(chart + "/ci/*-values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		all = append(all, chartExample(strings.TrimPrefix(file, root+"/"), parse[values](t, read(t, file))))
	}
	for _, pattern := range []string{"*.md", "docs/*.md", "charts/*/*.md"} {
		pages, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, page := range pages {
			all = append(all, pageExamples(t, page)...)
		}
	}
	sidecar := decodeAll(t, read(t, root+"/examples/sidecar.yaml"))
	all = append(all, example{name: "examples/sidecar.yaml", account: "shop", manifests: func(_ *testing.T, namespace string) manifests {
		for _, o := range sidecar {
			o.SetNamespace(namespace)
		}
		for _, o := range sidecar.of("RoleBinding") {
			subject := o.Object["subjects"].([]any)[0].(map[string]any)
			subject["namespace"] = namespace
		}
		return sidecar
	}})
	slices.SortStableFunc(all, func(a, b example) int { return strings.Compare(a.name, b.name) })
	return all
}

var (
	block   = regexp.MustCompile("(?s)\n```(yaml|sh|console)\n(.*?\n)```\n")
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	install = regexp.MustCompile(`(?m)^(?:\$ )?helm install((?:.*\\\n)*.*)`)
)

// pageExamples returns the examples on a page: chart values, helm install commands, and roles.
func pageExamples(t *testing.T, page string) (all []example) {
	t.Helper()
	text := string(read(t, page))
	chartValues := parse[values](t, read(t, chart+"/values.yaml"))
	for _, at := range block.FindAllStringSubmatchIndex(text, -1) {
		language, content := text[at[2]:at[3]], text[at[4]:at[5]]
		name := strings.TrimPrefix(page, root+"/")
		if headings := heading.FindAllStringSubmatch(text[:at[0]], -1); len(headings) > 0 {
			name += ", " + headings[len(headings)-1][1]
		}
		if language != "yaml" {
			for _, call := range install.FindAllStringSubmatch(content, -1) {
				words := strings.Fields(strings.NewReplacer("\\\n", " ", "'", "").Replace(call[1]))
				all = append(all, installExample(name+", helm install", words))
			}
			continue
		}
		var v values
		if yaml.Unmarshal([]byte(content), &v) != nil || len(v) == 0 {
			continue // part of a manifest
		}
		if o := (&unstructured.Unstructured{Object: v}); strings.HasSuffix(o.GetKind(), "Role") {
			rules := convert[rbacv1.ClusterRole](t, o).Rules
			if len(rules[0].NonResourceURLs) > 0 {
				continue // for metrics readers
			}
			all = append(all, example{name: name, account: "kr-kuberelay", manifests: func(t *testing.T, namespace string) manifests {
				return bound(t, namespace, rules...)
			}})
			continue
		}
		isValues := true
		for key := range v {
			_, known := chartValues[key]
			isValues = isValues && known
		}
		if isValues {
			all = append(all, chartExample(name, v))
		}
	}
	return all
}

// chartExample returns an installation of the chart with the given values. It watches pods if the
// values name no resources.
func chartExample(name string, v values) example {
	config, _ := v["config"].(map[string]any)
	if of, ok := v["config"].(values); ok {
		config = of
	}
	config = maps.Clone(config)
	if config == nil {
		config = values{}
	}
	if config["resources"] == nil {
		config["resources"] = []string{"pods"}
	}
	v = maps.Clone(v)
	v["config"] = config
	return example{name: name, account: "kr-kuberelay", manifests: func(t *testing.T, namespace string) manifests { return render(t, namespace, v) }}
}

// installExample returns the installation that a helm install command creates. The words are the
// ones after "helm install".
func installExample(name string, words []string) example {
	return example{name: name, account: "kr-kuberelay", manifests: func(t *testing.T, namespace string) manifests {
		args := slices.Concat([]string{"template", "kr", root + "/" + words[1]}, words[2:], []string{"--namespace", namespace})
		out, stderr, err := run(t.Context(), "", tool(t, "helm"), args...)
		if err != nil {
			t.Fatalf("helm %v: %v\n%s", args, err, stderr)
		}
		return decodeAll(t, []byte(out))
	}}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func parse[T any](t *testing.T, content []byte) (v T) {
	t.Helper()
	if err := yaml.Unmarshal(content, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func decodeAll(t *testing.T, content []byte) manifests {
	t.Helper()
	m, err := decode(content)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
