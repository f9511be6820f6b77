package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kuberelay/kuberelay/internal/event"
	eventsubject "github.com/kuberelay/kuberelay/internal/event/subject" // the package has a function of this name
	"github.com/kuberelay/kuberelay/test/lab/controlplane/controlplanetest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// process starts a program. The program runs until stop is called or the test ends.
func process(t *testing.T, output *os.File, environment []string, command ...string) (stop func()) {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append([]string{"PATH=" + os.Getenv("PATH")}, environment...), output, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	t.Cleanup(stop)
	return stop
}

// buildProgram builds the package that the last argument names. The other arguments are build
// flags.
func buildProgram(t *testing.T, args ...string) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "program")
	flags, pkg := args[:len(args)-1], args[len(args)-1]
	build := exec.CommandContext(t.Context(), "go", slices.Concat([]string{"build"}, flags, []string{"-o", program, pkg})...)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %v: %v\n%s", args, err, out)
	}
	return program
}

// TestReplicaExample_Slow verifies that the example's table equals the cluster after each of three
// faults: the forwarder was killed, the example was stopped, or the stream was lost. The table
// keeps all its rows while the forwarder has published only some of the objects again.
func TestReplicaExample_Slow(t *testing.T) {
	example := buildProgram(t, "../../examples/replica")
	onBothBuses(t, func(t *testing.T, bus *anyBus) {
		cp := cluster.ControlPlane(t)
		u := newUser(t, cp)
		namespace := controlplanetest.Namespace(t, cp)
		file := filepath.Join(t.TempDir(), "table.txt")
		environment := []string{"NATS_URL=" + bus.url, "RESOURCE=configmaps.v1.", "CLUSTER=" + clusterName, "TABLE=" + file}
		if bus.url == "" {
			environment = append(environment, "KAFKA_BROKERS="+bus.set["KAFKA_BROKERS"], "TOPIC="+bus.set["KAFKA_TOPIC"])
		}
		equal := func(when string) {
			t.Helper()
			poll.Try(t, "the table is that of the cluster "+when, func(ctx context.Context) error {
				list, err := u.of(configMaps, namespace).List(ctx, metav1.ListOptions{})
				if err != nil {
					return err
				}
				var lines []string
				for _, o := range list.Items {
					lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%s\n", namespace, o.GetName(), o.GetUID(), o.GetResourceVersion()))
				}
				slices.Sort(lines)
				got, err := os.ReadFile(file)
				if want := strings.Join(lines, ""); err != nil || string(got) != want {
					return fmt.Errorf("the table is\n%swant\n%s%w", got, want, err)
				}
				return nil
			})
		}

		for _, name := range []string{"kept", "changed", "deleted", "deleted-later"} {
			u.create(configMaps, namespace, configMap(name, "1"))
		}
		set := map[string]string{"RESOURCES": "services", "NAMESPACES": namespace, "RESOLVED_INTERVAL": "50ms"}
		f := bus.forwarder(cp.Kubeconfig(), set)
		f.start().idle()
		f.stop()
		log, err := os.Create(filepath.Join(t.TempDir(), "log"))
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		run := func() (stop func()) {
			return process(t, log, environment, "sh", "-c", `exec "$0" 2>&1`, example)
		}
		waits := func(reason string) {
			t.Helper()
			poll.Try(t, "the example waits: "+reason, func(context.Context) error {
				text, err := os.ReadFile(log.Name())
				if err == nil && !strings.Contains(string(text), reason) {
					err = fmt.Errorf("it logged %q", text)
				}
				return err
			})
		}
		stop := run()
		waits("the bus has no events of the resource")
		if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("there is a table before the bus has an object: %v", err)
		}
		f = bus.forwarder(cp.Kubeconfig(), merged(set, map[string]string{"RESOURCES": "configmaps"}))
		f.start().idle()
		equal("after the start")
		f.kill()
		u.label(configMaps, namespace, "changed", "yes")
		u.delete(configMaps, namespace, "deleted")
		f.start().idle()
		equal("after a restart of the forwarder")
		stop()
		u.delete(configMaps, namespace, "deleted-later")
		u.create(configMaps, namespace, configMap("new", "1"))
		f.idle()
		run()
		equal("after a restart of the example")
		if bus.url != "" {
			f.Signal(syscall.SIGSTOP)
			loseAllBut(t, bus.url, eventsubject.Object("kuberelay", clusterName, event.Key{Resource: "configmaps", Namespace: namespace, Name: "kept"}))
			waits("the bus lost messages")
			equal("while the forwarder has published one object again")
			f.Signal(syscall.SIGCONT)
			u.delete(configMaps, namespace, "changed")
			u.create(configMaps, namespace, configMap("after-the-loss", "1"))
			equal("after the forwarder has published everything again")
		}
		f.stop()
	})
}

