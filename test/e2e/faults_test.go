package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// askLimit is the maximum time that a command may take to name a cause.
const askLimit = 5 * time.Second

// faultTable is the result of TestFaultsAreNamed_Slow. Each row contains a fault, the command that names
// it, the duration of the command, and the line that names the fault.
type faultTable struct{ rows [][]string }

// named waits until a command names the cause of a fault, that is, until one line of its output
// contains words. A command that takes longer than askLimit is stopped.
func (x *faultTable) named(f *forwarder, fault, words string, args ...string) {
	f.t.Helper()
	command := strings.Join(args, " ")
	err := poll.Until(f.t.Context(), limit, fmt.Sprintf("%s: %q says %q", fault, command, words), func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, askLimit)
		defer cancel()
		began := time.Now()
		code, stdout, stderr, err := f.Run(ctx, args...)
		took := time.Since(began)
		if err != nil {
			return err
		}
		for line := range strings.Lines(stdout) {
			if strings.Contains(line, words) {
				x.rows = append(x.rows, []string{fault, command, took.Round(10 * time.Millisecond).String(), strings.Join(strings.Fields(line), " ")})
				return nil
			}
		}
		return fmt.Errorf("after %s it ended with %d: %s%s", took, code, stdout, stderr)
	})
	if err != nil {
		f.t.Error(err)
	}
}

// log prints the table.
func (x *faultTable) log(t *testing.T) {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "#\tFAULT\tCOMMAND\tTOOK\tWORDS")
	for n, row := range x.rows {
		fmt.Fprintf(w, "%d\t%s\n", n+1, strings.Join(row, "\t"))
	}
	_ = w.Flush() // a Builder never fails
	t.Logf("faults that were named:\n%s", b.String())
}

// TestFaultsAreNamed_Slow plants one fault after the other. One of the commands status, check and trace
// must name the cause, so that no other command is needed.
func TestFaultsAreNamed_Slow(t *testing.T) {
	x := &faultTable{}
	defer x.log(t)
	t.Run("cluster", x.plantInCluster)
	t.Run("answers", x.plantInAnswers)
	t.Run("nats", x.plantOnNATS)
	t.Run("kafka", x.plantOnKafka)
	if len(x.rows) < 20 {
		t.Errorf("%d faults were planted and named", len(x.rows))
	}
}

// plantInCluster plants faults of permissions, of settings, and of the API that the cluster serves.
func (x *faultTable) plantInCluster(t *testing.T) {
	bus := natsServer(t)
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := quietNamespace(t, u)
	mayRead := u.letRead(namespace, `"configmaps", "services"`)
	settings := map[string]string{"RESOURCES": "configmaps,services", "NAMESPACES": namespace}
	f := newForwarder(t, cp.KubeconfigFor("little"), bus.URL, settings)
	restart := func(more map[string]string) {
		t.Helper()
		f.kill()
		f.Configure(merged(settings, more))
		f.start()
	}
	awaitAccess(t, cp, configMaps, namespace, true)
	awaitAccess(t, cp, gvr("", "v1", "services"), namespace, true)

	x.named(f, "the forwarder is not running", "the forwarder does not respond", "status")
	f.start().idle()
	mayRead(`"configmaps"`)
	x.named(f, "a right is withdrawn", "the user may not list services in the namespace "+namespace, "check")
	restart(nil)
	x.named(f, "a right is withdrawn, and the forwarder restarted", "access denied to 1 of 2 resources: services", "status")
	mayRead(`"configmaps", "services"`)
	awaitAccess(t, cp, gvr("", "v1", "services"), namespace, true)

	restart(map[string]string{"LEADER_ELECTION": "true", "LEASE_NAMESPACE": namespace})
	x.named(f, "the Lease is denied", "lease "+namespace+"/kuberelay: ", "status")
	restart(map[string]string{"RESOURCES": "configmaps,servces"})
	x.named(f, "a resource is misspelled", "KUBERELAY_RESOURCES: servces matches nothing; did you mean services?", "status")
	restart(map[string]string{"FILTER": `resource.kind == "Services"`})
	x.named(f, "a filter selects nothing", "KUBERELAY_FILTER selects no object of configmaps", "status")
	f.kill()
	f.Configure(merged(settings, map[string]string{"FILTER": `object.kind = "Service"`}))
	x.named(f, "a filter is no expression", "KUBERELAY_FILTER", "check")

	f = newForwarder(t, cp.Kubeconfig(), bus.URL, merged(settings, map[string]string{"NAMESPACES": namespace + "," + namespace + "x"}))
	f.start()
	x.named(f, "a namespace is misspelled", "KUBERELAY_NAMESPACES: "+namespace+"x matches nothing", "status")
	f.kill()

	const converted, backed = "fault.example.com", "unbacked.example.com"
	gadgets := map[string]string{"RESOURCES": "configmaps,*." + converted + ",*." + backed, "NAMESPACES": ""}
	u.defineGadgets(converted, noConversion, "v1alpha1*")
	u.defineGadgets(backed, noConversion, "v1*")
	f = newForwarder(t, cp.Kubeconfig(), bus.URL, gadgets)
	u.createServed(gvr(converted, "v1alpha1", "gadgets"), namespace, gadget(converted+"/v1alpha1", "one", 1))
	u.defineGadgets(converted, deadConversion, "v1alpha1*", "v1")
	f.start()
	x.named(f, "a conversion webhook is down", "conversion webhook for "+converted, "status")
	u.takeOver(backed, "v1")
	x.named(f, "the discovery of a group fails", "discovery of the group "+backed+" fails", "status")
	f.kill()
}

