package torture

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/internal/event/subject"
	"github.com/kuberelay/kuberelay/test/harness"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// compareTables checks that the tables that stock clients build from the bus have exactly one row for
// each object that exists there. It skips worlds with a foreign writer, whose rows would stay. If the
// bus changes meanwhile, for example because the objects of the previous world are deleted, it
// compares again.
func (w *world) compareTables(ctx context.Context) error {
	if w.settings.foreign || !w.bus.dropsRows() {
		return nil
	}
	want, err := w.shown(ctx)
	for err == nil {
		w.t.Logf("tables of %d objects", len(want))
		different := w.bus.compareTables(ctx, want)
		before := want
		if want, err = w.shown(ctx); different == nil || err == nil && maps.Equal(want, before) {
			return different
		}
	}
	return err
}

// shown returns the subjects of the objects that exist according to the bus.
func (w *world) shown(ctx context.Context) (map[string]bool, error) {
	all, _, err := w.bus.All()
	if err != nil {
		return nil, err
	}
	subjects := map[string]bool{}
	for _, cluster := range w.clusters() {
		replica, err := w.replicaOf(ctx, cluster, all)
		if err != nil {
			return nil, err
		}
		for _, m := range replica {
			if !gone(m) {
				subjects[m.Subject] = true
			}
		}
	}
	return subjects, nil
}

// differentRows returns a [wrongError] if the keys of a table aren't the wanted ones.
func differentRows(table string, rows, want map[string]bool) error {
	var problems []string
	for key := range want {
		if !rows[key] {
			problems = append(problems, fmt.Sprintf("%s: no row of %s", table, key))
		}
	}
	for key := range rows {
		if !want[key] {
			problems = append(problems, fmt.Sprintf("%s: a row of %s", table, key))
		}
	}
	if len(problems) == 0 {
		return nil
	}
	slices.Sort(problems)
	return &wrongError{problems}
}

func (b *natsBus) dropsRows() bool { return true }

// compareTables reads a key-value bucket that sources the stream.
func (b *natsBus) compareTables(ctx context.Context, want map[string]bool) error {
	const name = "objects"
	source := &jetstream.StreamSource{Name: streamName, SubjectTransforms: []jetstream.SubjectTransformConfig{}}
	for _, cluster := range b.world.clusters() {
		all := subject.Cluster("kuberelay", cluster)
		source.SubjectTransforms = append(source.SubjectTransforms, jetstream.SubjectTransformConfig{
			Source: all, Destination: "$KV." + name + strings.TrimPrefix(all, "kuberelay"),
		})
	}
	_, err := b.JetStream().CreateStream(ctx, jetstream.StreamConfig{ // as in docs/subscribing.md
		Name: "KV_" + name, Sources: []*jetstream.StreamSource{source}, MaxMsgsPerSubject: 1,
		Discard: jetstream.DiscardNew, AllowDirect: true, AllowRollup: true, DenyDelete: true,
	})
	if err != nil {
		return fmt.Errorf("create the bucket: %w", err)
	}
	bucket, err := b.JetStream().KeyValue(ctx, name)
	if err != nil {
		return fmt.Errorf("open the bucket: %w", err)
	}
	expected := map[string]bool{}
	for subject := range want {
		expected[strings.TrimPrefix(subject, "kuberelay.")] = true
	}
	return poll.Until(ctx, settle, "the keys of the bucket are the objects", func(ctx context.Context) error {
		keys, err := bucket.Keys(ctx)
		if err != nil && !errors.Is(err, jetstream.ErrNoKeysFound) {
			return err
		}
		rows := map[string]bool{}
		for _, key := range keys {
			rows[key] = true
		}
		return differentRows("bucket", rows, expected)
	})
}

// dropsRows reports whether every delete on the bus has a tombstone, including deletes of an
// earlier configuration.
func (b *kafkaBus) dropsRows() bool { return b.world.settings.kafka.tombstones }

// compareTables reads the topics as tables of Kafka Streams.
func (b *kafkaBus) compareTables(ctx context.Context, want map[string]bool) error {
	var existing []string
	for _, topic := range topics(b.world.settings.topic) {
		if _, err := b.main().Partitions(ctx, topic); errors.Is(err, harness.ErrNoTopic) {
			continue // the forwarder published no event of the resource
		} else if err != nil {
			return err
		}
		existing = append(existing, topic)
	}
	var all error
	for kind, rows := range kafkabrokertest.Tables(b.world.t, b.addr, existing...) {
		keys := map[string]bool{}
		for key := range rows {
			keys[key] = true
		}
		all = errors.Join(all, differentRows(kind, keys, want))
	}
	return all
}
