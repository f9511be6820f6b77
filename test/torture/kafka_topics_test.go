package torture

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kuberelay/kuberelay/test/harness"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// topicRecorders record every event topic in a plan's configurations.
type topicRecorders struct {
	byName map[string]*harness.KafkaRecorder
}

func recordTopics(addr string, s settings) (*topicRecorders, error) {
	r := &topicRecorders{map[string]*harness.KafkaRecorder{}}
	for _, c := range append([]configuration{{topic: topicName}, s.configuration}, s.later...) {
		for _, name := range topics(c.topic) {
			if r.byName[name] != nil {
				continue
			}
			one, err := harness.RecordKafka(addr, name)
			if err != nil {
				r.Close()
				return nil, err
			}
			r.byName[name] = one
		}
	}
	return r, nil
}

// main returns the recorder of the topic that faults affect.
func (r *topicRecorders) main() *harness.KafkaRecorder { return r.byName[topicName] }

// TolerateInvalid implements [harness.Recorder], as are the following methods.
func (r *topicRecorders) TolerateInvalid() {
	for _, one := range r.byName {
		one.TolerateInvalid()
	}
}

func (r *topicRecorders) Close() {
	for _, one := range r.byName {
		one.Close()
	}
}

func (r *topicRecorders) All() (all []harness.Received, missed bool, err error) {
	for _, name := range slices.Sorted(maps.Keys(r.byName)) {
		of, m, err := r.byName[name].All()
		if err != nil {
			return nil, false, err
		}
		all, missed = append(all, of...), missed || m
	}
	return all, missed, nil
}

func (r *topicRecorders) CatchUp(ctx context.Context, limit time.Duration) error {
	return poll.Until(ctx, limit, "everything in the topics has been read", func(ctx context.Context) error { // a look for a topic can time out
		return r.each(ctx, func(one *harness.KafkaRecorder) error { return one.CatchUp(ctx, limit) })
	})
}

func (r *topicRecorders) Stored(ctx context.Context) (sum uint64, err error) {
	err = r.each(ctx, func(one *harness.KafkaRecorder) error {
		n, err := one.Stored(ctx)
		sum += n
		return err
	})
	return sum, err
}

// each calls do for the topics that exist. If the suite records only one topic, that topic must exist.
func (r *topicRecorders) each(ctx context.Context, do func(*harness.KafkaRecorder) error) error {
	for name, one := range r.byName {
		ctx, cancel := context.WithTimeout(ctx, opTimeout)
		_, err := one.Partitions(ctx, name)
		cancel()
		if errors.Is(err, harness.ErrNoTopic) && len(r.byName) > 1 {
			continue
		}
		if err == nil {
			err = do(one)
		}
		if err != nil {
			return fmt.Errorf("topic %s: %w", name, err)
		}
	}
	return nil
}

// freezeForwarders freezes the forwarders until thaw is called. It returns the ends of the event topic
// and all recorded messages.
func (b *kafkaBus) freezeForwarders(ctx context.Context) (ends []int64, all []harness.Received, thaw func(), err error) {
	nodes := b.world.nodes
	for _, n := range nodes {
		n.Signal(syscall.SIGSTOP)
	}
	thaw = func() {
		for _, n := range nodes {
			n.Signal(syscall.SIGCONT)
		}
	}
	if err = b.world.quiet(ctx); err == nil {
		err = poll.Until(ctx, limit, "the ends are known", func(ctx context.Context) (err error) {
			_, ends, err = b.main().Ends(ctx)
			return err
		})
	}
	if err == nil {
		all, _, err = b.All()
	}
	return ends, all, thaw, err
}

// cutTails kills the broker, cuts batches off the end of every partition of the topics, and starts
// the broker again. The forwarders are frozen until the suite knows which records were lost.
func (b *kafkaBus) cutTails(ctx context.Context, names []string, batches int) error {
	w := b.world
	if has, err := w.awaitStored(ctx, "there is something to lose"); !has {
		return err
	}
	kept, all, thaw, err := b.freezeForwarders(ctx)
	defer thaw()
	if err != nil {
		return err
	}
	if err := b.server.Kill(); err != nil {
		return err
	}
	ends := slices.Clone(kept)
	for _, name := range names {
		cut, err := cutTopic(b.server.Data(), name, batches)
		if err != nil {
			return errors.Join(err, b.server.Start(ctx))
		}
		if name != topicName {
			continue
		}
		for p, end := range cut {
			ends[p] = min(ends[p], end)
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
	if err := b.server.Start(ctx); err != nil {
		return err
	}
	return poll.Until(ctx, limit, "the topic ends where it was cut", func(ctx context.Context) error {
		_, is, err := b.main().Ends(ctx)
		if err == nil && !slices.Equal(is, ends) {
			err = fmt.Errorf("it ended at %v and should end at %v, the broker says %v", kept, ends, is)
		}
		return err
	})
}

// cutTopic cuts batches off the last segment of every partition of a topic in the broker's directory.
// It returns the new end of each partition.
func cutTopic(data, topic string, batches int) (ends map[int]int64, err error) {
	ends = map[int]int64{}
	directories, err := filepath.Glob(filepath.Join(data, topic+"-*"))
	if err != nil {
		return nil, err
	}
	for _, directory := range directories {
		p, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(directory), topic+"-"))
		if err != nil {
			continue // another topic, or one that is being deleted
		}
		segments, err := filepath.Glob(filepath.Join(directory, "*.log"))
		if err != nil {
			return nil, err
		}
		slices.Sort(segments)
		for len(segments) > 1 && isEmpty(segments[len(segments)-1]) {
			segments = segments[:len(segments)-1]
		}
		if len(segments) == 0 {
			continue
		}
		if ends[p], err = cutSegment(segments[len(segments)-1], batches); err != nil {
			return nil, err
		}
	}
	return ends, nil
}

func isEmpty(file string) bool {
	info, err := os.Stat(file)
	return err == nil && info.Size() == 0
}

// cutSegment cuts the last batches off a segment and returns the offset at which the segment then
// ends. A batch begins with its first offset (8 bytes) and the length of the rest (4 bytes). The 4
// bytes at byte 23 contain the difference between the last and the first offset.
func cutSegment(file string, batches int) (end int64, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	base, err := strconv.ParseInt(strings.TrimSuffix(filepath.Base(file), ".log"), 10, 64)
	if err != nil {
		return 0, err
	}
	const head = 12
	starts, after := []int{}, []int64{base}
	size := 0
	for size+head <= len(text) {
		length := int(binary.BigEndian.Uint32(text[size+8:]))
		if length == 0 || size+head+length > len(text) {
			break // preallocated or incomplete
		}
		last := int64(binary.BigEndian.Uint64(text[size:])) + int64(binary.BigEndian.Uint32(text[size+23:]))
		starts, after = append(starts, size), append(after, last+1)
		size += head + length
	}
	keep := max(0, len(starts)-batches)
	if keep < len(starts) {
		size = starts[keep]
	}
	return after[keep], os.Truncate(file, int64(size))
}