// plantInAnswers plants faults of an API server that responds late, never, or with a wrong time.
func (x *faultTable) plantInAnswers(t *testing.T) {
	bus := natsServer(t)
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := quietNamespace(t, u)
	api := newFaultyAPI(t, cp)
	settings := map[string]string{"RESOURCES": "configmaps", "NAMESPACES": namespace}
	f := newForwarder(t, api.kubeconfig, bus.URL, settings)
	u.create(configMaps, namespace, configMap("a", "1"))
	f.start().idle()

	api.skew.Store(int64(10 * time.Minute))
	x.named(f, "the clocks differ", "the clock of the API server is 10m0s ahead of that of this machine", "check")
	api.skew.Store(0)
	api.hold(func(r *http.Request) bool { return r.URL.Query().Get("watch") != "" })
	o := u.label(configMaps, namespace, "a", "2")
	x.named(f, "a watch is stuck", "behind: the watch has version ", "trace", "cm/a", "-n="+namespace)
	api.hold(func(*http.Request) bool { return true })
	x.named(f, "the API server is frozen", "does not respond", "check")
	x.named(f, "the API server is frozen, of an object", "the current state cannot be determined: no response within 4s; if the server is slow, raise --timeout", "trace", "cm/a", "-n="+namespace)
	api.hold(nil)
	f.traces(0, "on_bus", "version "+o.GetResourceVersion(), "cm/a", "-n="+namespace)
	f.stop()

	f = newForwarder(t, cp.Kubeconfig(), bus.URL, settings)
	x.named(f, "the memory limit is too low", "the memory limit is 16 MiB", "check", "--memory-limit=16Mi")
	f = newForwarder(t, withToken(t, cp, "expired"), bus.URL, settings)
	x.named(f, "the credentials of the API server have expired", "the API server does not accept the credentials", "check")
}

// withToken returns a kubeconfig with another token.
func withToken(t *testing.T, cp *controlplane.ControlPlane, token string) (kubeconfig string) {
	t.Helper()
	config, err := clientcmd.LoadFromFile(cp.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		user.Token = token
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// writeKubeconfig writes a kubeconfig without credentials and returns its path.
func writeKubeconfig(t *testing.T, server string) (kubeconfig string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: %q}}]\ncontexts: [{name: c, context: {cluster: c}}]\n", server)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
