package chart

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/test/harness"
)

// valueName returns the chart's name of a variable, by the rule in its README.
func valueName(variable string) string {
	words := strings.Split(strings.ToLower(strings.TrimPrefix(variable, config.Prefix)), "_")
	for i := 1; i < len(words); i++ {
		words[i] = strings.ToUpper(words[i][:1]) + words[i][1:]
	}
	return strings.Join(words, "")
}

// another returns a value of the variable other than its default: as it is written in values.yaml,
// and as the forwarder must receive it.
func another(t *testing.T, f config.Field) (value any, text string) {
	t.Helper()
	name := valueName(f.Name)
	switch {
	case f.File && f.Secret:
		return values{"secret": "of-" + strings.ToLower(name), "key": "k"}, "/etc/kuberelay/" + name + "/k"
	case f.File:
		return values{"configMap": "of-" + strings.ToLower(name), "key": "k"}, "/etc/kuberelay/" + name + "/k"
	case f.Values != nil:
		last := f.Values[len(f.Values)-1]
		if last == f.Default {
			last = f.Values[0]
		}
		return last, last
	case f.Type == "number":
		n, err := strconv.Atoi(f.Default)
		if err != nil {
			t.Fatal(err)
		}
		if n++; f.Maximum != "" && fmt.Sprint(n-1) == f.Maximum {
			n -= 2
		}
		return n, strconv.Itoa(n)
	case f.Type == "true or false":
		return f.Default != "true", strconv.FormatBool(f.Default != "true")
	case f.Type == "duration":
		return "1m1s", "1m1s"
	case f.Type == "address":
		return "0.0.0.0:9999", "0.0.0.0:9999"
	case strings.HasPrefix(f.Type, "list"):
		return strings.Split(f.Example, ","), f.Example
	case strings.HasPrefix(f.Example, "/"):
		return f.Example + "/other", f.Example + "/other"
	default:
		return "other", "other"
	}
}

// rounds are values that the chart refuses beside those of another round.
var rounds = [][]string{
	{"clusterName", "clusterReplaces", "kafkaTransactionalId", "natsTokenFile", "kafkaOauthTokenFile"},
	{
		"kubeconfigContexts", "natsUser", "natsPasswordFile", "kafkaIdempotent",
		"kafkaOauthTokenUrl", "kafkaOauthClientId", "kafkaOauthClientSecretFile", "kafkaOauthScopes", "kafkaOauthAudience", "kafkaOauthCaFile",
	},
	{"kubeconfigDir", "natsCredsFile"},
	{"clusterApi", "clusterApiManagementName", "natsNkeyFile"},
}

// fieldsOf returns the variables of a round, which include those of no round.
func fieldsOf(round []string) []config.Field {
	others := slices.DeleteFunc(slices.Concat(rounds...), func(name string) bool { return slices.Contains(round, name) })
	return slices.DeleteFunc(config.Fields(), func(f config.Field) bool { return slices.Contains(others, valueName(f.Name)) })
}

// TestEveryVariable verifies that the chart has a value for each variable of the forwarder and
// passes its text on unchanged. This includes texts that Helm tends to change, such as large
// numbers.
func TestEveryVariable(t *testing.T) {
	for _, round := range rounds {
		t.Run(round[0], func(t *testing.T) { testVariables(t, fieldsOf(round)) })
	}
}

