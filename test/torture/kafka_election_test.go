package torture

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/kuberelay/kuberelay/test/harness"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// copyDisk copies the disk of a broker, like a backup. The broker is down meanwhile.
func (b *kafkaBus) copyDisk(ctx context.Context, n int) error {
	clear(b.older)
	if has, err := b.world.awaitStored(ctx, "there is something to copy"); !has {
		return err
	}
	b.older[n] = filepath.Join(b.world.dir, "disk")
	broker := b.cluster.Brokers[n]
	return errors.Join(broker.Kill(), broker.CopyData(b.older[n]), broker.Start(ctx))
}

// electOlder replaces the disk of a broker with its copy, if it has one. Then it makes that broker the
// leader of the topics by an unclean election, which loses all records that the broker lacks. The
// forwarders are frozen until the suite knows which records were lost.
func (b *kafkaBus) electOlder(ctx context.Context, names []string) error {
	w := b.world
	if len(b.older) == 0 {
		return nil // there was nothing to copy
	}
	acknowledged := b.acknowledged(ctx, w.nodes[0])
	kept, all, thaw, err := b.freezeForwarders(ctx)
	defer thaw()
	if err != nil {
		return err
	}
	const unclean = "unclean.leader.election.enable"
	for _, name := range names {
		if err := b.cluster.Configure(ctx, name, unclean, "true"); err != nil {
			return err
		}
	}
	for n := range b.older {
		if err := b.endOutOfSync(ctx, n); err != nil {
			return err
		}
	}
	for n, copied := range b.older {
		older := b.cluster.Brokers[n]
		if copied != "" {
			if err := older.PutBackData(copied); err != nil {
				return err
			}
		}
		ends := slices.Clone(kept)
		if slices.Contains(names, topicName) {
			if ends, err = endsIn(older.Data(), kept); err != nil {
				return err
			}
		}
		to, err := b.main().Rewind(ctx, ends, limit)
		if err != nil {
			return err
		}
		from := map[int]uint64{}
		for p, end := range ends {
			from[p] = uint64(end)
		}
		w.loseEnds(all, topicName, from, to)
		b.toReport = b.lostObjects(acknowledged)
		if err := older.Start(ctx); err != nil {
			return err
		}
		if err := b.awaitLeader(ctx, n, names); err != nil {
			return err
		}
		kept = ends
	}
	for _, name := range names {
		if err := b.cluster.Configure(ctx, name, unclean, ""); err != nil {
			return err
		}
	}
	if err := b.mend(ctx); err != nil {
		return err
	}
	return poll.Until(ctx, limit, "the topic ends where the older disk ends", func(ctx context.Context) error {
		_, is, err := b.main().Ends(ctx)
		if err == nil && !slices.Equal(is, kept) {
			err = fmt.Errorf("it should end at %v, the brokers say %v", kept, is)
		}
		return err
	})
}

// endOutOfSync kills a broker, waits until its replicas are out of sync, and kills the other brokers.
// Otherwise the controller could elect the broker in a clean election, for any topic.
func (b *kafkaBus) endOutOfSync(ctx context.Context, n int) error {
	if err := b.cluster.Brokers[n].Kill(); err != nil {
		return err
	}
	err := poll.Until(ctx, limit, "its replicas aren't in sync", func(ctx context.Context) error {
		all, err := b.cluster.Describe(ctx)
		for _, p := range all {
			if slices.Contains(p.InSync, n) {
				err = errors.Join(err, fmt.Errorf("%+v", p))
			}
		}
		return err
	})
	for _, broker := range b.cluster.Brokers {
		err = errors.Join(err, broker.Kill())
	}
	return err
}

// awaitLeader waits until a broker leads all partitions of the topics.
func (b *kafkaBus) awaitLeader(ctx context.Context, n int, names []string) error {
	return poll.Until(ctx, limit, "the broker with the older disk leads", func(ctx context.Context) error {
		all, err := b.cluster.Describe(ctx, names...)
		for _, p := range all {
			if p.Leader != n {
				err = errors.Join(err, fmt.Errorf("%+v", p))
			}
		}
		return err
	})
}

// endsIn returns the end of each partition of the event topic on a disk, limited to the value in before.
func endsIn(data string, before []int64) ([]int64, error) {
	ends := make([]int64, len(before)) // a topic that is not on the disk is empty
	found, err := cutTopic(data, topicName, 0)
	for p, end := range maps.All(found) {
		if p < len(ends) {
			ends[p] = min(before[p], end)
		}
	}
	return ends, err
}

// acknowledged returns the recorded messages once a forwarder has nothing in flight, so that it has
// received all their acknowledgements. It returns nil if it can't determine that. It also notes the
// losses that the forwarders have reported so far.
func (b *kafkaBus) acknowledged(ctx context.Context, n *node) (all []harness.Received) {
	_ = poll.Until(ctx, feltLimit, "nothing is in flight", func(ctx context.Context) (err error) {
		if all, _, err = b.All(); err != nil {
			return err
		}
		b.reported = b.world.losses(ctx)
		flying, err := n.Metric(ctx, "kuberelay_kafka_in_flight")
		if err == nil && flying > 0 {
			err = fmt.Errorf("%.0f are", flying)
		}
		if err != nil {
			all = nil
		}
		return err
	})
	return all
}

// lostObjects returns the number of objects whose last acknowledged event is lost. It counts only
// objects that existed according to that event.
func (b *kafkaBus) lostObjects(acknowledged []harness.Received) (objects int) {
	last := map[string]harness.Received{}
	for _, m := range acknowledged {
		if m.Topic == topicName && !isMarker(m) {
			last[m.Subject] = m
		}
	}
	for _, m := range last {
		if b.world.lost[m.Place] && m.Body != nil && !gone(m) {
			objects++
		}
	}
	return objects
}

// awaitReport waits until a forwarder reports that the bus has lost events. It fails if the forwarders
// ran all the time and none of them reports the loss.
func (b *kafkaBus) awaitReport(ctx context.Context) error {
	if b.toReport == 0 {
		return nil
	}
	if err := b.world.awaitTold(ctx, b.reported); err != nil {
		return &wrongError{[]string{fmt.Sprintf("the last events of %d objects are lost: %v", b.toReport, err)}}
	}
	return nil
}
