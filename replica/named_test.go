package replica

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestErrorsNameOptions verifies that an error names the option to change. A program that uses this
// package does not use the environment variables of the forwarder.
func TestErrorsNameOptions(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for option, open := range map[string]func() (*Bus, error){
		"NATSOptions.URLs":         func() (*Bus, error) { return NATS(t.Context(), NATSOptions{}) },
		"NATSOptions.TokenFile":    func() (*Bus, error) { return NATS(t.Context(), NATSOptions{URLs: []string{"nats://secret@nats:4222"}}) },
		"NATSOptions.PasswordFile": func() (*Bus, error) { return NATS(t.Context(), NATSOptions{URLs: []string{"nats://nats"}, User: "a"}) },
		"NATSOptions.NkeyFile": func() (*Bus, error) {
			return NATS(t.Context(), NATSOptions{URLs: []string{"nats://nats"}, User: "a", PasswordFile: secret, TokenFile: secret})
		},
		"KafkaOptions.Brokers": func() (*Bus, error) { return Kafka(KafkaOptions{}) },
		"KafkaOptions.CAFile":  func() (*Bus, error) { return Kafka(KafkaOptions{Brokers: []string{"kafka"}, CAFile: "ca.crt"}) },
		"KafkaOptions.PasswordFile": func() (*Bus, error) {
			return Kafka(KafkaOptions{Brokers: []string{"kafka"}, SASLMechanism: "PLAIN", User: "a"})
		},
		"KafkaOptions.OAuth.TokenFile": func() (*Bus, error) {
			return Kafka(KafkaOptions{Brokers: []string{"kafka"}, SASLMechanism: "OAUTHBEARER"})
		},
		"KafkaOptions.OAuth.SecretFile": func() (*Bus, error) {
			return Kafka(KafkaOptions{Brokers: []string{"kafka"}, SASLMechanism: "OAUTHBEARER", OAuth: KafkaOAuth{TokenURL: "https://a", ClientID: "b"}})
		},
	} {
		_, err := open()
		if err == nil || !strings.Contains(err.Error(), option) || strings.Contains(err.Error(), "KUBERELAY_") {
			t.Errorf("%v, want an error with %s and no variable", err, option)
		}
	}
}
