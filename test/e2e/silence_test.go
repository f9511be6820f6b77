package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/faultproxy"
)

// everywhere waits until the log, /readyz and status contain the words, and status ends with the
// code.
func (f *forwarder) everywhere(code int, words ...string) {
	f.t.Helper()
	f.await(fmt.Sprintf("log, /readyz and status say %q", words), func(ctx context.Context) error {
		_, ready, err := f.get(ctx, "/readyz")
		if err != nil {
			return err
		}
		got, table, _ := f.run("status")
		if got != code {
			return fmt.Errorf("status ends with %d and says %s", got, table)
		}
		for where, text := range map[string]string{"the log": f.log(), "/readyz": ready, "status": table} {
			for _, word := range words {
				if !strings.Contains(text, word) {
					return fmt.Errorf("%s does not say %s: %s", where, word, text[max(0, len(text)-2000):])
				}
			}
		}
		return nil
	})
}

// TestARefusalIsNamed verifies that the log, /readyz and status report a refusal by the API server
// with its HTTP status code. A forwarder that starts with an expired token also names the variable
// to set.
func TestARefusalIsNamed(t *testing.T) {
	bus := natsServer(t)
	cp := cluster.ControlPlane(t)
	namespace := quietNamespace(t, newUser(t, cp))
	set := map[string]string{"RESOURCES": "configmaps", "NAMESPACES": namespace}

	t.Run("no token", func(t *testing.T) {
		config, err := clientcmd.LoadFromFile(cp.Kubeconfig())
		if err != nil {
			t.Fatal(err)
		}
		for name := range config.AuthInfos {
			config.AuthInfos[name] = &clientcmdapi.AuthInfo{}
		}
		file := filepath.Join(t.TempDir(), "kubeconfig")
		if err := clientcmd.WriteToFile(*config, file); err != nil {
			t.Fatal(err)
		}
		f := newForwarder(t, file, bus.URL, set)
		f.start().everywhere(2, "403 Forbidden")
		if log := f.log(); strings.Contains(log, "err=unknown") || strings.Contains(log, `"err":"unknown"`) {
			t.Errorf("the log has an error without a reason:\n%s", log)
		}
	})

	t.Run("an expired token at the start", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(file, []byte("expired"), 0o600); err != nil {
			t.Fatal(err)
		}
		code, _, stderr := newForwarder(t, tokenKubeconfig(t, cp, file), bus.URL, set).run("run")
		if _, report, _ := strings.Cut(stderr, "forwarder: "); code != 2 || !strings.Contains(report, "401 Unauthorized") || !strings.Contains(report, "KUBECONFIG") {
			t.Errorf("it ended with %d:\n%s", code, stderr)
		}
	})

	t.Run("a token that expires", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(file, []byte(cp.Config().BearerToken), 0o600); err != nil {
			t.Fatal(err)
		}
		api := faultproxy.Start(t, cp.Address())
		f := newForwarder(t, through(t, tokenKubeconfig(t, cp, file), api.Addr()), bus.URL, set)
		f.start().well()
		if err := os.WriteFile(file, []byte("expired"), 0o600); err != nil {
			t.Fatal(err)
		}
		f.await("status, /readyz and the log say 401", func(ctx context.Context) error {
			api.Break() // an open watch continues with the token that it started with
			_, table, _ := f.run("status")
			_, ready, err := f.get(ctx, "/readyz")
			for _, text := range []string{table, ready, f.log()} {
				if err != nil || !strings.Contains(text, "401 Unauthorized") || !strings.Contains(text, "expired") {
					return fmt.Errorf("status says %s, and /readyz %s, %w", table, ready, err)
				}
			}
			return nil
		})
	})
}

