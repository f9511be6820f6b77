package nats

import (
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// TestMissing verifies that missing lists the permissions in docs/permissions.md that a user lacks.
func TestMissing(t *testing.T) {
	want := Options{Connection: Connection{Stream: "S", SubjectPrefix: "p", Cluster: "c"}}
	allow := func(subjects ...string) *server.SubjectPermission { return &server.SubjectPermission{Allow: subjects} }
	all := []string{
		"p.c.>", "$JS.API.STREAM.INFO.S", "$JS.API.STREAM.MSG.GET.S", "$JS.API.STREAM.PURGE.S",
		"$JS.API.CONSUMER.CREATE.S.>", "$JS.API.CONSUMER.MSG.NEXT.S.*", "$JS.API.CONSUMER.DELETE.S.*",
	}
	inbox := allow("_INBOX.kuberelay.>")
	for name, c := range map[string]struct {
		has  server.Permissions
		want []string
	}{
		"no limits":     {server.Permissions{}, nil},
		"exactly those": {server.Permissions{Publish: allow(all...), Subscribe: inbox}, nil},
		"wider ones":    {server.Permissions{Publish: allow("p.>", "$JS.API.>"), Subscribe: allow(">")}, nil},
		"not the subjects": {
			server.Permissions{Publish: allow(append([]string{"p.other.>"}, all[1:]...)...), Subscribe: inbox}, []string{"publish p.c.>"},
		},
		"only some subjects": {
			server.Permissions{Publish: allow(append([]string{"p.c.core.>"}, all[1:]...)...), Subscribe: inbox}, []string{"publish p.c.>"},
		},
		"one is denied": {
			server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"$JS.API.STREAM.PURGE.*"}}}, []string{"publish $JS.API.STREAM.PURGE.S"},
		},
		"a part is denied": {
			server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"p.*.core.>"}}}, []string{"publish p.c.>"},
		},
		"another inbox": {server.Permissions{Subscribe: allow("_INBOX.other.>")}, []string{"subscribe _INBOX.kuberelay.>"}},
	} {
		if got := missing(&c.has, want, false); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	want.Cluster = ""
	if got := missing(&server.Permissions{Publish: allow(all[1:]...)}, want, false); len(got) > 0 {
		t.Errorf("without a name of the cluster: %q", got)
	}
	if got := missing(&server.Permissions{Publish: allow(all[1:]...)}, want, true); !slices.Equal(got, []string{"publish $JS.API.STREAM.CREATE.S"}) {
		t.Errorf("without a stream: %q", got)
	}
}

// TestSkewOf verifies the skew of a server's clock. The middle of a slow request used to count as the time
// of the response, so a server that took 10 s seemed to have a clock that is 5 s behind.
func TestSkewOf(t *testing.T) {
	sent := time.Now()
	received := sent.Add(10 * time.Second)
	for _, c := range []struct{ at, want time.Duration }{
		{0, 0}, {10 * time.Second, 0}, {-time.Second, -time.Second}, {13 * time.Second, 3 * time.Second},
	} {
		if got := skewOf(sent.Add(c.at), sent, received); got != c.want {
			t.Errorf("%s after the request: got %s, want %s", c.at, got, c.want)
		}
	}
}
