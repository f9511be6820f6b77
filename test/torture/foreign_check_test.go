package torture

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	verifyreport "github.com/kuberelay/kuberelay/internal/verify/report"
	"github.com/kuberelay/kuberelay/test/harness"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// memoryBound is the maximum resident memory of a forwarder. A forwarder that keeps the unpacked
// content of a decompression bomb, or the messages of a foreign writer, exceeds it.
const memoryBound = 256 << 20

// performBeside executes a plan. With a foreign writer, it also watches the memory of the forwarders,
// and then checks the effect of the writer's last messages. It returns the time at which the faults
// ended.
func (w *world) performBeside(ctx context.Context, p *plan) (over time.Time, err error) {
	if !p.settings.foreign {
		err = w.perform(ctx, p)
		return time.Now(), err
	}
	var watching sync.WaitGroup
	watched, end := context.WithCancel(ctx)
	watching.Go(func() { w.watchMemory(watched) })
	defer watching.Wait()
	defer end()
	w.bus.TolerateInvalid()
	err = w.perform(ctx, p)
	over = time.Now()
	if err == nil {
		err = w.checkForeign(ctx, p.seed)
	}
	return over, err
}

// watchMemory records the peak of the forwarders' resident memory until ctx ends.
func (w *world) watchMemory(ctx context.Context) {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for ctx.Err() == nil {
		for _, n := range w.nodes {
			if n.Running() {
				w.foreign.peak = max(w.foreign.peak, peakOf(n.PID()))
			}
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// peakOf returns the maximum resident memory of a process, in bytes, or 0 if it has ended.
func peakOf(pid int) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	var kb int64
	_, _ = fmt.Sscan(after, &kb)
	return kb << 10
}

// repairedID matches the id of a repair and captures the position of the foreign event.
var repairedID = regexp.MustCompile(`\.repaired\.([0-9]+)$`)

// foreignMessage records a message of the foreign writer. The next event of the object answers it, or
// was in flight. If the foreign message replaces a marker, a forwarder that starts begins the
// snapshot again.
func (c *streamCheck) foreignMessage(m harness.Received) {
	maps.DeleteFunc(c.completed, func(_ string, done harness.Received) bool { return done.Subject == m.Subject })
	if c.foreign == nil {
		c.foreign, c.repairable, c.claimed = map[string]bool{}, map[string]map[string]bool{}, map[string]harness.Received{}
	}
	if c.repairable[m.Subject] == nil {
		c.repairable[m.Subject] = map[string]bool{}
	}
	c.foreign[m.Subject], c.repairable[m.Subject][positionOf(m)] = true, true
	c.claimed[m.Subject] = m
	c.forgetIDs(m.Subject)
}

// unrecorded returns the foreign message that m answers, if the recorder did not receive the message. A
// stream that keeps one message for each subject drops a foreign message as soon as it has the answer.
func (c *streamCheck) unrecorded(m harness.Received) (foreign harness.Received, ok bool) {
	at := repairedID.FindStringSubmatch(m.Attributes["id"])
	if len(at) == 0 || m.Topic != "" {
		return harness.Received{}, false
	}
	for _, recorded := range c.repairable {
		if recorded[at[1]] {
			return harness.Received{}, false
		}
	}
	foreign = harness.Received{Place: m.Place, Subject: m.Subject}
	foreign.Sequence, _ = strconv.ParseUint(at[1], 10, 64) // the expression allows only digits
	return foreign, c.world.isForeign(foreign)
}

// forgetIDs allows the ids of an object to occur again.
func (c *streamCheck) forgetIDs(subject string) {
	maps.DeleteFunc(c.seen, func(_ string, before harness.Received) bool { return before.Subject == subject })
}

// isForgotten reports whether the forwarder may have purged the removal of an object before m, the object's
// next event, and a foreign message claims the sequence of that removal. A forwarder that started after the
// foreign message trusts it.
func (c *streamCheck) isForgotten(last, m harness.Received) bool {
	claimed := c.claimed[m.Subject].Attributes["sequence"]
	return gone(last) && begins(m) && claimed != "" && claimed == last.Attributes["sequence"] &&
		c.world.purges() && timeOf(m).Sub(timeOf(last)) >= c.world.settings.retention
}

// isSecondAnswer reports whether an event is one forwarder's answer to the answer of another
// forwarder.
func (c *streamCheck) isSecondAnswer(m harness.Received) bool {
	at := repairedID.FindStringSubmatch(m.Attributes["id"])
	return c.world.twoNodes() && len(at) > 0 && c.repairable[m.Subject][at[1]] && at[1] == positionOf(c.last[m.Subject])
}

// answer checks the first event of an object after a foreign message. The event needn't follow from
// the messages before it, but it must be true and about the right object. It may delete the UID of
// another object if the foreign message had that UID, and it may repeat a delete.
func (c *streamCheck) answer(m harness.Received) {
	if of := c.repairable[m.Subject]; of != nil && c.world.twoNodes() { // another forwarder may take the answer for a foreign event
		of[positionOf(m)] = true
	}
	if at := repairedID.FindStringSubmatch(m.Attributes["id"]); len(at) > 0 && !c.repairable[m.Subject][at[1]] && !c.world.foreign.entries[m.Subject] {
		c.wrong(m, "id %q, and no foreign message is at %s", m.Attributes["id"], at[1])
	}
	c.checkAnswer(m)
	delete(c.foreign, m.Subject)
}

// checkAnswer checks an event that answers another one.
func (c *streamCheck) checkAnswer(m harness.Received) {
	if !strings.HasPrefix(m.Attributes["id"], m.Attributes["uid"]+".") {
		c.wrong(m, "id %q of uid %s", m.Attributes["id"], m.Attributes["uid"])
	}
	c.content(m)
	last, uid := c.last[m.Subject], m.Attributes["uid"]
	again := last.Kind() == "deleted" && last.Attributes["uid"] == uid
	if m.Kind() == "deleted" && c.existing[uid] == m.Attributes["partitionkey"] && !again && !c.mayExist(m) {
		c.wrong(m, "uid %s was deleted with cause %s after a foreign message, and exists", uid, m.Attributes["cause"])
	}
}

// mayAnswerOther reports whether one of two forwarders without leader election may answer an event of the
// other one with m, as if the event were forged. This is a known weakness. The forwarder that answers can't
// see the published state for one of these reasons: a restore of etcd removed the state, a compaction
// interrupted the watch, or the object is gone and the forwarder no longer remembers it. See "Foreign events"
// in docs/delivery.md. The simulator verifies that a forwarder repairs no event before its watch has reached
// the version of the event.
func (w *world) mayAnswerOther(m harness.Received) bool {
	return w.twoNodes() && (w.restored || w.compacted || gone(m))
}

// answersOther reports whether m answers the event of another forwarder right before it. That event must be a
// removal, or have a state that the API server returned to the user, or show an object that is being deleted. A
// removal can have a version that no state has, and only controllers see each state of an object that is being
// deleted.
func (w *world) answersOther(m, last harness.Received) bool {
	at := repairedID.FindStringSubmatch(m.Attributes["id"])
	if len(at) == 0 || at[1] != positionOf(last) || w.isForeign(last) {
		return false
	}
	_, was := w.user.state(last.Attributes["uid"], last.Attributes["resourceversion"])
	return was || gone(last) || isTerminating(last)
}

// isTerminating reports whether an event shows an object that is being deleted.
func isTerminating(m harness.Received) bool {
	o, err := objectOf(m)
	return err == nil && (&unstructured.Unstructured{Object: o}).GetDeletionTimestamp() != nil
}

// deletesOther reports whether m is the delete of an object that another forwarder published right
// before it, and that etcd has lost. The forwarder that deletes the object does not adopt the version
// of that event. The delete therefore has no version, and does not show that history went back. Until
// another object shows that, earlier states of the object are published again. See "Foreign events"
// in docs/delivery.md.
func (w *world) deletesOther(m, last harness.Received) bool {
	return m.Kind() == "deleted" && m.Attributes["resourceversion"] == "" &&
		!gone(last) && !w.isForeign(last) && m.Attributes["uid"] == last.Attributes["uid"]
}

// unanswerable returns the objects, by the partitionkey of their events, whose last message is
// from the foreign writer and isn't an event. On NATS, a forwarder that starts after such a message
// can't know which object the message is about.
func (w *world) unanswerable(all []harness.Received) map[string]bool {
	keys, last := map[string]string{}, map[string]bool{}
	for _, m := range all {
		last[m.Subject] = w.isForeign(m) && !w.foreign.at[m.Place]
		if !last[m.Subject] && m.Attributes["partitionkey"] != "" {
			keys[m.Subject] = m.Attributes["partitionkey"]
		}
	}
	found := map[string]bool{}
	for subject, key := range keys {
		found[key] = last[subject] && w.settings.sink == onNATS && w.starts() > 1
	}
	return found
}

// starts returns the number of starts of forwarders.
func (w *world) starts() (all int) {
	for _, n := range w.nodes {
		n, _ := n.count()
		all += n
	}
	return all
}

// mayBelieve reports whether a forwarder may take a foreign event with the version of the object
// for its own event. If the event is older than the start of the forwarder, the forwarder compares
// only the digest, which a forger can copy.
func (w *world) mayBelieve(m harness.Received) bool {
	return w.foreign.at[m.Place] && m.Attributes["digest"] != "" && w.starts() > 1
}

// contradictions are the effects of the foreign writer on the stream.
type contradictions struct {
	answers      map[harness.Place]bool // the first message of each object after a foreign one
	split        map[string]bool        // subjects of objects with a foreign message in another partition
	unanswerable map[string]bool
	believed     map[harness.Place]bool // events that a forwarder may take for its own
	mistaken     map[harness.Place]bool // events of a forwarder that another forwarder answered
}

func (w *world) contradictions(all []harness.Received) contradictions {
	type object struct{ topic, subject string }
	c := contradictions{map[harness.Place]bool{}, map[string]bool{}, w.unanswerable(all), map[harness.Place]bool{}, map[harness.Place]bool{}}
	pending, partitions, last := map[object]bool{}, map[object]int{}, map[object]harness.Received{}
	for _, m := range all {
		o := object{m.Topic, m.Subject}
		if w.mayAnswerOther(m) && w.answersOther(m, last[o]) {
			c.mistaken[last[o].Place] = true
		}
		if w.restored && w.mayAnswerOther(m) && w.deletesOther(m, last[o]) {
			c.answers[m.Place] = true
		}
		last[o] = m
		c.believed[m.Place] = w.mayBelieve(m)
		if w.isForeign(m) {
			pending[o] = true
			continue
		}
		if pending[o] {
			delete(pending, o)
			c.answers[m.Place] = true
		}
		partitions[o] = m.Partition
	}
	for _, m := range all {
		if of, ok := partitions[object{m.Topic, m.Subject}]; ok && w.isForeign(m) && m.Partition != of {
			c.split[m.Subject] = true
		}
	}
	return c
}

// isExpected reports whether verify may report a message: a message of the foreign writer, or an
// event of the forwarder that contradicts a foreign message before it. The object of a message that
// isn't an event doesn't exist, and no forwarder answers that message.
func (w *world) isExpected(p verifyreport.Problem, c contradictions) bool {
	partition := 0
	if p.Partition != nil {
		partition = *p.Partition
	}
	is := func(at harness.Place) bool { return at.Partition == partition && at.Sequence == p.Position }
	for at, event := range w.foreign.at {
		switch p.Kind {
		case verifyreport.Misordered, verifyreport.Malformed, verifyreport.Foreign:
			if is(at) {
				return true
			}
		case verifyreport.Extra:
			if is(at) && !event {
				return true
			}
		}
	}
	resource, group, _ := strings.Cut(p.Resource, ".")
	key := strings.Join([]string{clusterName, cmp.Or(group, "core"), resource, cmp.Or(p.Namespace, "_"), p.Name}, "/")
	switch p.Kind {
	case verifyreport.Different:
		for at, believed := range c.believed {
			if believed && is(at) {
				return true
			}
		}
	case verifyreport.Extra:
		return c.unanswerable[key]
	case verifyreport.Misordered, verifyreport.Foreign: // a later repair turns Misordered into Foreign
		for at := range c.answers {
			if is(at) {
				return true
			}
		}
		// verify reads partitions in any order, so any event or tombstone of the object can follow
		// a foreign message in another partition.
		if w.foreign.entries[key] || c.split[key] {
			return true
		}
		for at := range c.mistaken {
			if p.Kind == verifyreport.Foreign && is(at) {
				return true
			}
		}
	}
	return false
}

// checkForeign checks a world with a foreign writer at rest: every forged state and every message
// that isn't an event is counted once, the bus converges to the cluster again, and the memory of
// the forwarders was bounded.
func (w *world) checkForeign(ctx context.Context, seed uint64) error {
	switch problems, err := w.compareReplica(ctx, settle); {
	case err != nil:
		return err
	case len(problems) > 0:
		return &wrongError{problems}
	}
	f, err := w.newForger(int(seed))
	if err != nil {
		return err
	}
	before, err := w.awaitCounted(ctx, func([]float64) bool { return true })
	if err != nil {
		return err
	}
	// A refresh that counts one more message has counted everything written before it.
	if err := w.writeForeign(ctx, f.noEvent(f.invented())); err != nil {
		return err
	}
	before, err = w.awaitCounted(ctx, func(now []float64) bool { return now[1] > before[1] })
	if err != nil {
		return err
	}
	if f, err = w.newForger(int(seed)); err != nil { // the forger needs the current states
		return err
	}
	if err := w.keepSelected(ctx, f); err != nil {
		return err
	}
	repairs, invalid, earlier := 0, 0, maps.Clone(w.foreign.at)
	f.Shuffle(len(f.live), func(i, j int) { f.live[i], f.live[j] = f.live[j], f.live[i] })
	for n, m := range f.live[:min(len(f.live), 6)] {
		m = f.copy(m)
		become(&m, []string{"updated", "deleted"}[n%2], m.Attributes["uid"], m.Attributes["resourceversion"])
		tamper(&m)
		stored := w.foreign.count
		if err := w.writeForeign(ctx, f.encode(m, true)); err != nil {
			return err
		}
		repairs += w.foreign.count - stored // the bus refuses a message that is too large without the forwarder's compression
	}
	taken, err := w.subjects() // a forwarder would answer a message that follows an event of its object
	if err != nil {
		return err
	}
	for invalid < 5 { // use a new object for each message: a load sees only the last message of an object
		m := f.invented()
		if taken[m.Subject] {
			continue
		}
		taken[m.Subject] = true
		if err := w.writeForeign(ctx, f.noEvent(m)); err != nil {
			return err
		}
		invalid++
	}
	_, err = w.awaitCounted(ctx, func(now []float64) bool {
		return now[0]-before[0] == float64(repairs) && now[1]-before[1] == float64(invalid)
	})
	if err != nil {
		err = fmt.Errorf("%v before, want %d repairs and %d invalid messages more, without an answer are %q: %w", before, repairs, invalid, w.unanswered(earlier), err)
	}
	return err
}

// subjects returns the subjects of all messages that the bus ever had.
func (w *world) subjects() (map[string]bool, error) {
	all, _, err := w.bus.All()
	subjects := map[string]bool{}
	for _, m := range all {
		subjects[m.Subject] = true
	}
	return subjects, err
}

// unanswered returns the forged events that no forwarder has answered, except those in earlier.
func (w *world) unanswered(earlier map[harness.Place]bool) (without []string) {
	all, _, err := w.bus.All()
	if err != nil {
		return []string{err.Error()}
	}
	answered := map[string]bool{}
	for _, m := range all {
		if at := repairedID.FindStringSubmatch(m.Attributes["id"]); len(at) > 0 {
			answered[m.Subject+" "+at[1]] = true
		}
	}
	for _, m := range all {
		if _, was := earlier[m.Place]; !was && w.foreign.at[m.Place] && !answered[m.Subject+" "+positionOf(m)] {
			without = append(without, fmt.Sprintf("%s of %s at %s", m.Kind(), m.Subject, m.Place))
		}
	}
	return without
}

// keepSelected restricts the forger's live objects to the selected ones. The bus may show other
// objects, whose foreign messages no forwarder answers.
func (w *world) keepSelected(ctx context.Context, f *forger) error {
	present, err := w.user.present(ctx, w.settings.other)
	if err != nil {
		return err
	}
	cluster := inCluster(clusterName, present)
	labeled := w.labeled(cluster)
	f.live = slices.DeleteFunc(f.live, func(m harness.Received) bool {
		key := m.Attributes["partitionkey"]
		o, exists := cluster[key]
		if !exists {
			return true
		}
		selected, _ := w.selects(key, o, labeled)
		return !selected
	})
	return nil
}

// The metrics that count the messages of the foreign writer
var foreignMetrics = []string{"kuberelay_foreign_events_total", "kuberelay_invalid_messages_total"}

// awaitCounted waits until the metrics of the running forwarders have the wanted values, and keep
// them for three refreshes.
func (w *world) awaitCounted(ctx context.Context, wanted func([]float64) bool) (now []float64, err error) {
	since := time.Now()
	err = poll.Until(ctx, settle, "the foreign messages are counted", func(ctx context.Context) error {
		is := make([]float64, len(foreignMetrics))
		for _, n := range w.nodes {
			if !n.Running() {
				continue
			}
			for i, name := range foreignMetrics {
				v, err := n.Metric(ctx, name)
				if err != nil {
					return err
				}
				is[i] += v
			}
		}
		if !slices.Equal(is, now) || !wanted(is) {
			since = time.Now()
		}
		if now = is; time.Since(since) < 3*w.settings.refresh {
			return fmt.Errorf("counted %v", now)
		}
		return nil
	})
	if err != nil {
		err = &wrongError{[]string{fmt.Sprintf("count: %v", err)}}
	}
	return now, err
}
