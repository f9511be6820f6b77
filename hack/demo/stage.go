package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"k8s.io/client-go/dynamic"

	"github.com/kuberelay/kuberelay/internal/credential"
	"github.com/kuberelay/kuberelay/internal/natsserver"
	"github.com/kuberelay/kuberelay/test/harness"
	"github.com/kuberelay/kuberelay/test/lab/childprocess"
	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

const (
	// patience is the time limit for actions that normally take a second or two, because the machine
	// may be busy.
	patience = 90 * time.Second
	interval = 100 * time.Millisecond
)

// stage has the processes and connections of the demo.
type stage struct {
	*console
	fail func(error) // ends the demo

	bin, dir  string // absolute path of the forwarder; directory that is removed at the end
	group     *childprocess.Group
	cp        *controlplane.ControlPlane
	client    dynamic.Interface
	bus       bus
	broker    *kafkabroker.Broker // with SINK=kafka
	recorder  harness.Recorder    // the second subscriber
	address   string              // address of the forwarder's operations server
	forwarder *childprocess.Process
	tail      *exec.Cmd     // the first subscriber
	tailEnded chan struct{} // closed when tail has ended
	tailed    atomic.Int64  // number of lines that tail has printed
}

// bus has the settings and texts that differ between NATS and Kafka.
type bus struct {
	settings, reading []string // variables for the forwarder and for forwarder tail
	server, killed    string   // texts about the server for the acts
	subject           string   // the bus's word for the address of an object
	export, byHand    string   // variables and a command for another client
}

// start starts everything that runs before the first act.
func (s *stage) start(ctx context.Context, sink string) (err error) {
	if s.dir, err = os.MkdirTemp("", "kuberelay-demo-"); err != nil {
		return err
	}
	if s.group, err = childprocess.NewGroup(s.dir); err != nil {
		return err
	}
	s.say("start a real control plane: etcd, kube-apiserver, kube-controller-manager")
	s.note("the first run compiles them from their Go modules, which takes minutes")
	begin := time.Now()
	if s.cp, err = controlplane.Start(ctx, controlplane.Options{Dir: s.dir, ControllerManager: true, Log: s.notes()}); err != nil {
		return err
	}
	if s.client, err = dynamic.NewForConfig(s.cp.Config()); err != nil {
		return err
	}
	go pretendKubelet(ctx, s.client)
	s.done("ready after %s at %s", since(begin), s.cp.Config().Host)
	s.note("it has no nodes: the demo plays the kubelet and reports every Pod as running")
	if err := s.startBus(ctx, sink); err != nil {
		return err
	}
	if s.address, err = harness.FreePort(); err != nil {
		return err
	}
	s.forwarder = &childprocess.Process{
		Name: "forwarder run", Args: []string{s.bin, "run"}, Group: s.group, Dir: s.dir, LogFile: filepath.Join(s.dir, "forwarder.log"),
		Told: &lines{take: func(line string) { s.fail(errors.New(line)) }},
		Env: append([]string{"KUBECONFIG=" + s.cp.Kubeconfig(), "KUBERELAY_RESOURCES=" + watched, "KUBERELAY_LABEL_SELECTOR=" + watchedLabels,
			"KUBERELAY_LISTEN_ADDR=" + s.address, "KUBERELAY_LOG_FORMAT=text"}, s.bus.settings...),
	}
	return s.startTail()
}

func (s *stage) startBus(ctx context.Context, sink string) (err error) {
	switch sink {
	case "", "nats":
		address, err := harness.FreePort()
		if err != nil {
			return err
		}
		data := filepath.Join(s.dir, "data")
		token := natsserver.TokenFile(filepath.Join(data, "nats"))
		settings := []string{"KUBERELAY_NATS_LISTEN=" + address, "KUBERELAY_DATA_DIR=" + data}
		s.bus = bus{
			settings: settings, reading: settings,
			server: ", which brings its own NATS server", killed: ", and its NATS server with it", subject: "subject",
			export: strings.Join(settings, " "), byHand: "nats --server=nats://$(cat " + token + ")@" + address + " subscribe 'kuberelay.>'",
		}
		s.recorder, err = harness.RecordNATS("nats://"+address, "KUBERELAY", nats.TokenHandler(func() string {
			secret, _ := credential.Secret(token) // the forwarder creates it
			return secret
		}))
		return err
	case "kafka":
		s.say("start a real Apache Kafka broker")
		s.note("the first run fetches it from Maven Central, which needs Java and Maven; as root on a system with apt, the demo installs them")
		begin := time.Now()
		if s.broker, err = kafkabroker.Start(ctx, kafkabroker.Options{Log: s.notes()}); err != nil {
			return err
		}
		s.done("ready after %s at %s", since(begin), s.broker.Addr())
		settings := []string{"KUBERELAY_SINK=kafka", "KUBERELAY_KAFKA_BROKERS=" + s.broker.Addr()}
		s.bus = bus{
			settings: settings, reading: settings, subject: "key",
			export: strings.Join(settings, " "), byHand: "kcat -b " + s.broker.Addr() + ` -t kuberelay -f '%p:%o %k\n'`,
		}
		s.recorder, err = harness.RecordKafka(s.broker.Addr(), "kuberelay")
		return err
	}
	return fmt.Errorf("SINK=%q: use nats or kafka", sink)
}

