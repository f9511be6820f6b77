package main

import (
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/kuberelay/kuberelay/test/lab/natstest"
)

func TestTailRefuses(t *testing.T) {
	noJetStream := natstest.Start(t, func(o *server.Options) { o.JetStream = false }).URL
	for _, tc := range []struct {
		args, env string
		says      string
	}{
		{"-o=yaml", "", `--output="yaml": use text or json`},
		{"--color=blue", "", `--color="blue": use auto, always, or never`},
		{"--count=-1", "", "--count=-1"},
		{"--last --from-start", "", "--last and --from-start"},
		{"--since=10m --last", "", "--since and --last cannot be used together"},
		{"--since=10m --from-start", "", "--since and --from-start cannot be used together"},
		{"--since=10", "", `--since="10": use a duration in hours, minutes, and seconds, such as 10m or 24h, or a time`},
		{"--since=", "", `--since="": use a duration`},
		{"--since=false", "", `--since="false": use a duration`},
		{"--since=yesterday", "", `--since="yesterday": use`},
		{"--since=-10m", "", `--since="-10m" is not in the past`},
		{"--since=0s", "", `--since="0s" is not in the past`},
		{"--since=2999-01-01T00:00:00Z", "", "is not in the past"},
		{"--skip-past", "", "--skip-past requires --diff"},
		{"--resource=pods/log", "", `--resource="pods/log"`},
		{"--resource=", "", "--resource is empty"},
		{"--namespace=*", "", `--namespace="*"`},
		{"--namespace=", "", "--namespace is empty"},
		{"pods", "", "unknown command"},
		{"", "KUBERELAY_SINK=stdout", "KUBERELAY_SINK is stdout"},
		{"", "KUBERELAY_NATS_LISTEN=127.0.0.1:0", "KUBERELAY_NATS_LISTEN has port 0"},
		{"", "KUBERELAY_NATS_URL=" + noJetStream, "JetStream is not enabled"},
	} {
		t.Run(tc.args+tc.env, func(t *testing.T) {
			if name, value, ok := strings.Cut(tc.env, "="); ok {
				t.Setenv(name, value)
			}
			_, stderr := runTail(t, exitUsage, strings.Fields(tc.args)...)
			if !strings.Contains(stderr, tc.says) || strings.Count(stderr, "\n") != 1 {
				t.Errorf("got %q, want one line with %q", stderr, tc.says)
			}
		})
	}
}

func TestUseColor(t *testing.T) {
	for _, tc := range []struct {
		color         string
		terminal      bool
		noColor, term string
		want          bool
	}{
		{"auto", true, "", "xterm", true},
		{"auto", false, "", "xterm", false},
		{"auto", true, "1", "xterm", false},
		{"auto", true, "", "dumb", false},
		{"always", false, "1", "dumb", true},
		{"never", true, "", "xterm", false},
	} {
		t.Setenv("NO_COLOR", tc.noColor)
		t.Setenv("TERM", tc.term)
		f := tailFlags{color: tc.color}
		if got, err := f.useColor(tc.terminal); err != nil || got != tc.want {
			t.Errorf("%+v: got %v (%v)", tc, got, err)
		}
	}
}
