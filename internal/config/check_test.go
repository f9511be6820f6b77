package config

import (
	"strings"
	"testing"
)

func TestSelectorsThatAreFine(t *testing.T) {
	for _, s := range []string{
		"pods", "po", "Pod", "deployments.apps", "deployments.v1.apps", "Widget.example.com", "Widget.v1beta1.example.com",
		"*.cluster.x-k8s.io", "*.apps", "*",
	} {
		if err := checkSelector(s); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
}

// FuzzMaskURLs verifies that neither the masked value nor the error shows a part of a URL that can
// contain a password, whatever surrounds the password.
func FuzzMaskURLs(f *testing.F) {
	f.Add("nats", "user", "h.u,n@t#e/r?2", "host:4222")
	f.Add("tls", "", "hunter2", "a:1,ws://b@c:2")
	f.Fuzz(func(t *testing.T, scheme, user, password, host string) {
		const mark = "Xq9" // in no message and no scheme
		secret := mark + password + mark
		if strings.Contains(scheme+user+host, mark) {
			return
		}
		for _, value := range []string{
			scheme + "://" + user + ":" + secret + "@" + host,
			scheme + "://" + secret + "@" + host,
			"nats://a,nats://u:" + secret + "@" + host,
			"nats://" + host + "/?token=" + secret,
			"nats://" + host + ":" + secret,
		} {
			if got := maskURLs(value); strings.Contains(got, mark) {
				t.Errorf("%q is shown as %q", value, got)
			}
			var list List
			if list.Decode(value) != nil {
				continue
			}
			err := checkURLs(list)
			switch {
			case err == nil:
				t.Errorf("%q passed", value)
			case strings.Contains(err.Error(), mark):
				t.Errorf("%q: the error says %q", value, err)
			}
		}
	})
}

// FuzzMaskBrokers is [FuzzMaskURLs] for a list of brokers.
func FuzzMaskBrokers(f *testing.F) {
	f.Add("kafka", "user", "hu.n,t@e/r?2", "host:9092")
	f.Add("SASL_SSL", "", "hunter2", "a:1,b@c:2")
	f.Fuzz(func(t *testing.T, scheme, user, password, host string) {
		const mark = "Xq9"
		secret := mark + password + mark
		if strings.Contains(scheme+user+host, mark) {
			return
		}
		for _, value := range []string{
			scheme + "://" + user + ":" + secret + "@" + host,
			user + ":" + secret + "@" + host,
			"a:9092," + secret + "@" + host,
			"a:9092,b:" + secret,
		} {
			if got := maskBrokers(value); strings.Contains(got, mark) {
				t.Errorf("%q is shown as %q", value, got)
			}
			var list List
			if list.Decode(value) != nil {
				continue
			}
			err := checkBrokers(list)
			switch {
			case err == nil:
				t.Errorf("%q passed", value)
			case strings.Contains(err.Error(), mark):
				t.Errorf("%q: the error says %q", value, err)
			}
		}
	})
}