// TestARestrictedAccountIsToldOfNamespaces verifies the report for an account that may read one
// namespace while the forwarder watches all of them. The report names the setting that fixes the
// problem. With that setting, the forwarder is ready and status is OK.
func TestARestrictedAccountIsToldOfNamespaces(t *testing.T) {
	bus := natsServer(t)
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := controlplanetest.Namespace(t, cp)
	u.create(gvr("rbac.authorization.k8s.io", "v1", "roles"), namespace, `{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: reader},
rules: [{apiGroups: [""], resources: [configmaps, services], verbs: [get, list, watch]}]}`)
	u.create(gvr("rbac.authorization.k8s.io", "v1", "rolebindings"), namespace, `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: little}]`)
	awaitAccess(t, cp, configMaps, namespace, true)
	f := newForwarder(t, cp.KubeconfigFor("little"), bus.URL, map[string]string{"RESOURCES": "configmaps,services"})
	f.start().everywhere(2, "KUBERELAY_NAMESPACES")
	f.awaitReason("access denied to all 2 selected resources")
	f.kill()

	f.Configure(map[string]string{"RESOURCES": "configmaps,services,pods", "NAMESPACES": namespace, "RESOLVED_INTERVAL": "0s"})
	f.start()
	f.await("/readyz says how many are forbidden", func(ctx context.Context) error {
		code, body, err := f.get(ctx, "/readyz")
		if err == nil && (code != http.StatusOK || !strings.Contains(body, "informers: ok, access denied to 1 of 3 resources")) {
			err = fmt.Errorf("%d %s", code, body)
		}
		return err
	})
	f.kill()
	f.Configure(map[string]string{"RESOURCES": "configmaps,services", "NAMESPACES": namespace, "RESOLVED_INTERVAL": "0s"})
	f.start().well()
	f.stop()
}

// TestWhatMatchesNothing_Slow verifies the reports of a misspelled name, in each setting that takes
// names. The log, the metrics and status contain the name, and /readyz fails if
// READY_REQUIRES_MATCHES is set. The reports end when something with that name exists.
func TestWhatMatchesNothing_Slow(t *testing.T) {
	bus := natsServer(t)
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := quietNamespace(t, u)
	typo := namespace + "x" // doesn't exist yet
	set := map[string]string{"RESOURCES": "configmaps,gizmoz.silence.example.com", "NAMESPACES": namespace + "," + typo}
	f := newForwarder(t, cp.Kubeconfig(), bus.URL, merged(set, map[string]string{"READY_REQUIRES_MATCHES": "true", "CLUSTER_REPLACES": "no-such-uid"}))
	unmatched := func(want ...string) {
		t.Helper()
		f.await(fmt.Sprintf("log, metrics and status have %q", want), func(ctx context.Context) error {
			n, err := f.Metric(ctx, "kuberelay_setting_unmatched")
			if len(want) == 0 && err != nil {
				n, err = 0, nil // no series exists
			}
			if err != nil || int(n) != len(want) {
				return fmt.Errorf("%v series: %w", n, err)
			}
			d := f.document()
			for i, u := range d.Unmatched {
				if len(d.Unmatched) != len(want) || u.Setting+" "+u.Entry+" "+u.Suggestion != want[i] {
					return fmt.Errorf("status has %+v", d.Unmatched)
				}
				if log := f.log(); !strings.Contains(log, "setting matches nothing") || !strings.Contains(log, u.Entry) {
					return fmt.Errorf("the log does not have %s", u.Entry)
				}
			}
			return nil
		})
	}
	f.start()
	f.awaitReason("KUBERELAY_RESOURCES: gizmoz.silence.example.com matches nothing")
	f.awaitReason("KUBERELAY_NAMESPACES: " + typo + " matches nothing; did you mean " + namespace + "?")
	f.awaitReason("KUBERELAY_CLUSTER_REPLACES: no-such-uid matches nothing")
	unmatched("KUBERELAY_RESOURCES gizmoz.silence.example.com ", "KUBERELAY_NAMESPACES "+typo+" "+namespace, "KUBERELAY_CLUSTER_REPLACES no-such-uid ")

	// Create objects with the misspelled names.
	u.create(gvr("apiextensions.k8s.io", "v1", "customresourcedefinitions"), "", `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gizmoz.silence.example.com}
spec:
  group: silence.example.com
  names: {plural: gizmoz, kind: Gizmo}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]`)
	unmatched("KUBERELAY_NAMESPACES "+typo+" "+namespace, "KUBERELAY_CLUSTER_REPLACES no-such-uid ")
	f.awaitReason("settings: KUBERELAY_NAMESPACES: " + typo)
	u.create(gvr("", "v1", "namespaces"), "", "{apiVersion: v1, kind: Namespace, metadata: {name: "+typo+"}}")
	unmatched("KUBERELAY_CLUSTER_REPLACES no-such-uid ")
	f.awaitLog("setting now matches")
	f.kill()
	f.Configure(merged(set, map[string]string{"READY_REQUIRES_MATCHES": "true", "RESOLVED_INTERVAL": "0s"}))
	f.start().well()
	unmatched()
	f.kill()

	// Without READY_REQUIRES_MATCHES, the forwarder is ready, and /readyz notes the unmatched
	// names.
	f.Configure(merged(set, map[string]string{"RESOURCES": "configmaps,deploymnts", "EXCLUDE_RESOURCES": "servces,gadgets.example.com", "RESOLVED_INTERVAL": "0s"}))
	f.start().ready()
	unmatched("KUBERELAY_RESOURCES deploymnts deployments.apps", "KUBERELAY_EXCLUDE_RESOURCES servces services")
	f.says(1, "WARNING: KUBERELAY_RESOURCES: deploymnts matches nothing; did you mean deployments.apps? (and 1 more)")
	f.await("/readyz notes it", func(ctx context.Context) error {
		code, body, err := f.get(ctx, "/readyz")
		if err == nil && (code != http.StatusOK || !strings.Contains(body, "informers: ok, 2 entries of settings match nothing")) {
			err = fmt.Errorf("%d %s", code, body)
		}
		return err
	})
	f.kill()
	f.Configure(map[string]string{"RESOURCES": "configmaps", "NAMESPACE_SELECTOR": "team=wbe", "EXCLUDE_NAMESPACES": "kube-systm,elsewhere", "FOLLOW": "configmps:data.ref", "RESOLVED_INTERVAL": "0s"})
	f.start().ready()
	unmatched("KUBERELAY_EXCLUDE_NAMESPACES kube-systm kube-system", "KUBERELAY_NAMESPACE_SELECTOR team=wbe ", "KUBERELAY_FOLLOW configmps:data.ref ")
	f.kill()
	f.Configure(map[string]string{"RESOURCES": "configmaps", "LABEL_SELECTOR": "app=wbe", "RESOLVED_INTERVAL": "0s"})
	f.start().ready()
	f.says(1, "WARNING: no object is selected by KUBERELAY_LABEL_SELECTOR=app=wbe")
	f.awaitLog("app=wbe")
	if n := f.metric(`kuberelay_setting_unmatched`); n != 1 {
		t.Errorf("%v series of a label selector", n)
	}
	f.kill()
}

