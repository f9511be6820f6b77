package observe

import (
	"encoding/base64"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kuberelay/kuberelay/internal/check"
	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/test/lab/tlstest"
)

func token(claims string) string {
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"none"}`)) + "." + encode([]byte(claims)) + ".signature"
}

func TestJWT(t *testing.T) {
	for claims, want := range map[string]check.Validity{
		`{"exp": 2000, "nbf": 1000, "iat": 900}`: {What: "it", From: time.Unix(1000, 0), Until: time.Unix(2000, 0)},
		`{"exp": 2000, "iat": 900}`:              {What: "it", From: time.Unix(900, 0), Until: time.Unix(2000, 0)},
	} {
		if got, ok := jwt("it", token(claims)); !ok || got != want {
			t.Errorf("%s: got %+v, %v", claims, got, ok)
		}
	}
	for _, without := range []string{"", "opaque", "a.b.c", token(`{"iat": 900}`), token(`not JSON`)} {
		if got, ok := jwt("it", without); ok {
			t.Errorf("%s: got %+v", without, got)
		}
	}
}

func TestKubeconfig(t *testing.T) {
	ca := tlstest.NewCA(t)
	_, cert, _ := ca.Issue("me")
	tokenFile := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(tokenFile, []byte(token(`{"exp": 2000}`)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	all := credentials(&rest.Config{BearerTokenFile: tokenFile, TLSClientConfig: rest.TLSClientConfig{CertFile: cert}})
	if got := all[check.ServerToken]; len(got) != 1 || !got[0].Until.Equal(time.Unix(2000, 0)) {
		t.Errorf("token: %+v", got)
	}
	if got := all[check.ClientCertificate]; len(got) != 1 || got[0].Err != nil || time.Until(got[0].Until) < time.Hour {
		t.Errorf("certificate: %+v", got)
	}
	all = credentials(&rest.Config{BearerTokenFile: tokenFile + "x", TLSClientConfig: rest.TLSClientConfig{CertData: []byte("secret")}})
	for id, got := range all {
		if len(got) != 1 || got[0].Err == nil || strings.Contains(got[0].Err.Error(), "secret") {
			t.Errorf("%s: %+v", id, got)
		}
	}
	if all := credentials(&rest.Config{BearerToken: "opaque"}); len(all) > 0 {
		t.Errorf("without either: %+v", all)
	}
}

// TestFiles verifies that each file counts for the check of the sink that uses it.
func TestFiles(t *testing.T) {
	ca := tlstest.NewCA(t)
	_, cert, _ := ca.Issue("me")
	creds := filepath.Join(t.TempDir(), "creds")
	text := "-----BEGIN NATS USER JWT-----\n" + token(`{"exp": 2000}`) + "\n------END NATS USER JWT------\n"
	if err := os.WriteFile(creds, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := config.Config{
		NATS: config.NATS{CertFile: cert, CAFile: ca.File, CredsFile: creds}, Kafka: config.Kafka{CertFile: cert},
		Operations: config.Operations{CertFile: cert},
	}
	for sink, want := range map[string][]string{
		config.SinkNATS:   {check.BusClient, check.BusAuthorities, check.BusToken, check.ListenCertificate},
		config.SinkKafka:  {check.BusClient, check.ListenCertificate},
		config.SinkStdout: {check.ListenCertificate},
	} {
		c.Event.Sink = sink
		all := map[string][]check.Validity{}
		files(c, all)
		if len(all) != len(want) {
			t.Errorf("%s: %+v", sink, all)
		}
		for _, id := range want {
			if got := all[id]; len(got) != 1 || got[0].Err != nil || got[0].Until.Equal(time.Unix(2000, 0)) != (id == check.BusToken) {
				t.Errorf("%s: %s: %+v", sink, id, got)
			}
		}
	}
}

func TestSkewOf(t *testing.T) {
	at := time.UnixMilli
	for _, c := range []struct{ date, sent, received, want int64 }{
		{5000, 5900, 5950, 0},    // a header is in whole seconds
		{5000, 6500, 6600, -500}, // behind by at least that
		{9000, 5900, 5950, 3050}, // ahead
		{5000, 4000, 15000, 0},   // a slow response is imprecise
		{0, 600_000, 600_000, -599_000},
	} {
		if got := skewOf(at(c.date), at(c.sent), at(c.received)).Milliseconds(); got != c.want {
			t.Errorf("%+v: got %d ms", c, got)
		}
	}
}

func TestDataDir(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Join(dir, "not", "there")} {
		if d := dataDir(path); d.Path != path || d.Err != nil || d.Free <= 0 {
			t.Errorf("%s: %+v", path, d)
		}
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if d := dataDir(filepath.Join(file, "below")); d.Err == nil {
		t.Errorf("below a file: %+v", d)
	}
}

// TestTimeUp verifies that no inspection of the bus waits longer than --timeout, and that the error says that
// the server may be slow.
func TestTimeUp(t *testing.T) {
	const timeout, want = 50 * time.Millisecond, "no response within 50ms; if the server is slow, raise --timeout"
	frozen, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and never responds
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = frozen.Close() })
	cfg := config.Config{}
	cfg.Event.Sink, cfg.NATS.URLs, cfg.NATS.Stream, cfg.NATS.SubjectPrefix = config.SinkNATS, []string{"nats://" + frozen.Addr().String()}, "KUBERELAY", "kuberelay"
	f := check.Facts{Settings: cfg}
	observeBus(t.Context(), &f, timeout)
	if f.BusErr == nil || !strings.Contains(f.BusErr.Error(), want) {
		t.Errorf("got %v", f.BusErr)
	}
}
