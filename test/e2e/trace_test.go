package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	kafkago "github.com/segmentio/kafka-go"

	"github.com/kuberelay/kuberelay/internal/trace"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// traces runs trace for an object until it ends with the given exit code and reason, and its
// verdict contains the words.
func (f *forwarder) traces(code int, reason trace.Reason, words string, args ...string) (d trace.Document) {
	f.t.Helper()
	poll.Try(f.t, fmt.Sprintf("trace %v ends with %d, %s: %q", args, code, reason, words), func(context.Context) error {
		d = trace.Document{}
		got, stdout, stderr := f.run(append([]string{"trace", "--output=json"}, args...)...)
		if err := json.Unmarshal([]byte(stdout), &d); err != nil || stderr != "" {
			return fmt.Errorf("%w: it ends with %d: %s%s", err, got, stdout, stderr)
		}
		if v := d.Verdict; got != code || v.Code != code || v.Reason != reason || !strings.Contains(v.Summary, words) {
			return fmt.Errorf("it ended with exit code %d: %s", got, stdout)
		}
		return nil
	})
	return d
}

// refuses verifies that trace rejects an invalid command line with an error that contains the
// words.
func (f *forwarder) refuses(words string, args ...string) {
	f.t.Helper()
	if code, stdout, stderr := f.run(append([]string{"trace"}, args...)...); code != 2 || stdout != "" || !strings.Contains(stderr, words) {
		f.t.Errorf("trace %v ended with %d, and says %s%s; want %q", args, code, stdout, stderr, words)
	}
}

// TestTrace_Slow verifies the verdicts of trace for an object through its life, and after each way to
// deselect it.
func TestTrace_Slow(t *testing.T) {
	onBothBuses(t, func(t *testing.T, bus *anyBus) {
		cp := cluster.ControlPlane(t)
		u := newUser(t, cp)
		namespace := quietNamespace(t, u)
		in := "-n=" + namespace
		settings := map[string]string{"RESOURCES": "configmaps", "NAMESPACES": namespace}
		f := bus.forwarder(cp.Kubeconfig(), settings)
		restart := func(more map[string]string) {
			t.Helper()
			f.kill()
			f = bus.forwarder(cp.Kubeconfig(), merged(settings, more))
			f.start().idle()
		}
		o := u.create(configMaps, namespace, configMap("a", "1"))
		f.traces(2, trace.CannotTell, "a forwarder creates the ", "configmap/a", in)
		f.start().idle()

		for _, args := range [][]string{{"configmap/a"}, {"cm", "a"}, {"ConfigMap/a"}, {"configmaps.v1./a"}} {
			d := f.traces(0, trace.OnBus, "on the bus: version "+o.GetResourceVersion()+", stored ", append(args, in)...)
			if d.APIServer.UID != string(o.GetUID()) || d.Bus.UID != d.APIServer.UID || d.Bus.Position == "" || d.Bus.Stored == nil || d.Bus.Type != "snapshot" {
				t.Errorf("%v: %+v, %+v", args, d.APIServer, d.Bus)
			}
			w, c := d.Forwarder.Watch, d.Forwarder.Checkpoint
			if w == nil || w.Version != o.GetResourceVersion() || w.State != "synced" || c == nil || c.Position != d.Bus.Position || c.Version != d.Bus.Version {
				t.Errorf("%v: %+v, %+v", args, w, c)
			}
			if s := d.Selection; s.Selected != trace.IsSelected || s.Selector != "configmaps" || s.From != trace.FromForwarder || d.Cluster != clusterName {
				t.Errorf("%v: %+v of %s", args, s, d.Cluster)
			}
			if d.Forwarder.Unsent != nil || d.Forwarder.Queue != "" || d.Forwarder.Decision != "unchanged" {
				t.Errorf("%v: %+v", args, d.Forwarder)
			}
		}
		if code, stdout, stderr := f.run("trace", "configmap/a", in); code != 0 || !strings.Contains(stdout, "\nbus:         snapshot, version "+o.GetResourceVersion()) || stderr != "" {
			t.Errorf("it ended with exit code %d: %s%s", code, stdout, stderr)
		}
		f.traces(2, trace.NoObject, "neither the API server nor the bus has configmaps "+namespace+"/b", "configmap/b", in)
		f.traces(1, trace.Deselection, "KUBERELAY_NAMESPACES does not include default", "configmap/kube-root-ca.crt")
		u.create(gvr("", "v1", "services"), namespace, "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {ports: [{port: 1}]}")
		f.traces(1, trace.Deselection, "KUBERELAY_RESOURCES does not select services", "svc/s", in)
		f.refuses("the cluster does not serve it", "cfgmap/a")
		f.refuses("name one object", "configmaps")
		f.refuses("without a wildcard", "*.apps/a")
		f.refuses(`--output="yaml"`, "cm/a", "-o=yaml")
		f.refuses(`--namespace="A"`, "cm/a", "-n=A")

		f.kill()
		f.traces(0, trace.OnBus, "on the bus: version "+o.GetResourceVersion(), "cm/a", in)
		f.traces(1, trace.Deselection, "KUBERELAY_NAMESPACES does not include default", "configmap/kube-root-ca.crt")
		changed := u.label(configMaps, namespace, "a", "2")
		d := f.traces(1, trace.Behind, "behind: the API server has version "+changed.GetResourceVersion()+"; the bus has version "+o.GetResourceVersion()+"; the forwarder does not respond", "cm/a", in)
		if d.Forwarder.Role != trace.Unreachable || d.Selection.From != trace.FromEnvironment || d.Selection.Selected != trace.IsSelected {
			t.Errorf("%+v, %+v", d.Forwarder, d.Selection)
		}
		u.delete(configMaps, namespace, "a")
		f.traces(1, trace.Behind, "behind: the object is deleted; the bus has version "+o.GetResourceVersion(), "cm/a", in)
		f.start().idle()
		if d := f.traces(0, trace.DeleteOnBus, "deleted, and the bus has the delete", "cm/a", in); d.Bus.State != trace.Deleted || d.APIServer.State != trace.Absent {
			t.Errorf("%+v", d.Bus)
		}

		u.create(configMaps, namespace, configMap("c", "1"))
		u.label(configMaps, namespace, "c", "1")
		f.idle()
		for setting, value := range map[string]string{
			"LABEL_SELECTOR": "example.com/none=x", "FIELD_SELECTOR": "metadata.name=d", "FILTER": `object.metadata.name == "d"`,
			"EXCLUDE_RESOURCES": "cm", "EXCLUDE_NAMESPACES": namespace, "NAMESPACE_SELECTOR": "example.com/none=x",
		} {
			words := "KUBERELAY_" + setting
			more := map[string]string{setting: value}
			if setting == "EXCLUDE_NAMESPACES" {
				more["NAMESPACES"] = ""
			}
			restart(more)
			u.label(configMaps, namespace, "c", "with-"+setting)
			running := f.traces(1, trace.Deselection, words, "cm/c", in)
			f.kill()
			alone := f.traces(1, trace.Deselection, words, "cm/c", in)
			if setting == "FILTER" && (running.Selection.Filter != trace.FilterFalse || alone.Selection.Filter != trace.FilterFalse) {
				t.Errorf("%+v, %+v", running.Selection, alone.Selection)
			}
		}
		restart(map[string]string{"FILTER": `object.metadata.name == "c"`})
		if d := f.traces(0, trace.OnBus, "", "cm/c", in); d.Selection.Filter != trace.FilterTrue {
			t.Errorf("%+v", d.Selection)
		}
		restart(map[string]string{"FILTER": `object.data.absent == "x"`})
		if d := f.traces(0, trace.OnBus, "", "cm/c", in); d.Selection.Filter != trace.FilterFailed {
			t.Errorf("%+v", d.Selection)
		}
		restart(map[string]string{"DROP_FIELDS": "*:.metadata.labels"})
		f.idle()
		u.label(configMaps, namespace, "c", "dropped")
		f.traces(0, trace.Unchanged, "differs only in fields that are not published", "cm/c", in)
		f.stop()
	})
}