// startTail starts the subscriber whose output the demo shows. The subscriber waits for the bus.
func (s *stage) startTail() error {
	s.say("subscribe; lines with a bar are its output", "bin/forwarder tail --from-start")
	show := func(line string) { s.println(s.paint(grey, "  │ ") + line) }
	color := "--color=never"
	if s.color {
		color = "--color=always"
	}
	s.tail = s.group.Command(context.Background(), s.dir, s.bin, "tail", "--from-start", color)
	s.tail.Env = append(s.tail.Env, s.bus.reading...)
	s.tail.Stdout = &lines{take: func(line string) { show(line); s.tailed.Add(1) }}
	s.tail.Stderr = &lines{take: func(line string) { show(s.paint(grey, line)) }}
	if err := s.tail.Start(); err != nil {
		return err
	}
	s.tailEnded = make(chan struct{})
	go func() {
		defer close(s.tailEnded)
		_ = s.tail.Wait()                                                             // ProcessState has the result
		s.fail(fmt.Errorf("forwarder tail ended by itself: %s", s.tail.ProcessState)) // after the end of the demo, this has no effect
	}()
	return nil
}

// words replaces the placeholders in the description of an act.
func (s *stage) words(say string) string {
	return strings.NewReplacer("{server}", s.bus.server, "{killed}", s.bus.killed).Replace(say)
}

// perform runs one act and waits for its events.
func (s *stage) perform(ctx context.Context, a act) error {
	s.say(s.words(a.say), a.like...)
	before, err := s.events()
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := a.do(ctx, s); err != nil || len(a.want) == 0 {
		return err
	}
	if err := poll.Until(ctx, patience, "the events of the act are on the bus", func(context.Context) error {
		events, err := s.events()
		if err != nil {
			s.fail(err) // an error here is permanent
			return err
		}
		return missing(a.want, events[len(before):])
	}); err != nil {
		return err
	}
	took := since(begin)
	if err := s.settle(ctx); err != nil {
		return err
	}
	seen := make([]string, len(a.want))
	for i, w := range a.want {
		seen[i] = w.String()
	}
	s.done("after %s: %s", took, strings.Join(seen, ", "))
	if a.note != nil {
		s.note("%s", a.note(s))
	}
	return nil
}

// settle waits until the bus and the API server agree, no more events arrive, and tail has printed
// everything.
func (s *stage) settle(ctx context.Context) error {
	count := -1
	return poll.Until(ctx, patience, "the bus and the cluster agree", func(ctx context.Context) error {
		events, err := s.events()
		if err != nil {
			return err
		}
		exists, err := versions(ctx, s.client)
		if err != nil {
			return err
		}
		before := count
		count = len(events)
		switch shown := state(events); {
		case !maps.Equal(shown, exists):
			err = fmt.Errorf("the bus has %v, the cluster has %v", shown, exists)
		case s.tailed.Load() < int64(count):
			err = fmt.Errorf("forwarder tail has printed %d lines of %d", s.tailed.Load(), count)
		case count != before:
			err = errors.New("events still arrive")
		}
		if err != nil {
			wait(ctx, interval)
		}
		return err
	})
}

// handOver prints commands for the user to try.
func (s *stage) handOver() {
	s.say("your turn: everything runs until Ctrl-C, and events appear here. In another terminal:")
	s.println(fmt.Sprintf(`
  export KUBECONFIG=%[1]s
  kubectl create deployment hello --image=nginx --replicas=3
  kubectl scale deployment hello --replicas=1
  kubectl delete deployment hello

  # the state of every object, then each change; whole events; what each update changes; another client
  export %[2]s
  %[3]s tail --last
  %[3]s tail --from-start --resource=pods --output=json
  %[3]s tail --diff --resource=deployments
  %[4]s

  # compare the bus with the cluster
  export KUBERELAY_RESOURCES='%[5]s'
  export KUBERELAY_LABEL_SELECTOR='%[6]s'
  %[3]s verify

  curl http://%[7]s/metrics
  less %[8]s
`, s.cp.Kubeconfig(), s.bus.export, s.bin, s.bus.byHand, watched, watchedLabels, s.address, s.forwarder.LogFile))
}

// showLogs prints the end of the logs. Call it before close, which removes the logs.
func (s *stage) showLogs() {
	if s.forwarder != nil {
		s.println(s.paint(bold, "\nthe end of the forwarder's log:\n") + s.forwarder.Tail(25))
	}
	if s.cp != nil {
		s.println(s.paint(bold, "\nthe end of the control plane's logs:\n") + s.cp.LogTail(5))
	}
}

// close stops all processes, each before the processes that it depends on, and removes the directory.
func (s *stage) close() (err error) {
	if s.tailEnded != nil {
		_ = s.tail.Process.Signal(syscall.SIGTERM) // fails only if the process has already ended
		<-s.tailEnded
	}
	if s.forwarder != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err = s.forwarder.Stop(ctx)
	}
	if s.recorder != nil {
		s.recorder.Close()
	}
	if s.broker != nil {
		err = errors.Join(err, s.broker.Close())
	}
	if s.cp != nil {
		err = errors.Join(err, s.cp.Stop())
	}
	if s.group != nil {
		err = errors.Join(err, s.group.Close())
	}
	return err
}

func since(start time.Time) time.Duration { return time.Since(start).Round(time.Millisecond) }
