package chart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/test/lab/tlstest"
)

// TestTheForwarderAcceptsWhatTheChartAccepts_Slow renders the chart with each value alone, and with
// values of which the forwarder accepts only one. If the chart accepts them, the forwarder must accept
// them too: otherwise, the installation succeeds, and no pod starts.
func TestTheForwarderAcceptsWhatTheChartAccepts_Slow(t *testing.T) {
	file, dir := credentials(t), t.TempDir()
	of := map[string]any{}
	var alone [][]string
	for _, f := range config.Fields() {
		name := valueName(f.Name)
		switch value, _ := another(t, f); {
		case f.File:
			of[name] = values{"path": file}
		case f.Example != "" && !strings.HasPrefix(f.Type, "list"):
			of[name] = f.Example
		default:
			of[name] = value
		}
		if f.Type == "number" { // an example is a text
			of[name], _ = another(t, f)
		}
		alone = append(alone, []string{name})
	}
	of["kubeconfigDir"], of["kafkaReplication"] = dir, 1
	of["kafkaSaslMechanism"], of["kafkaTls"], of["natsUrl"], of["kubeQps"] = "OAUTHBEARER", true, "tls://nats:4222", 1000
	for _, names := range append(alone,
		[]string{"clusterName", "kubeconfigDir"}, []string{"clusterName", "kubeconfigContexts"}, []string{"clusterName", "clusterApi"},
		[]string{"clusterName", "clusterReplaces", "kubeconfigDir"}, []string{"kafkaTransactionalId", "kubeconfigDir"},
		[]string{"kubeconfigContexts", "kubeconfigDir"}, []string{"kubeconfigDir", "clusterApi"}, []string{"kafkaTransactionalId", "kafkaIdempotent"},
		[]string{"natsUrl", "natsTokenFile", "natsCredsFile"}, []string{"natsUrl", "natsUser", "natsPasswordFile", "natsNkeyFile"},
		[]string{"natsUrl", "natsTlsCertFile"}, []string{"natsUrl", "natsTlsKeyFile"}, []string{"natsUrl", "natsCredsFile", "natsNkeyFile"},
		[]string{"kafkaTls", "kafkaTlsCertFile"}, []string{"kafkaTls", "kafkaTlsKeyFile"},
		[]string{"kafkaTls", "kafkaSaslMechanism", "kafkaOauthTokenFile", "kafkaOauthScopes"},
		[]string{"kafkaTls", "kafkaSaslMechanism", "kafkaOauthTokenFile", "kafkaOauthCaFile"},
	) {
		t.Run(strings.Join(names, "+"), func(t *testing.T) {
			given := values{"resources": []string{"pods"}}
			for _, name := range names {
				given[name] = of[name]
			}
			if strings.HasPrefix(names[0], "kafka") {
				given["sink"], given["kafkaBrokers"] = "kafka", []string{"kafka"}
			}
			m, err := helmTemplate(t, "kuberelay", values{"config": given, "rbac": values{"secrets": true}})
			if err != nil {
				return
			}
			for _, pair := range os.Environ() {
				if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, config.Prefix) {
					t.Setenv(name, "")
				}
			}
			for name, text := range m.environment(t) {
				t.Setenv(name, text)
			}
			if _, err := config.Load(config.Forwarding); err != nil {
				t.Errorf("the chart accepts the values, and the forwarder does not: %v", err)
			}
		})
	}
}

// credentials writes a file that is valid for each variable that names a file.
func credentials(t *testing.T) string {
	t.Helper()
	_, cert, key := tlstest.NewCA(t).Issue("kuberelay")
	all := "-----BEGIN NATS USER JWT-----\nx\n-----BEGIN USER NKEY SEED-----\nSUx\n"
	for _, file := range []string{cert, key} {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all += string(content)
	}
	file := filepath.Join(t.TempDir(), "credentials")
	if err := os.WriteFile(file, []byte(all), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
