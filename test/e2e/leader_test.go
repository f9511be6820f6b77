package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/kuberelay/kuberelay/test/lab/faultproxy"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// replicas is a group of forwarders that elect a leader. Each forwarder reaches the API server
// through its own proxy.
type replicas struct {
	t         *testing.T
	user      *user
	namespace string
	all       []*forwarder
	api       []*faultproxy.Proxy

	await      func(name, kinds string) // waits until the events of the named object have these types
	checkOrder func()                   // checks the order of all events so far, and that no event is repeated
}

// shortLease configures a short lease for tests that wait until a lease expires. The lease must be
// long enough that a leader on a slow machine doesn't lose it. Otherwise the tests would find an
// unexpected leader.
var shortLease = map[string]string{
	"LEADER_ELECTION": "true", "LEASE_DURATION": "15s", "LEASE_RENEW_DEADLINE": "12s", "LEASE_RETRY_PERIOD": "500ms",
}

// onEachBus runs a test with two replicas on NATS and on Kafka.
func onEachBus(t *testing.T, more map[string]string, test func(r *replicas)) {
	t.Run("nats", func(t *testing.T) {
		bus := natsServer(t)
		r := newReplicas(t, map[string]string{"NATS_URL": bus.URL}, more)
		sub := sync.OnceValue(func() *subscriber { return subscribe(t, bus.URL) })
		r.await = func(name, kinds string) { t.Helper(); sub().awaitKinds(subject(configMaps, r.namespace, name), kinds) }
		r.checkOrder = func() { t.Helper(); sub().end(); sub().checkOrder(); sub().checkUnique() }
		test(r)
	})
	t.Run("kafka", func(t *testing.T) {
		bus := topic{t, kafkabrokertest.Shared(t).Addr(), kafkabrokertest.TopicName(t.Name())}
		r := newReplicas(t, onKafka(bus, nil), more)
		r.await = func(name, kinds string) {
			t.Helper()
			bus.awaitKinds(map[string]string{key("configmaps", r.namespace, name): kinds})
		}
		r.checkOrder = func() { t.Helper(); bus.checkOrder(); bus.checkUnique() }
		test(r)
	})
}

func newReplicas(t *testing.T, bus, more map[string]string) *replicas {
	t.Helper()
	cp := cluster.ControlPlane(t)
	r := &replicas{t: t, user: newUser(t, cp)}
	r.namespace = quietNamespace(t, r.user)
	for range 2 {
		set := map[string]string{"RESOURCES": "configmaps", "NAMESPACES": r.namespace, "LEASE_NAME": r.namespace}
		for _, from := range []map[string]string{shortLease, bus, more} {
			for k, v := range from {
				set[k] = v
			}
		}
		api := faultproxy.Start(t, strings.TrimPrefix(cp.Config().Host, "https://"))
		r.api = append(r.api, api)
		r.all = append(r.all, newForwarder(t, through(t, cp.Kubeconfig(), api.Addr()), set["NATS_URL"], set))
	}
	return r
}

