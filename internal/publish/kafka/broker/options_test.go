package broker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/failure"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/login"
)

func TestOptionsAreValidated(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const secret = "Hunter2Hunter2"
	password, empty, junk := file("password", secret+"\n"), file("empty", "\n"), file("junk", secret)
	tests := []struct {
		name  string
		opts  Options
		parts []string
	}{
		{"no broker", Options{}, []string{"set KUBERELAY_KAFKA_BROKERS"}},
		{"scheme", Options{Addrs: []string{"kafka://a:9092"}}, []string{"KUBERELAY_KAFKA_BROKERS", `"kafka://a:9092"`, "host:9092"}},
		{"port", Options{Addrs: []string{"a:none"}}, []string{`"a:none"`}},
		{"two in one", Options{Addrs: []string{"a:1,b:2"}}, []string{"KUBERELAY_KAFKA_BROKERS"}},
		{"credentials", Options{Addrs: []string{"user:" + secret + "@a:9092"}}, []string{"KUBERELAY_KAFKA_PASSWORD_FILE"}},
		{"authority without TLS", Options{CAFile: junk}, []string{"KUBERELAY_KAFKA_TLS_CA_FILE is " + junk, "KUBERELAY_KAFKA_TLS=true"}},
		{"certificate without TLS", Options{CertFile: junk, KeyFile: junk}, []string{"KUBERELAY_KAFKA_TLS_CERT_FILE is " + junk, "KUBERELAY_KAFKA_TLS=true"}},
		{"certificate without key", Options{TLS: true, CertFile: junk}, []string{"KUBERELAY_KAFKA_TLS_KEY_FILE", "must both be set"}},
		{"junk for a certificate", Options{TLS: true, CertFile: junk, KeyFile: junk}, []string{"KUBERELAY_KAFKA_TLS_CERT_FILE", junk}},
		{"junk for an authority", Options{TLS: true, CAFile: junk}, []string{"KUBERELAY_KAFKA_TLS_CA_FILE", junk + " contains no PEM certificate"}},
		{"no authority", Options{TLS: true, CAFile: dir + "/none"}, []string{"KUBERELAY_KAFKA_TLS_CA_FILE", dir + "/none", "no such file"}},
		{"mechanism", Options{SASLMechanism: "GSSAPI", User: "u", PasswordFile: password}, []string{`KUBERELAY_KAFKA_SASL_MECHANISM is "GSSAPI"`, "SCRAM-SHA-512"}},
		{"no mechanism", Options{User: "u", PasswordFile: password}, []string{"set KUBERELAY_KAFKA_SASL_MECHANISM"}},
		{"no user", Options{SASLMechanism: login.Plain, PasswordFile: password}, []string{"needs KUBERELAY_KAFKA_USER"}},
		{"no password", Options{SASLMechanism: login.Plain, User: "u"}, []string{"KUBERELAY_KAFKA_PASSWORD_FILE"}},
		{"no file", Options{SASLMechanism: login.Plain, User: "u", PasswordFile: dir + "/none"}, []string{"KUBERELAY_KAFKA_PASSWORD_FILE", dir + "/none"}},
		{"empty file", Options{SASLMechanism: login.Plain, User: "u", PasswordFile: empty}, []string{"KUBERELAY_KAFKA_PASSWORD_FILE", empty + " is empty"}},
		{"not for SCRAM", Options{SASLMechanism: login.ScramSHA256, User: "u", PasswordFile: file("control", secret+"\x07")}, []string{"KUBERELAY_KAFKA_PASSWORD_FILE", "character"}},
		{"timeout", Options{RequestTimeout: -1}, []string{"-1ns"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.opts.Addrs == nil && tt.name != "no broker" {
				tt.opts.Addrs = []string{"localhost:9092"}
			}
			c, err := New(tt.opts)
			if err == nil {
				c.Close()
			}
			wantMisconfigured(t, err, failure.Never, tt.parts...)
			if strings.Contains(err.Error(), secret) {
				t.Errorf("the secret is in: %v", err)
			}
		})
	}
}

func TestPortMayBeLeftOut(t *testing.T) {
	o := Options{Addrs: []string{"a", "b:1", "::1", "[::1]:2"}}.withDefaults()
	if got, want := o.brokers(), "a:9092,b:1,[::1]:9092,[::1]:2"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if err := o.validate(); err != nil {
		t.Error(err)
	}
}