// loseAllBut replaces the stream with one that contains only the last message of a subject. This is
// the state while the forwarder publishes everything again.
func loseAllBut(t *testing.T, url, subject string) {
	t.Helper()
	js := jetStream(t, url)
	stream, err := js.Stream(t.Context(), "KUBERELAY")
	if err != nil {
		t.Fatal(err)
	}
	kept, err := stream.GetLastMsgForSubject(t.Context(), subject)
	if err != nil {
		t.Fatal(err)
	}
	config := stream.CachedInfo().Config
	config.FirstSeq = uint64(time.Now().UnixMicro()) // as the forwarder does
	if err := js.DeleteStream(t.Context(), config.Name); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	m := natsgo.NewMsg(subject)
	m.Header, m.Data = kept.Header, kept.Data
	m.Header.Del("Nats-Expected-Last-Subject-Sequence")
	if _, err := js.PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

// TestWorkqueueExample_Slow runs client-go's example controller with its informer on the bus. The
// example's source is unchanged except for the list-watch.
func TestWorkqueueExample_Slow(t *testing.T) {
	const (
		listWatch = `cache.NewListWatchFromClient(clientset.CoreV1().RESTClient(), "pods", v1.NamespaceDefault, fields.Everything())`
		onTheBus  = `package main

import (
	"context"
	"os"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kuberelay/kuberelay/replica"
)

func onTheBus(cache.ListerWatcher) cache.ListerWatcher {
	bus, err := replica.NATS(context.Background(), replica.NATSOptions{URLs: []string{os.Getenv("NATS_URL")}})
	if err != nil {
		panic(err)
	}
	return bus.ListerWatcher(v1.SchemeGroupVersion.WithResource("pods"), replica.Options{Object: &v1.Pod{}, Namespace: v1.NamespaceDefault})
}
`
	)
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/client-go").Output()
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "examples", "workqueue", "main.go"))
	if err != nil || strings.Count(string(source), listWatch) != 1 {
		t.Fatalf("the list-watch of the example is not found: %v", err)
	}
	source = bytes.Replace(source, []byte(listWatch), []byte("onTheBus("+listWatch+")"), 1)

	// The overlay adds a package to the module without changing its files.
	files, at := t.TempDir(), filepath.Join(mustAbs(t, "."), "workqueue")
	replace := map[string]string{}
	for name, content := range map[string][]byte{"main.go": source, "bus.go": []byte(onTheBus)} {
		file := filepath.Join(files, name)
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(at, name)] = file
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(files, "overlay.json"), overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	program := buildProgram(t, "-overlay", filepath.Join(files, "overlay.json"), "github.com/kuberelay/kuberelay/test/e2e/workqueue")

	server := natsServer(t)
	f, cp := sharedForwarder(t, server.URL, map[string]string{"RESOURCES": "pods", "NAMESPACES": "default"})
	u := newUser(t, cp)
	pods := gvr("", "v1", "pods")
	pod := func(name string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec: {containers: [{name: c, image: c}], terminationGracePeriodSeconds: 0}"
	}
	out, err := os.Create(filepath.Join(files, "output"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	printed := func(line string) {
		t.Helper()
		poll.Try(t, "the controller printed "+line, func(context.Context) error {
			text, err := os.ReadFile(out.Name())
			if err == nil && !slices.Contains(strings.Split(string(text), "\n"), line) {
				err = fmt.Errorf("it printed %q", text)
			}
			return err
		})
	}
	u.create(pods, "default", pod("workqueue-a"))
	f.start().idle()
	process(t, out, []string{"NATS_URL=" + server.URL}, program, "-master=http://127.0.0.1:1") // this address has no API server
	printed("Sync/Add/Update for Pod workqueue-a")
	printed("Pod default/mypod does not exist anymore") // the program assumes at its start that the pod exists
	f.kill()
	u.delete(pods, "default", "workqueue-a")
	u.create(pods, "default", pod("workqueue-b"))
	f.start().idle()
	printed("Pod default/workqueue-a does not exist anymore")
	printed("Sync/Add/Update for Pod workqueue-b")
	u.delete(pods, "default", "workqueue-b")
	printed("Pod default/workqueue-b does not exist anymore")
	f.stop()
}

func mustAbs(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}