func testVariables(t *testing.T, fields []config.Field) {
	given, want, files := values{}, map[string]string{}, map[string]string{}
	for _, f := range fields {
		name := valueName(f.Name)
		if given[name], want[f.Name] = another(t, f); f.File {
			files[name+"/k"] = "of-" + strings.ToLower(name) + "/k"
		}
	}
	given["kafkaBatchBytes"], want["KUBERELAY_KAFKA_BATCH_BYTES"] = 104857600, "104857600"
	given["namespaceSelector"], want["KUBERELAY_NAMESPACE_SELECTOR"] = `team in (a,b),!x`, `team in (a,b),!x`
	given["filter"], want["KUBERELAY_FILTER"] = "resource.kind != \"Pod\" ||\n  object.status.phase == 'Failed'", "resource.kind != \"Pod\" ||\n  object.status.phase == 'Failed'"
	given["dropFields"], want["KUBERELAY_DROP_FIELDS"] = []string{"nodes:.status", `*:.metadata.annotations["a,b"]`}, `nodes:.status,*:.metadata.annotations["a,b"]`
	given["kafkaReplication"], want["KUBERELAY_KAFKA_REPLICATION"] = 0, "0"
	given["leaseDuration"], want["KUBERELAY_LEASE_DURATION"] = "2m", "2m" // the lease durations depend on each other
	given["leaseRetryPeriod"], want["KUBERELAY_LEASE_RETRY_PERIOD"] = "11s", "11s"

	m := render(t, "kuberelay", values{"config": given, "terminationGracePeriodSeconds": 72, "rbac": values{"secrets": true}})
	if diff := cmp.Diff(want, m.environment(t)); diff != "" {
		t.Errorf("the forwarder's environment (-want +got):\n%s", diff)
	}
	mounted := map[string]string{}
	for _, v := range m.podTemplate(t).Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			switch {
			case s.Secret != nil:
				mounted[s.Secret.Items[0].Path] = s.Secret.Name + "/" + s.Secret.Items[0].Key
			case s.ConfigMap != nil:
				mounted[s.ConfigMap.Items[0].Path] = s.ConfigMap.Name + "/" + s.ConfigMap.Items[0].Key
			}
		}
	}
	if diff := cmp.Diff(files, mounted); diff != "" {
		t.Errorf("the files below /etc/kuberelay (-want +got):\n%s", diff)
	}
}

// TestStringsForLists verifies that every list value can also be written as one string.
func TestStringsForLists(t *testing.T) {
	for _, round := range rounds {
		lists, texts := values{"resources": []string{"pods"}}, values{"resources": "pods"}
		for _, f := range fieldsOf(round) {
			if name := valueName(f.Name); strings.HasPrefix(f.Type, "list") && !f.Required {
				first, _, _ := strings.Cut(f.Example, ",")
				lists[name], texts[name] = []string{first}, first
			}
		}
		for _, v := range []values{lists, texts} {
			v["sink"] = "kafka"
			if _, ok := v["kafkaOauthScopes"]; ok {
				v["kafkaSaslMechanism"], v["kafkaTls"], v["kafkaOauthTokenUrl"] = "OAUTHBEARER", true, "https://login.example.com/token"
				v["kafkaOauthClientId"], v["kafkaOauthClientSecretFile"] = "kuberelay", values{"secret": "kafka"}
			}
		}
		rbac := values{"secrets": true} // for the Secrets of Cluster API
		want := render(t, "kuberelay", values{"config": lists, "rbac": rbac})
		if diff := cmp.Diff(want, render(t, "kuberelay", values{"config": texts, "rbac": rbac})); diff != "" || len(texts) < 8 {
			t.Errorf("with %d texts (-lists +texts):\n%s", len(texts), diff)
		}
	}
}