// through returns a copy of a kubeconfig with another address for the API server.
func through(t *testing.T, kubeconfig, address string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range config.Clusters {
		c.Server = "https://" + address
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// leading waits until exactly one of the replicas leads. It returns the index of the leader and of
// the other replica.
func (r *replicas) leading() (leader, other int) {
	r.t.Helper()
	poll.Try(r.t, "one leads", func(ctx context.Context) error {
		leaders := 0
		for n, f := range r.all {
			leads, err := f.leads(ctx)
			if err != nil {
				return err
			}
			if leads {
				leader, leaders = n, leaders+1
			}
		}
		if leaders != 1 {
			return fmt.Errorf("%d lead", leaders)
		}
		return nil
	})
	return leader, 1 - leader
}

func (f *forwarder) leads(ctx context.Context) (bool, error) {
	leads, err := f.Metric(ctx, "kuberelay_leader")
	return leads == 1, err
}

func (f *forwarder) standsBy(ctx context.Context) error {
	_, body, err := f.get(ctx, "/readyz")
	if err == nil && !strings.Contains(body, "standing by, the leader is") {
		err = errors.New(body)
	}
	return err
}

// led waits until replica n leads.
func (r *replicas) led(n int) {
	r.t.Helper()
	r.all[n].await("it leads", func(ctx context.Context) error {
		leads, err := r.all[n].leads(ctx)
		if err == nil && !leads {
			err = errors.New("it does not")
		}
		return err
	})
}

// load continuously creates, changes, deletes and recreates objects until end is called.
func (r *replicas) load() (end func()) {
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for n := 0; ; n++ {
			select {
			case <-over:
				return
			default:
			}
			name := fmt.Sprintf("load%d", n)
			r.user.create(configMaps, r.namespace, configMap(name, "1"))
			r.user.label(configMaps, r.namespace, name, "yes")
			if n%3 > 0 {
				r.user.delete(configMaps, r.namespace, name)
			}
			if n%3 > 1 {
				r.user.create(configMaps, r.namespace, configMap(name, "2"))
			}
		}
	}()
	return sync.OnceFunc(func() { close(over); <-ended })
}

// settled checks the final state: the bus agrees with the cluster, all events are in order, and no
// event is repeated.
func (r *replicas) settled() {
	r.t.Helper()
	leader, _ := r.leading()
	r.all[leader].idle()
	if code, stdout, stderr := r.all[leader].run("verify", settle); code != 0 || !strings.Contains(stdout, "0 differences") {
		r.t.Errorf("verify ended with %d:\n%s%s", code, stdout, stderr)
	}
	r.checkOrder()
}

// begin starts both replicas with some existing objects and under load. The first replica leads.
func (r *replicas) begin() (leader, other int, endLoad func()) {
	r.t.Helper()
	for n := range 20 {
		r.user.create(configMaps, r.namespace, configMap(fmt.Sprintf("c%d", n), "1"))
	}
	r.all[0].start().ready()
	r.led(0)
	r.all[1].start().ready()
	r.all[0].idle()
	endLoad = r.load()
	r.t.Cleanup(endLoad)
	return 0, 1, endLoad
}

// TestLeadershipIsHandedOver_Slow verifies that the standby continues where the leader stopped when the
// leader shuts down under load.
func TestLeadershipIsHandedOver_Slow(t *testing.T) {
	onEachBus(t, nil, func(r *replicas) {
		leader, other, endLoad := r.begin()
		r.all[other].await("it stands by", func(ctx context.Context) error {
			_, body, err := r.all[other].get(ctx, "/readyz")
			if err == nil && !strings.Contains(body, "lease: ok, standing by, the leader is ") {
				err = errors.New(body)
			}
			return err
		})
		asked := time.Now()
		r.all[leader].stop()
		ended := time.Now()
		r.user.create(configMaps, r.namespace, configMap("late", "1"))
		r.await("late", "created")
		r.t.Logf("the leader drained in %s, and the first event of the next leader arrived %s after the end of the first", ended.Sub(asked), time.Since(ended))
		r.all[leader].start().ready()
		endLoad()
		r.settled()
		if leads, err := r.all[leader].leads(r.t.Context()); err != nil || leads {
			r.t.Errorf("the replica that came back leads: %v (%v)", leads, err)
		}
	})
}

// TestALeaderIsKilled_Slow verifies that the standby takes over when the lease has expired, and that it
// publishes the changes in between.
func TestALeaderIsKilled_Slow(t *testing.T) {
	onEachBus(t, nil, func(r *replicas) {
		leader, other, endLoad := r.begin()
		r.user.create(configMaps, r.namespace, configMap("gone", "1"))
		r.await("gone", "created")
		r.all[leader].kill()
		killed := time.Now()
		r.user.delete(configMaps, r.namespace, "gone")
		r.user.create(configMaps, r.namespace, configMap("late", "1"))
		r.await("late", "created")
		r.t.Logf("the first event of the next leader arrived %s after the kill, with a lease of 15 s", time.Since(killed))
		r.await("gone", "created deleted")
		r.led(other)
		r.all[leader].start().ready()
		endLoad()
		r.settled()
	})
}

// TestALeaderThatWakesUp_Slow verifies that a leader that was frozen for longer than its lease neither
// overwrites nor repeats its successor's events. The former leader becomes a standby and can lead
// again.
func TestALeaderThatWakesUp_Slow(t *testing.T) {
	onEachBus(t, nil, func(r *replicas) {
		leader, other, endLoad := r.begin()
		r.user.create(configMaps, r.namespace, configMap("gone", "1"))
		r.await("gone", "created")
		r.all[leader].Signal(syscall.SIGSTOP)
		r.t.Cleanup(func() { r.all[leader].Signal(syscall.SIGCONT) })
		r.user.delete(configMaps, r.namespace, "gone")
		r.user.create(configMaps, r.namespace, configMap("late", "1"))
		r.led(other)
		r.await("gone", "created deleted")
		r.await("late", "created")
		pid := r.all[leader].PID()
		r.all[leader].Signal(syscall.SIGCONT)
		r.all[leader].await("it stands by", r.all[leader].standsBy)
		r.user.label(configMaps, r.namespace, "late", "yes")
		r.await("late", "created updated")
		r.all[other].stop()
		r.led(leader)
		r.user.label(configMaps, r.namespace, "late", "again")
		r.await("late", "created updated updated")
		if got := r.all[leader].PID(); got != pid || !r.all[leader].Running() {
			r.t.Error("the former leader has ended")
		}
		r.all[other].start().ready()
		endLoad()
		r.settled()
	})
}

// TestAnIdleLeaderThatWakesUpAlone_Slow verifies a former leader that was frozen for longer than its
// lease and wakes up with nothing to write and without the API server. On Kafka, it learns from the
// bus that another writer replaced it, before its elector gives up. It becomes a standby and can
// lead again.
func TestAnIdleLeaderThatWakesUpAlone_Slow(t *testing.T) {
	onEachBus(t, nil, func(r *replicas) {
		leader, other, endLoad := r.begin()
		endLoad()
		r.all[leader].idle()
		pid := r.all[leader].PID()
		r.all[leader].Signal(syscall.SIGSTOP)
		r.t.Cleanup(func() { r.all[leader].Signal(syscall.SIGCONT) })
		r.led(other)
		r.all[other].idle()
		r.api[leader].Refuse()
		r.all[leader].Signal(syscall.SIGCONT)
		r.all[leader].awaitLog("stopped leading")
		r.api[leader].Pass()
		r.all[leader].await("it stands by", r.all[leader].standsBy)
		r.all[other].stop()
		r.led(leader)
		r.user.create(configMaps, r.namespace, configMap("late", "1"))
		r.await("late", "created")
		if got := r.all[leader].PID(); got != pid || !r.all[leader].Running() {
			r.t.Error("the former leader has ended")
		}
		r.all[other].start().ready()
		r.settled()
	})
}

// TestTheAPIServerIsAwayForLongerThanALease_Slow verifies that no replica leads while the API server is
// away for longer than a lease. Afterward, one replica leads, and both still have their caches.
func TestTheAPIServerIsAwayForLongerThanALease_Slow(t *testing.T) {
	onEachBus(t, nil, func(r *replicas) {
		_, _, endLoad := r.begin()
		for _, api := range r.api {
			api.Refuse()
		}
		for n := range r.all {
			r.all[n].await("it does not lead", func(ctx context.Context) error {
				leads, err := r.all[n].leads(ctx)
				if leads {
					err = errors.New("it does")
				}
				return err
			})
		}
		r.all[0].awaitLog("stopped leading")
		r.user.create(configMaps, r.namespace, configMap("late", "1"))
		for _, api := range r.api {
			api.Pass()
		}
		r.await("late", "created")
		for n, f := range r.all {
			if !f.Running() {
				r.t.Errorf("replica %d ended", n)
			}
			if starts := strings.Count(f.log(), "serving metrics and health"); starts != 1 {
				r.t.Errorf("replica %d was started %d times", n, starts)
			}
		}
		endLoad()
		r.settled()
	})
}
