package e2e

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kuberelay/kuberelay/test/harness"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
)

// carriers are kinds that often contain secrets. Each has the plural and the group of its resource,
// its kind, and the content of an object with a canary for each %s.
var carriers = []struct{ plural, group, kind, content string }{
	{"kubeadmconfigs", "bootstrap.cluster.x-k8s.io", "KubeadmConfig", `spec: {initConfiguration: {bootstrapTokens: [{token: %s}]}, files: [{path: /etc/a, content: %s}],
  joinConfiguration: {discovery: {tlsBootstrapToken: %s, bootstrapToken: {token: %s}}}}`},
	{"oauthclients", "oauth.openshift.io", "OAuthClient", "secret: %s\nadditionalSecrets: [%s, %s]"},
	{"oauthaccesstokens", "oauth.openshift.io", "OAuthAccessToken", "authorizeToken: %s\nrefreshToken: %s"},
	{"works", "work.karmada.io", "Work", `spec: {workload: {manifests: [{kind: ConfigMap, data: {a: b}},
  {kind: Secret, metadata: {annotations: {note: %s}, labels: {pw: %s}}, data: {a: %s}, stringData: {b: %s}}]}}`},
	{"manifestworks", "work.open-cluster-management.io", "ManifestWork", `spec: {workload: {manifests: [{kind: Secret, data: {a: %s}}]}}`},
	{"objects", "kubernetes.crossplane.io", "Object", "spec: {forProvider: {manifest: {kind: Secret, data: {a: %s}}}}\nstatus: {atProvider: {manifest: {data: {a: %s}}}}"},
	{"vaults", "example.com", "Vault", `spec: {entries: [{key: open, value: plain}, {key: PASSWORD, value: %s}], token: [%s, {a: %s}]}`},
}

// fill replaces each %s with a new canary.
func (c canaries) fill(what, text string) string {
	for n := 0; strings.Contains(text, "%s"); n++ {
		text = strings.Replace(text, "%s", c.add(fmt.Sprintf("%s, %d", what, n)), 1)
	}
	return text
}

// TestCanariesInMetadataAndOtherKinds verifies that more secrets stay off the bus: Secret values
// that labels or annotations repeat in another form, values in kinds that often contain secrets, and
// fields that the configuration names.
func TestCanariesInMetadataAndOtherKinds(t *testing.T) {
	const visible = "visible-1.2.3"
	cp := cluster.ControlPlane(t)
	u, c := newUser(t, cp), canaries{}
	namespace := quietNamespace(t, u)
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	line, part, label, name := c.add("a value with a newline"), c.add("a part of a value"), c.add("a label"), c.add("a name")
	u.create(secretsResource, namespace, fmt.Sprintf(`
apiVersion: v1
kind: Secret
metadata:
  name: metadata
  labels: {pw: %s, %s: x, app.kubernetes.io/version: %s}
  annotations: {note: "first password: %s", registry: robot / %s, previous: %s, hex: %q, auth: Basic %s, raw: %q, %s: x}
data: {line: %s, config: %s, label: %s}`,
		label, c.add("the name of a label"), visible,
		line, part, c.add("the value before"), hex.EncodeToString([]byte(line)), b64("admin:"+line), strings.TrimRight(b64(line), "="), name,
		b64(line+"\n"), b64(`{"auths":{"r":{"password":"`+part+`"}}}`), b64(label+name)))
	u.create(configMaps, namespace, c.fill("a Helm release", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: release}\ndata: {release: %s, value: "+visible+"}"))
	resources := "secrets,configmaps"
	for _, k := range carriers {
		u.create(definitions, "", fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]s.%[2]s}
spec:
  group: %[2]s
  scope: Namespaced
  names: {plural: %[1]s, kind: %[3]s}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]`, k.plural, k.group, k.kind))
		t.Cleanup(func() {
			_ = u.of(definitions, "").Delete(context.Background(), k.plural+"."+k.group, metav1.DeleteOptions{})
		})
		resources += "," + k.plural + "." + k.group
	}
	plant := func(name string) {
		for _, k := range carriers {
			u.createServed(gvr(k.group, "v1", k.plural), namespace, fmt.Sprintf("apiVersion: %s/v1\nkind: %s\nmetadata: {name: %s}\n%s", k.group, k.kind, name, c.fill(k.kind+" "+name, k.content)))
		}
	}
	plant("early")
	keys := newVolume(t, map[string]string{"key": c.add("the redaction key")})
	bus := natstest.StartProcess(t)
	f := newForwarder(t, cp.Kubeconfig(), bus.URL, map[string]string{
		"RESOURCES": resources, "NAMESPACES": namespace, "REDACTION_KEY_FILE": keys.path("key"), "DATA": "change", "NATS_HISTORY": "100",
		"HASH_FIELDS": `vaults:.spec.entries[?(@.key=="PASSWORD")].value,vaults:.spec.token`,
	})
	f.start().idle()
	plant("late")
	f.idle()
	f.verifyClean()
	f.stop()
	recorder, err := harness.RecordNATS(bus.URL, "KUBERELAY")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(recorder.Close)
	c.searchBus(t, "the stream", recorder, visible)
	c.searchFiles(t, "the server's store", visible, bus.StoreDir())
	c.search(t, "the log", []byte(f.log()))
}

// TestAFieldThatIsHiddenNow_Slow verifies that a newly hidden field isn't published again, neither in the
// previous state of an update nor in the last state of a deleted object. The forwarder reads both
// states back from the bus.
func TestAFieldThatIsHiddenNow_Slow(t *testing.T) {
	onBothBuses(t, func(t *testing.T, bus *anyBus) {
		cp := cluster.ControlPlane(t)
		u := newUser(t, cp)
		namespace := quietNamespace(t, u)
		names := []string{"unchanged", "updated", "deleted"}
		for _, name := range names {
			u.create(configMaps, namespace, configMap(name, "1"))
			u.set(namespace, name, map[string]string{"dropped": "hunter1", "hashed": "hunter2"})
		}
		set := map[string]string{"RESOURCES": "configmaps", "NAMESPACES": namespace, "DATA": "change"}
		f := bus.forwarder(cp.Kubeconfig(), set)
		f.start().idle()
		f.stop()
		u.set(namespace, "updated", map[string]string{"value": "2"})
		u.delete(configMaps, namespace, "deleted")
		set["DROP_FIELDS"], set["HASH_FIELDS"] = "configmaps:.data.dropped", "configmaps:.data.hashed"
		f = bus.forwarder(cp.Kubeconfig(), set)
		f.start().idle()
		for name, want := range map[string]string{"unchanged": "snapshot updated", "updated": "snapshot updated", "deleted": "snapshot deleted"} {
			all := bus.awaitKinds(key("configmaps", namespace, name), want)
			if first := string(all[0].Body); !strings.Contains(first, "hunter1") || !strings.Contains(first, "hunter2") {
				t.Fatalf("%s: the first event has no value to hide: %s", name, first)
			}
			data := string(all[1].Body)
			if strings.Contains(data, "hunter") {
				t.Errorf("%s: a value goes out once more: %s", name, data)
			}
			if !strings.Contains(data, "hmac-sha256:") || name == "updated" && !strings.Contains(data, `"previous":{`) {
				t.Errorf("%s: the hash or the previous state is missing: %s", name, data)
			}
		}
		f.verifyClean()
		f.stop()
	})
}
