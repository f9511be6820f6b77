package chart

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/test/harness"
)

// effective returns what "forwarder config" prints in the environment, by variable.
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

// TestEnvFrom: with envFrom, every variable of the forwarder is set in the container itself,
// which takes precedence, and its value is the one that it has without envFrom.
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
				t.Errorf("what is in effect with envFrom (-without +with):\n%s", diff)
			}
		})
	}
}