// warnings returns the number of log lines with a warning, and the number of warnings that these
// lines count.
func (f *forwarder) warnings(message string) (lines, warnings int) {
	f.t.Helper()
	for line := range strings.Lines(f.log()) {
		var l struct {
			Level, Msg string
			Suppressed int
		}
		if json.Unmarshal([]byte(line), &l) == nil && l.Level == "WARN" && l.Msg == message {
			lines++
			warnings += 1 + l.Suppressed
		}
	}
	return lines, warnings
}

// TestAHungBusLogsLittle verifies the log while the bus accepts connections but doesn't respond.
// The publishes of 30 objects fail repeatedly. The log has only a few lines, which count all the
// failures.
func TestAHungBusLogsLittle(t *testing.T) {
	bus := natsServer(t)
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := quietNamespace(t, u)
	proxy := faultproxy.Start(t, strings.TrimPrefix(bus.URL, "nats://"))
	settings := map[string]string{"RESOURCES": "configmaps", "NAMESPACES": namespace, "NATS_ACK_TIMEOUT": "1m", "RESOLVED_INTERVAL": "0s"}
	f := newForwarder(t, cp.Kubeconfig(), "nats://"+proxy.Addr(), settings)
	const objects = 30
	for n := range objects {
		u.create(configMaps, namespace, configMap(fmt.Sprintf("c%d", n), "1"))
	}
	f.start().idle()
	subscribe(t, bus.URL).awaitSnapshots(configMaps) // only events of objects can fail from now on
	f.stop()
	f.Configure(merged(settings, map[string]string{"NATS_ACK_TIMEOUT": "200ms", "RETRY_BASE_DELAY": "10ms", "RETRY_MAX_DELAY": "20ms"}))
	f.start().idle()
	failed := func() int { return int(f.metric(`kuberelay_nats_publishes_total{result="timeout"}`)) }
	for round := 0; failed() < 5*objects; round++ {
		proxy.Freeze()
		for n := range objects {
			u.label(configMaps, namespace, fmt.Sprintf("c%d", n), fmt.Sprint(round))
		}
		f.awaitReason("bus") // the next check of the bus fails, and ends the publishes
		proxy.Pass()
		f.idle()
	}
	failures := failed()
	f.stop() // a stop writes the suppressed warnings to the log
	lines, warnings := f.warnings("publish failed, retrying")
	t.Logf("%d failed publishes, %d warnings in %d lines", failures, warnings, lines)
	if lines == 0 || lines > 20 {
		t.Errorf("%d lines for %d failed publishes, want a few", lines, failures)
	}
	if warnings != failures {
		t.Errorf("the lines count %d warnings of %d failed publishes", warnings, failures)
	}
}

