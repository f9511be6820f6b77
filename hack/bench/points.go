package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
)

const (
	pointsTime   = 30 * time.Second
	pointsRounds = 5

	// churnEvery sets how often a change creates or deletes an object: each happens once in churnEvery
	// changes.
	churnEvery = 20

	// maxExtra is the maximum ratio of the cost with consistency points and tombstones to the cost
	// without them.
	maxExtra = 1.02
)

// expense has the CPU time in microseconds and the bytes for each event, by run.
type expense struct{ cpu, bytes series }

// benchPoints measures the cost of consistency points and tombstones on Kafka, where each point needs a
// record in every partition. Runs with and without them alternate.
func (s *stage) benchPoints(ctx context.Context, _ int) error {
	cluster, err := s.startKafka(ctx, 1)
	if err != nil {
		return err
	}
	rounds := s.rounds
	if rounds == 0 {
		rounds = pointsRounds
	}
	var with, without expense
	for range rounds {
		err = errors.Join(
			s.runPoints(ctx, cluster, &without, "KUBERELAY_RESOLVED_INTERVAL=0s", "KUBERELAY_KAFKA_TOMBSTONES=false"),
			s.runPoints(ctx, cluster, &with),
		)
		if err != nil {
			return errors.Join(err, cluster.close())
		}
	}
	s.report.addPoints(&with, &without)
	return cluster.close()
}

func (s *stage) runPoints(ctx context.Context, cluster *kafkaCluster, e *expense, env ...string) (err error) {
	s.topics++
	topic := &kafkaTopic{cluster, fmt.Sprint("points-", s.topics)}
	f, err := s.startForwarder(append(append(topic.env(), "KUBERELAY_RESOURCES=pods,configmaps", "KUBERELAY_NAMESPACES="+liveNamespace), env...)...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	client, err := kubernetes.NewForConfig(s.cluster.Config())
	if err != nil {
		return err
	}
	c := changer{}
	before, err := s.calm(ctx, f, &c)
	if err != nil {
		return err
	}
	stop, cancel := context.WithTimeout(ctx, pointsTime)
	defer cancel()
	if err := pace(ctx, stop, liveRate, func(ctx context.Context, i int) error {
		if i%(churnEvery/2) == 0 {
			return churn(ctx, client, i/churnEvery, i%churnEvery == 0)
		}
		return c.change(ctx, liveObject(i))
	}); err != nil {
		return err
	}
	if err := f.idle(ctx); err != nil {
		return err
	}
	after, err := f.metrics(ctx)
	if err != nil {
		return err
	}
	published := after.sum("kuberelay_events_published_total", "") - before.sum("kuberelay_events_published_total", "")
	e.cpu = append(e.cpu, 1e6*(after.sum("process_cpu_seconds_total", "")-before.sum("process_cpu_seconds_total", ""))/published)
	e.bytes = append(e.bytes, (after.sum("kuberelay_kafka_batch_bytes_total", "")-before.sum("kuberelay_kafka_batch_bytes_total", ""))/published)
	return nil
}

// calm connects a changer, waits until a forwarder is idle, and returns the metrics before the changes.
func (s *stage) calm(ctx context.Context, f *process, c *changer) (before metrics, err error) {
	if c.client, err = metadata.NewForConfig(s.cluster.Config()); err != nil {
		return "", err
	}
	if err := f.idle(ctx); err != nil {
		return "", err
	}
	return f.metrics(ctx)
}

// churn creates the n-th object, or deletes the object before it.
func churn(ctx context.Context, client kubernetes.Interface, n int, create bool) error {
	all := client.CoreV1().ConfigMaps(liveNamespace)
	if create {
		_, err := all.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "churn-", Labels: map[string]string{"churn": fmt.Sprint(n + 1)}}}, metav1.CreateOptions{})
		return err
	}
	return all.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: fmt.Sprint("churn=", n)})
}

func (r *report) addPoints(with, without *expense) {
	section := r.add(fmt.Sprintf("Consistency points and tombstones on Kafka, %.0f changes per second", liveRate), "", "CPU for each event, µs", "bytes for each event, compressed")
	for _, c := range []struct {
		name string
		of   *expense
	}{{"without", without}, {"with", with}} {
		section.add(c.name, c.of.cpu.show("%.1f"), c.of.bytes.show("%.1f"))
	}
	text := "consistency points and tombstones cost at most %.2f × of the %s without them"
	r.atMost(fmt.Sprintf(text, maxExtra, "CPU time"), series{with.cpu.median() / without.cpu.median()}, maxExtra, "%.3f")
	r.atMost(fmt.Sprintf(text, maxExtra, "bytes"), series{with.bytes.median() / without.bytes.median()}, maxExtra, "%.3f")
}