// TestDefaultEnvironment verifies that a value with its default sets no variable, so that the
// forwarder's own default applies. Only the data directory and its size limit are set, because they
// depend on the volume.
func TestDefaultEnvironment(t *testing.T) {
	got := render(t, "kuberelay", values{"config": values{"resources": []string{"pods"}}}).environment(t)
	want := map[string]string{"KUBERELAY_RESOURCES": "pods", "KUBERELAY_DATA_DIR": "/var/lib/kuberelay", "KUBERELAY_NATS_MAX_BYTES": "6442450944"}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestSchemaIsStrict verifies that the schema rejects unknown values. The exceptions are global, to
// which Helm adds values, and the user's objects in extraObjects.
func TestSchemaIsStrict(t *testing.T) {
	content, err := os.ReadFile(chart + "/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema any
	if err := json.Unmarshal(content, &schema); err != nil {
		t.Fatal(err)
	}
	objects := 0
	var walk func(path string, x any)
	walk = func(path string, x any) {
		switch x := x.(type) {
		case []any:
			for i, of := range x {
				walk(fmt.Sprintf("%s/%d", path, i), of)
			}
		case map[string]any:
			if more, ok := x["additionalProperties"]; x["type"] == "object" && path != "/properties/global" && path != "/properties/extraObjects/items" {
				objects++
				if !ok || more == true {
					t.Errorf("%s accepts any property", path)
				}
			}
			for name, of := range x {
				walk(path+"/"+name, of)
			}
		}
	}
	walk("", schema)
	if objects == 0 {
		t.Error("there is no object in it")
	}
}

// TestWrongTypesAreRefused verifies that the schema checks the type of each value, and the fields
// of each value that refers to a file.
func TestWrongTypesAreRefused(t *testing.T) {
	wrong := values{}
	for _, f := range config.Fields() {
		wrong[valueName(f.Name)] = values{"no": "such"}
	}
	_, err := helmTemplate(t, "kuberelay", values{"config": wrong})
	if err == nil {
		t.Fatal("Helm renders it")
	}
	for name := range wrong {
		if !strings.Contains(err.Error(), "- at '/config/"+name+"': ") {
			t.Errorf("config.%s: an object with an unknown key is accepted", name)
		}
	}
}

// TestLint verifies that helm lint accepts the chart with each values file in ci/.
func TestLint(t *testing.T) {
	files, err := filepath.Glob(chart + "/ci/*-values.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files of values in ci/: %v", len(files), err)
	}
	for _, file := range files {
		if out, stderr, err := run(t.Context(), "", tool(t, "helm"), "lint", "--strict", "--values", file, chart); err != nil {
			t.Errorf("%s: %v\n%s%s", file, err, out, stderr)
		}
	}
}

// TestUnits_Slow runs the test suites in charts/kuberelay/tests.
func TestUnits_Slow(t *testing.T) {
	if out, stderr, err := run(t.Context(), "", tool(t, "helm-unittest"), "--strict", chart); err != nil {
		t.Errorf("%v\n%s%s", err, out, stderr)
	}
}

// effective returns the output of "forwarder config" for the environment, by variable.
func effective(t *testing.T, env map[string]string) map[string]string {
	t.Helper()
	buildForwarder(t)
	var pairs []string
	for name, text := range env {
		pairs = append(pairs, name+"="+text)
	}
	out, stderr, err := run(t.Context(), "", "env", append(append([]string{"-i"}, pairs...), binary, "config", "--output=json")...)
	if err != nil {
		t.Fatalf("forwarder config: %v\n%s", err, stderr)
	}
	var all []struct{ Name, Value string }
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for _, v := range all {
		values[v.Name] = v.Value
	}
	return values
}

func buildForwarder(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(binary); err == nil {
		return
	}
	if err := harness.Build(t.Context(), binary); err != nil {
		t.Fatal(err)
	}
}

// TestEnvFrom verifies that with envFrom, the container's own env sets every variable of the
// forwarder, because env takes precedence over envFrom. Each variable has the same value as without
// envFrom.
func TestEnvFrom(t *testing.T) {
	for name, given := range map[string]values{
		"the built-in bus": {"resources": []string{"pods"}},
		"a bus outside":    {"resources": []string{"pods"}, "sink": "kafka", "kafkaBrokers": []string{"kafka"}, "filter": "true"},
		"standard output":  {"resources": []string{"pods"}, "sink": "stdout"},
	} {
		t.Run(name, func(t *testing.T) {
			without := render(t, "kuberelay", values{"config": given}).environment(t)
			with := render(t, "kuberelay", values{"config": given, "envFrom": []any{values{"configMapRef": values{"name": "a"}}}}).environment(t)
			for _, f := range config.Fields() {
				if _, set := with[f.Name]; !set {
					t.Errorf("envFrom can set %s", f.Name)
				}
			}
			if diff := cmp.Diff(effective(t, without), effective(t, with)); diff != "" {
				t.Errorf("the configuration with envFrom (-without +with):\n%s", diff)
			}
		})
	}
}
