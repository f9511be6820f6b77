package e2e

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kuberelay/kuberelay/test/harness"
	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// serviceAccount creates tokens that can be revoked. Each token is bound to a Secret and becomes
// invalid when the Secret is deleted.
type serviceAccount struct {
	t         *testing.T
	client    kubernetes.Interface
	namespace string
	auditLog  string
}

// boundToken is a token and its id in the audit log.
type boundToken struct{ text, id, secret string }

const forwarderAccount = "forwarder"

func (a *serviceAccount) token() boundToken {
	a.t.Helper()
	ctx := a.t.Context()
	secret, err := a.client.CoreV1().Secrets(a.namespace).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "bound-"}}, metav1.CreateOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Secret", APIVersion: "v1", Name: secret.Name, UID: secret.UID},
	}}
	made, err := a.client.CoreV1().ServiceAccounts(a.namespace).CreateToken(ctx, forwarderAccount, request, metav1.CreateOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	claims, err := base64.RawURLEncoding.DecodeString(strings.Split(made.Status.Token, ".")[1])
	if err != nil {
		a.t.Fatal(err)
	}
	var id struct{ JTI string }
	if err := json.Unmarshal(claims, &id); err != nil || id.JTI == "" {
		a.t.Fatalf("the token has no id: %v", err)
	}
	return boundToken{made.Status.Token, "JTI=" + id.JTI, secret.Name}
}

// revoke revokes a token and waits until the API server refuses it.
func (a *serviceAccount) revoke(cp *controlplane.ControlPlane, token boundToken) {
	a.t.Helper()
	if err := a.client.CoreV1().Secrets(a.namespace).Delete(a.t.Context(), token.secret, metav1.DeleteOptions{}); err != nil {
		a.t.Fatal(err)
	}
	config := cp.Config()
	config.BearerToken = token.text
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		a.t.Fatal(err)
	}
	poll.Try(a.t, "the revoked token is refused", func(ctx context.Context) error { // the API server caches a token for 10 s
		_, err := client.CoreV1().ConfigMaps(a.namespace).List(ctx, metav1.ListOptions{Limit: 1})
		if !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("it gives: %w", err)
		}
		return nil
	})
}

// uses returns the times of a token's first and last accepted use.
func (a *serviceAccount) uses(token boundToken) (first, last time.Time) {
	a.t.Helper()
	file, err := os.Open(a.auditLog)
	if err != nil {
		a.t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var request struct {
			User                     struct{ Extra map[string][]string }
			RequestReceivedTimestamp time.Time
		}
		if json.Unmarshal(lines.Bytes(), &request) != nil {
			continue // the line is still being written
		}
		if ids := request.User.Extra["authentication.kubernetes.io/credential-id"]; len(ids) == 1 && ids[0] == token.id {
			if at := request.RequestReceivedTimestamp; at.After(last) {
				last = at
			}
			if first.IsZero() {
				first = request.RequestReceivedTimestamp
			}
		}
	}
	if err := lines.Err(); err != nil {
		a.t.Fatal(err)
	}
	return first, last
}

// used returns a check that succeeds once a token was used.
func (a *serviceAccount) used(token boundToken) func(context.Context) error {
	return func(context.Context) error {
		if first, _ := a.uses(token); first.IsZero() {
			return errors.New("it has not been used")
		}
		return nil
	}
}

// TestRotationToken_Slow replaces the service account's token under load and revokes the former one, in
// either order. In the second order, it also restarts the API server, so that every watch must
// reconnect.
func TestRotationToken_Slow(t *testing.T) {
	dir := t.TempDir()
	a := &serviceAccount{t: t, namespace: "default", auditLog: filepath.Join(dir, "audit.log")}
	policy := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cp := controlplanetest.New(t, controlplane.Options{APIServerFlags: []string{
		"--audit-policy-file=" + policy, "--audit-log-path=" + a.auditLog, "--audit-log-mode=blocking",
	}})
	var err error
	if a.client, err = kubernetes.NewForConfig(cp.Config()); err != nil {
		t.Fatal(err)
	}
	u := newUser(t, cp)
	namespace := controlplanetest.Namespace(t, cp)
	u.create(gvr("", "v1", "serviceaccounts"), a.namespace, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: "+forwarderAccount+"}")
	u.create(gvr("rbac.authorization.k8s.io", "v1", "clusterrolebindings"), "", `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: forwarder}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: `+forwarderAccount+`, namespace: `+a.namespace+`}]`)

	token := a.token()
	mounted := newVolume(t, map[string]string{"token": token.text})
	bus := natsServer(t)
	f := newForwarder(t, tokenKubeconfig(t, cp, mounted.path("token")), bus.URL, map[string]string{
		"RESOURCES": "configmaps", "NAMESPACES": namespace, "NATS_HISTORY": "1000",
	})
	f.start().idle()
	recorder, err := harness.RecordNATS(bus.URL, "KUBERELAY")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(recorder.Close)
	r := &rotation{t: t, f: f, recorder: recorder, load: newLoad(t, u, namespace)}
	r.flowing()

	// Use the regular order, as the kubelet does: mount the new token first, then revoke the former
	// one.
	old := token
	token = a.token()
	replaced := time.Now()
	mounted.put(map[string]string{"token": token.text})
	r.inForce("token", replaced, a.used(token))
	a.revoke(cp, old)
	r.flowing()

	// Use the other order: revoke the token, restart the API server, and only then mount a new
	// token.
	a.revoke(cp, token)
	r.load.interrupted.Store(true)
	if err := cp.StopAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := cp.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.load.interrupted.Store(false)
	r.f.await("the API server refuses the forwarder", func(context.Context) error {
		if !strings.Contains(f.log(), "asked for the client to provide credentials") && !strings.Contains(f.log(), "Unauthorized") {
			return errors.New("it does not say so")
		}
		return nil
	})
	revoked := token
	token = a.token()
	replaced = time.Now()
	mounted.put(map[string]string{"token": token.text})
	r.inForce("token, after the former was revoked", replaced, a.used(token))
	r.end()
	first, _ := a.uses(token)
	for _, former := range []boundToken{old, revoked} {
		if _, last := a.uses(former); last.After(first) {
			t.Errorf("a former token was still accepted at %s, and the last one is in use since %s", last, first)
		}
	}
}

// tokenKubeconfig writes a kubeconfig that refers to a token file.
func tokenKubeconfig(t *testing.T, cp *controlplane.ControlPlane, tokenFile string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(cp.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.AuthInfos = map[string]*clientcmdapi.AuthInfo{forwarderAccount: {TokenFile: tokenFile}}
	config.Contexts[config.CurrentContext].AuthInfo = forwarderAccount
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}