// TestTraceForbidden verifies the verdict of trace for a resource that the forwarder may not read.
func TestTraceForbidden(t *testing.T) {
	bus := natsServer(t)
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := quietNamespace(t, u)
	u.letRead(namespace, `"configmaps"`)
	awaitAccess(t, cp, configMaps, namespace, true)
	f := newForwarder(t, cp.KubeconfigFor("little"), bus.URL, map[string]string{"RESOURCES": "configmaps,services", "NAMESPACES": namespace})
	u.create(configMaps, namespace, configMap("a", "1"))
	f.start()
	f.traces(0, trace.OnBus, "", "cm/a", "-n="+namespace)
	f.traces(1, trace.Forbidden, "not watched: ", "svc/a", "-n="+namespace)
	f.kill()
	f.traces(1, trace.Forbidden, "forbidden: list, watch, get in the namespace "+namespace, "svc/a", "-n="+namespace)
}

// TestTraceOutage verifies the verdicts of trace while consumers are behind, while the stream is
// full, and while the bus is down.
func TestTraceOutage(t *testing.T) {
	bus := natstest.StartProcess(t)
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := quietNamespace(t, u)
	in := "-n=" + namespace
	f := newForwarder(t, cp.Kubeconfig(), bus.URL, map[string]string{"RESOURCES": "configmaps", "NAMESPACES": namespace})
	u.create(configMaps, namespace, configMap("a", "1"))
	f.start().idle()
	js := jetStream(t, bus.URL)
	stream, err := js.Stream(t.Context(), "KUBERELAY")
	if err != nil {
		t.Fatal(err)
	}
	create := func(c jetstream.ConsumerConfig) jetstream.Consumer {
		t.Helper()
		c.AckPolicy = jetstream.AckExplicitPolicy
		made, err := stream.CreateConsumer(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	consumer := func(name, filter string) jetstream.Consumer {
		t.Helper()
		return create(jetstream.ConsumerConfig{Durable: name, FilterSubject: filter})
	}
	c := consumer("table", subject(configMaps, namespace, "*"))
	consumer("pods", "kuberelay."+clusterName+".core.pods.>")
	f.traces(2, trace.ConsumerUnknown, "no such consumer", "cm/a", in, "--consumer=none")
	f.traces(1, trace.ConsumerBehind, "does not match the subject", "cm/a", in, "--consumer=pods")
	f.traces(1, trace.ConsumerBehind, "has not received it: it is ", "cm/a", in, "--consumer=table")
	// The server counts the messages that a consumer skips as acknowledged.
	info, err := stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	began := info.State.LastTime.Add(time.Nanosecond)
	for name, c := range map[string]jetstream.ConsumerConfig{
		"new":      {DeliverPolicy: jetstream.DeliverNewPolicy},
		"sequence": {DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: info.State.LastSeq + 1},
		"time":     {DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &began},
	} {
		c.Durable = name
		create(c)
		f.traces(1, trace.ConsumerBehind, "does not receive it: it began after this event", "cm/a", in, "--consumer="+name)
	}
	create(jetstream.ConsumerConfig{Durable: "last", DeliverPolicy: jetstream.DeliverLastPolicy})
	f.traces(2, trace.ConsumerUnknown, "it was created after this event", "cm/a", in, "--consumer=last")
	create(jetstream.ConsumerConfig{Durable: "each", DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, FilterSubject: subject(configMaps, namespace, "*")})
	f.traces(1, trace.ConsumerBehind, "has not received it", "cm/a", in, "--consumer=each")
	f.refuses("--consumer is empty", "cm/a", in, "--consumer=")
	messages, err := c.Fetch(10)
	if err != nil {
		t.Fatal(err)
	}
	var all []jetstream.Msg
	for m := range messages.Messages() {
		if all = append(all, m); len(all) == 2 { // the other message is the event of kube-root-ca.crt
			break
		}
	}
	f.traces(1, trace.ConsumerBehind, "has received it, but has not acknowledged", "cm/a", in, "--consumer=table")
	for _, m := range all {
		if err := m.DoubleAck(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	f.traces(0, trace.OnBus, "the consumer table has acknowledged it", "cm/a", in, "--consumer=table")

	config := stream.CachedInfo().Config
	config.MaxBytes = 1
	if _, err := js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	o := u.label(configMaps, namespace, "a", "full")
	d := f.traces(1, trace.Refused, "waiting: the bus has rejected it", "cm/a", in)
	if e := d.Forwarder.PublishError; e == nil || e.OtherObject || d.Forwarder.Unsent == nil || d.Forwarder.Attempts == 0 || d.Forwarder.Watch.Version != o.GetResourceVersion() {
		t.Errorf("%+v", d.Forwarder)
	}
	bus.Kill()
	f.traces(1, trace.BusUnavailable, "waiting: bus unavailable", "cm/a", in)
	bus.Start()
	config.MaxBytes = -1
	poll.Try(t, "the stream has space", func(ctx context.Context) error {
		_, err := js.UpdateStream(ctx, config)
		return err
	})
	f.traces(0, trace.OnBus, "version "+o.GetResourceVersion(), "cm/a", in)
	f.stop()
}

// TestTraceGroup verifies the verdict of trace for a Kafka consumer group that is behind.
func TestTraceGroup(t *testing.T) {
	s := topic{t, kafkabrokertest.Shared(t).Addr(), kafkabrokertest.TopicName(t.Name())}
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := quietNamespace(t, u)
	in := "-n=" + namespace
	f := newForwarder(t, cp.Kubeconfig(), "", onKafka(s, map[string]string{"RESOURCES": "configmaps", "NAMESPACES": namespace}))
	u.create(configMaps, namespace, configMap("a", "1"))
	f.start().idle()
	f.traces(2, trace.ConsumerUnknown, "it has not committed an offset of topic "+s.name, "cm/a", in, "--consumer="+s.name)
	d := f.traces(0, trace.OnBus, "", "cm/a", in)
	var partition, offset int
	if _, err := fmt.Sscanf(d.Bus.Position, "%d:%d", &partition, &offset); err != nil {
		t.Fatal(err)
	}
	client := kafkabrokertest.Client(t, s.addr)
	commit := func(next int) {
		t.Helper()
		res, err := client.OffsetCommit(t.Context(), &kafkago.OffsetCommitRequest{
			GroupID: s.name, GenerationID: -1, Topics: map[string][]kafkago.OffsetCommit{s.name: {{Partition: partition, Offset: int64(next)}}},
		})
		if err == nil {
			err = res.Topics[s.name][0].Error
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	commit(offset)
	f.traces(1, trace.ConsumerBehind, "has not received it: it is ", "cm/a", in, "--consumer="+s.name)
	commit(offset + 1)
	f.traces(0, trace.OnBus, "has acknowledged it", "cm/a", in, "--consumer="+s.name)
	f.stop()
}
