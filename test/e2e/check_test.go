package e2e

import (
	"encoding/json"
	"testing"

	"github.com/kuberelay/kuberelay/internal/check"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
)

// checks runs the command and returns its results by id.
func (f *forwarder) checks(args ...string) (code int, by map[string]check.Result) {
	f.t.Helper()
	code, stdout, stderr := f.run(append([]string{"check", "--output=json"}, args...)...)
	var report check.Report
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || stderr != "" {
		f.t.Fatalf("check: %v: %s%s", err, stdout, stderr)
	}
	if got := report.Status.Code(); got != code {
		f.t.Errorf("check ended with %d, and its report says %d", code, got)
	}
	by = map[string]check.Result{}
	for _, r := range report.Checks {
		by[r.ID] = r
	}
	return code, by
}

func TestCheck(t *testing.T) {
	bus := natsServer(t)
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := quietNamespace(t, u)
	f := newForwarder(t, cp.Kubeconfig(), bus.URL, map[string]string{"RESOURCES": "configmaps", "NAMESPACES": namespace})
	_, out, _ := f.run("check", "--pre")
	t.Log(out)
	f.start().idle()
	_, out, _ = f.run("check")
	t.Log(out)
}

func TestCheckKafka(t *testing.T) {
	s := topic{t, kafkabrokertest.Shared(t).Addr(), kafkabrokertest.TopicName(t.Name())}
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := quietNamespace(t, u)
	f := newForwarder(t, cp.Kubeconfig(), "", onKafka(s, map[string]string{"RESOURCES": "configmaps", "NAMESPACES": namespace}))
	_, out, _ := f.run("check", "--pre")
	t.Log(out)
	f.start().idle()
	_, out, _ = f.run("check")
	t.Log(out)
}