// TestLongWorkShowsItsProgress verifies that status shows the progress of long work. The stream
// becomes full in the middle of a first sync, and again in the middle of the publishes after an
// outage.
func TestLongWorkShowsItsProgress(t *testing.T) {
	bus := natsServer(t)
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := quietNamespace(t, u)
	f := newForwarder(t, cp.Kubeconfig(), bus.URL, map[string]string{"RESOURCES": "services", "NAMESPACES": namespace})
	f.start().idle() // creates the stream
	f.stop()
	js := jetStream(t, bus.URL)
	limitTo := func(messages int64) (now uint64) {
		t.Helper()
		stream, err := js.Stream(t.Context(), "KUBERELAY")
		if err != nil {
			t.Fatal(err)
		}
		c := stream.CachedInfo().Config
		if c.MaxMsgs = messages; messages >= 0 {
			c.MaxMsgs += int64(stream.CachedInfo().State.Msgs)
		}
		if _, err := js.UpdateStream(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		return stream.CachedInfo().State.Msgs
	}
	const objects, room = 60, 20
	for n := range objects {
		u.create(configMaps, namespace, configMap(fmt.Sprintf("c%d", n), "1"))
	}
	limitTo(room)
	f.Configure(map[string]string{"RESOURCES": "configmaps", "NAMESPACES": namespace, "RESOLVED_INTERVAL": "0s"})
	f.start()
	shows := func(work string, total int64) {
		t.Helper()
		f.await("status shows that a "+work+" is under way", func(context.Context) error {
			all := f.document().Work
			for _, w := range all {
				if w.Work == work && w.Unit == "objects" && w.Total != nil && *w.Total == total && !w.Growing && w.Done > 0 && w.Done <= room {
					return nil
				}
			}
			return fmt.Errorf("it shows %+v", all)
		})
	}
	shows("first_sync", objects+1) // the namespace contains one other ConfigMap
	if _, table, _ := f.run("status"); !strings.Contains(table, fmt.Sprintf("of %d objects", objects+1)) || !strings.Contains(table, "\nwork:") {
		t.Errorf("the table does not show it:\n%s", table)
	}
	done := func() {
		t.Helper()
		limitTo(-1)
		f.idle()
		f.await("there is no work left", func(context.Context) error {
			if all := f.document().Work; len(all) > 0 {
				return fmt.Errorf("it shows %+v", all)
			}
			return nil
		})
	}
	done()

	// The progress of the publishes after an outage is shown too.
	limitTo(room)
	bus.Kill()
	f.awaitReason("bus")
	for n := range objects {
		u.label(configMaps, namespace, fmt.Sprintf("c%d", n), "changed")
	}
	f.await("all changes are known", func(ctx context.Context) error {
		n, err := f.Metric(ctx, "kuberelay_dirty_objects")
		if err == nil && n != objects {
			err = fmt.Errorf("%v objects are dirty", n)
		}
		return err
	})
	bus.Start()
	shows("resend", objects)
	done()
	f.stop()
}
