package torture

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var scenarios = slices.Concat(changing, clustered, kafkaClusterScenarios, []scenario{
	{
		name: "objects change", bugs: []string{"random-ids", "drop-tombstone"},
		settings: usual, play: playChange,
	},
	{
		name: "only dropped fields of objects change", bugs: []string{"ignore-digest"},
		settings: shaped(usual), play: playNoise,
	},
	{
		name: "objects stop matching the filter", bugs: []string{"keep-unselected"},
		settings: shaped(usual), play: playHide,
	},
	{
		name: "an object changes twice while the bus is down", bugs: []string{"compare-with-last-seen"},
		settings: usual, play: playTwice,
	},
	{
		name: "objects change while the forwarder is down", bugs: []string{"forget-uid", "publish-unchanged", "forget-checkpoint"},
		settings: usual, play: playRestart,
	},
	{
		name: "objects change while the bus is down", bugs: []string{"acknowledge-before-publish", "give-up"},
		settings: usual, play: playBusDown,
	},
	{
		name: "a forwarder is behind another", bugs: []string{"adopt-position-blindly", "overwrite-newer"},
		settings: usual, more: []map[string]string{{"NATS_ACK_TIMEOUT": "1m"}}, play: playTwoWriters,
	},
	{
		name:     "an object is recreated while its delete is purged",
		settings: usual, more: []map[string]string{{"DELETE_RETENTION": "1s"}}, play: playPurge,
	},
	{
		name: "an object leaves the selection while the forwarder is down", bugs: []string{"trust-failed-read", "out-of-scope-is-deleted"},
		settings: selecting(), play: playLeave,
	},
	{
		name: "objects can be read but not listed", bugs: []string{"skip-synced"},
		settings: usual, play: playUnlisted,
	},
	{
		name: "the first sync is slow", bugs: []string{"completed-marker-early"},
		settings: slow(), play: playFirstSync,
	},
	{
		name: "a resource moves to another API version while the bus is down", bugs: []string{"missing-is-deleted"},
		settings: usual, play: playMove,
	},
	{
		name:     "a resource moves to another API version while the forwarder is down",
		settings: usual, play: playMoveWhileDown,
	},
	{
		name:     "a response is lost, and then the object is deleted",
		settings: usual, play: playUnanswered,
	},
	{
		name:     "a forwarder misses a delete, and an update that another forwarder published",
		settings: usual, play: playMissed,
	},
	{
		name: "a namespace leaves the selection while the forwarder runs", bugs: []string{"deselected-is-deleted"},
		settings: byTeam(usual), play: playTeamLeaves,
	},
	{
		name: "a namespace leaves the selection while the forwarder is down", bugs: []string{"forget-deselected"},
		settings: byTeam(usual), play: playTeamLeft,
	},
	{
		name: "namespaces can't be read when the forwarder starts", bugs: []string{"unknown-is-unselected"},
		settings: byTeam(usual), play: playTeamUnknown,
	},
	{
		name: "a resource moves to another API version while the forwarder runs", bugs: []string{"moved-is-deleted"},
		settings: usual, play: playServe,
	},
	{
		name:     "cluster-scoped objects change while the forwarder is down, and namespaces are selected",
		settings: byTeam(usual), play: playHomeless,
	},
	{
		name:     "an object is selected again, the bus doesn't respond, and the object is deselected",
		settings: byTeam(usual), play: playTeamUnanswered,
	},
	{
		name:     "the bus refuses an object, which is then deleted",
		settings: usual, play: playNeverTaken,
	},
	{
		name: "etcd is restored", bugs: []string{"ignore-epoch"},
		settings: usual, play: playRestore,
	},
	{
		name: "objects change while no forwarder leads", bugs: []string{"forget-what-was-seen"},
		settings: electing(usual), play: playLeaderless,
	},
	{
		name: "a leader resumes after an object was created and deleted", bugs: []string{"trust-lease"},
		settings: purging(electing(usual)), more: []map[string]string{patient, patient}, play: playSleeper,
	},

	{
		name:     "another cluster writes to the same stream",
		settings: losing(usual), more: []map[string]string{nil, otherCluster}, play: playClusters, rests: true,
	},
	{
		name: "another cluster writes to the same topics (Kafka)", bugs: []string{"trust-any-record"},
		settings: losing(usualOnKafka()), more: []map[string]string{nil, otherCluster}, play: playClusters, rests: true,
	},

	{
		name: "another writer forges events of objects", bugs: []string{"trust-foreign"},
		settings: refreshing(usual), play: playForged,
	},
	{
		name: "another writer forges events of objects (Kafka)", bugs: []string{"trust-foreign"},
		settings: refreshing(usualOnKafka()), play: playForged,
	},
	{
		name: "another writer removes entries of objects from the checkpoint topic (Kafka)", bugs: []string{"trust-tombstones"},
		settings: usualOnKafka(), play: playErased,
	},

	{
		name: "objects change while a standby runs (Kafka)", bugs: []string{"standby-writes"},
		settings: electing(usualOnKafka()), play: playStandby,
	},
	{
		name: "a forwarder resumes after another took over (Kafka)", bugs: []string{"fence-nobody"},
		settings: usualOnKafka(), play: playTakeOver,
	},
	{
		name: "a forwarder is killed between an event and its checkpoint entry (Kafka)", bugs: []string{"trust-checkpoint"},
		settings: usualOnKafka(), play: playUnrecorded,
	},
	{
		name: "a forwarder is killed when idle (Kafka)", bugs: []string{"record-later-first"},
		settings: usualOnKafka(), play: playKilledIdle,
	},
	{
		name: "an acknowledgement is lost (Kafka)", bugs: []string{"retry-anew"},
		settings: usualOnKafka(), play: playLostAck,
	},
	{
		name: "records are deleted (Kafka)", bugs: []string{"trust-lost-records"},
		settings: losing(usualOnKafka()), play: playRecordsDeleted,
	},
	{
		name:     "partitions are added to the checkpoint topic (Kafka)",
		settings: spread(usualOnKafka()), play: playGrow,
	},
})

func usualOnKafka() settings {
	s := usual
	s.sink, s.kafka = onKafka, kafkaSettings{partitions: 3, idempotent: true, compression: "zstd", cleanup: "compact"}
	return s
}

// spread gives the checkpoint topic fewer partitions than the event topic.
func spread(s settings) settings {
	s.kafka.partitions, s.kafka.compacting = 7, true
	return s
}

// shaped drops a field of the objects and selects objects by their content.
func shaped(s settings) settings {
	s.shaped = true
	return s
}

func losing(s settings) settings {
	s.refresh = time.Second
	s.kafka.keepAll()
	return s
}

func selecting() settings {
	s := usual
	s.labels = true
	return s
}

// byTeam selects namespaces by the label of a team.
func byTeam(s settings) settings {
	s.byTeam = true
	return s
}

func slow() settings {
	s := usual
	s.workers, s.inFlight = 1, 1
	return s
}

func playChange(s *script) {
	s.create("changed", "deleted", "replaced")
	s.begin(0)
	s.change(put, at("changed"))
	s.change(remove, at("deleted"))
	s.change(recreate, at("replaced"))
	s.idle(0)
}

// playNoise changes a field that a projection drops, while the forwarder runs and while it is down.
func playNoise(s *script) {
	s.create("noisy", "more")
	s.begin(0)
	s.change(noise, at("noisy"))
	s.change(noise, at("more"))
	s.change(put, at("more"))
	s.onBus(at("more"), 2)
	s.idle(0)
	s.kill(0)
	s.change(noise, at("noisy"))
	s.begin(0)
}

// playHide makes objects leave and enter the filter.
func playHide(s *script) {
	s.create("leaves", "returns", "gone", "stays")
	s.begin(0)
	s.change(hide, at("leaves"))
	s.change(hide, at("returns"))
	s.idle(0)
	s.change(show, at("returns"))
	s.idle(0)
	s.kill(0)
	s.change(hide, at("returns"))
	s.change(hide, at("gone"))
	s.change(remove, at("gone"))
	s.begin(0)
}

// playTwice changes different fields of an object, one after the other, while the bus is down. Then
// the bus receives all changes in one event.
func playTwice(s *script) {
	twice := at("twice")
	s.create("twice")
	s.begin(0)
	s.do(act{do: busRefuse})
	s.logged(0, 1, cutOff)
	s.change(put, twice)
	s.change(reselect, twice)
	s.change(noise, twice)
	s.do(act{do: awaitLog, arg: failing})
	s.do(act{do: busPass})
	s.idle(0)
	s.onBus(twice, 2)
}

func playRestart(s *script) {
	s.create("changed", "deleted", "replaced", "same")
	s.begin(0)
	s.kill(0)
	s.change(put, at("changed"))
	s.change(remove, at("deleted"))
	s.change(recreate, at("replaced"))
	s.begin(0)
}

func playBusDown(s *script) {
	s.create("changed", "deleted")
	s.begin(0)
	s.do(act{do: busRefuse})
	s.logged(0, 1, cutOff)
	s.change(put, at("changed"))
	s.change(remove, at("deleted"))
	s.create("new")
	s.do(act{do: awaitLog, arg: failing})
	s.do(act{do: busPass})
	s.idle(0)
}

// playTwoWriters delays a publish of the first forwarder until the second one has published the
// same state and a later state. Then the first forwarder receives a conflict, but can't see the later
// state, because its watch hangs.
func playTwoWriters(s *script) {
	contested := at("contested")
	s.create("contested")
	s.begin(0)
	s.begin(1)
	s.do(act{do: busHold})
	s.change(put, contested)
	s.until("the first forwarder publishes", func(ctx context.Context) error {
		n, err := s.nodes[0].Metric(ctx, "kuberelay_dirty_objects")
		if err == nil && n == 0 {
			err = errors.New("nothing is dirty")
		}
		return err
	})
	s.onBus(contested, 2)
	s.do(act{do: apiHold})
	s.change(put, contested)
	s.onBus(contested, 3)
	s.step(func() error { s.nodes[0].bus.Pass(); return nil }) // the delayed request continues
	s.logged(0, 1, "publish conflict, deciding again")
	s.until("the first forwarder has decided again", func(ctx context.Context) error {
		n, err := s.nodes[0].Metric(ctx, `kuberelay_decisions_total\{reason="(?:stale|updated|foreign)"\}`)
		if err == nil && n < 2 { // the first change, and the result of the conflict
			err = fmt.Errorf("%v decisions", n)
		}
		return err
	})
	s.step(func() error { s.nodes[0].api.Pass(); return nil })
	s.idle(0)
	s.idle(1)
}

// playPurge makes the first forwarder purge an object that it knows as deleted, after the second
// forwarder has published a new object with the same name.
func playPurge(s *script) {
	taken := at("taken")
	s.create("taken")
	s.begin(0)
	s.begin(1)
	s.change(remove, taken)
	s.onBus(taken, 2)
	s.idle(0)
	s.idle(1)
	s.do(act{do: apiHold})
	s.change(put, taken)
	s.onBus(taken, 3)
	s.logged(0, 1, emptied)
	s.kill(0)
	s.idle(1)
}

// playLeave makes an object leave the selection while the forwarder is down. Then the forwarder must
// find out whether the object still exists: first without the permission to read single objects, and
// then with it.
func playLeave(s *script) {
	s.create("stays", "leaves")
	s.begin(0)
	s.change(put, at("stays"))
	s.idle(0)
	s.kill(0)
	s.change(deselect, at("leaves"))
	s.allowOnly("list", "watch")
	s.do(act{do: start})
	s.either("comparing the bus with the cluster failed", `"deleted":1`)
	s.idle(0) // an inferred delete is on the bus
	s.kill(0)
	s.do(act{do: grant})
	s.permitted("get", "list", "watch")
	s.do(act{do: start})
	if !s.planted() {
		s.either(`"out_of_scope":1`)
	}
	s.idle(0)
}

// playUnlisted lets the forwarder read single objects but not list them, so that its informers
// stay empty.
func playUnlisted(s *script) {
	s.create("one", "two")
	s.begin(0)
	s.kill(0)
	s.allowOnly("get")
	s.do(act{do: start})
	s.either(`"msg":"bus compared with the cluster","resource":"configmaps"`)
	s.either("access denied, rechecking")
	s.do(act{do: grant})
	s.idle(0)
}

// playFirstSync creates many objects before the first sync, and lets the forwarder publish one at a
// time.
func playFirstSync(s *script) {
	for n := range 100 {
		s.create(fmt.Sprintf("c%d", n))
	}
	s.begin(0)
	s.logged(0, 1, `"first snapshot completed","resource":"configmaps"`)
	s.idle(0)
}

// playMove moves planets to another version of their API while the bus is down and one of them has
// changed. The informer restarts and waits for the bus, to read the marker of the first sync. The key
// of the changed object waits for the bus too, and is processed first.
func playMove(s *script) {
	mars := target{resource: planets, name: "mars"}
	s.change(put, mars)
	s.begin(0)
	s.do(act{do: busRefuse})
	s.logged(0, 1, cutOff)
	s.change(put, mars)
	s.t.Cleanup(func() { s.forget(planets) }) // other worlds use one version
	s.addVersion(planets, "v2")
	s.logged(0, 4, "snapshot marker failed")
	s.do(act{do: busPass})
	s.logged(0, 2, `"informer synced","resource":"planets`)
	s.idle(0)
}

// playMoveWhileDown moves planets to another version of their API and deletes one of them while the
// forwarder is down. The last state of that planet on the bus has the old API version.
func playMoveWhileDown(s *script) {
	venus := target{resource: planets, name: "venus"}
	s.change(put, venus)
	s.begin(0)
	s.kill(0)
	s.t.Cleanup(func() { s.forget(planets) })
	s.addVersion(planets, "v2")
	s.change(remove, venus)
	s.until("v2 is discovered", func(context.Context) error {
		_, err := s.kube.Discovery().ServerResourcesForGroupVersion(group + "/v2")
		return err
	})
	s.begin(0)
}

// playUnanswered lets the bus store a create but drops its acknowledgement, and deletes the object
// before the retry.
func playUnanswered(s *script) {
	s.create("other")
	s.create("later")
	s.begin(0)
	s.do(act{do: busDrop})
	s.create("unanswered")
	s.onBus(at("unanswered"), 1)
	s.do(act{do: busRefuse})
	s.logged(0, 1, cutOff)
	s.change(remove, at("unanswered"))
	// Once the forwarder has seen a later delete, it has also seen this one. The log shows the later
	// delete, because the forwarder tries to publish deletes while the bus is unreachable.
	const later = `"name":"later"`
	before := strings.Count(s.nodes[0].Log(), later)
	s.change(remove, at("later"))
	s.logged(0, before+1, later)
	s.do(act{do: busPass})
	s.idle(0)
}

// playMissed cuts the first forwarder off from the API server. The second one publishes an update,
// and is cut off from the bus before the delete.
func playMissed(s *script) {
	missed := at("missed")
	// The last states of a terminating namespace follow each other quickly. A forwarder that misses
	// one of them deletes the namespace with an earlier state, which the other forwarder corrects.
	s.until("the namespaces of former worlds are gone", func(ctx context.Context) error {
		all, err := s.kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		if err == nil && slices.ContainsFunc(all.Items, func(n corev1.Namespace) bool { return n.DeletionTimestamp != nil }) {
			err = errors.New("a namespace is being deleted")
		}
		return err
	})
	s.create("missed")
	s.begin(0)
	s.begin(1)
	s.do(act{do: apiRefuse})
	s.logged(0, 1, unwatch)
	s.change(put, missed)
	s.onBus(missed, 2)
	s.do(act{do: busRefuse, node: 1})
	s.logged(1, 1, cutOff)
	s.change(remove, missed)
	s.do(act{do: apiPass})
	s.onBus(missed, 3)
	s.do(act{do: busPass, node: 1})
	s.idle(0)
	s.idle(1)
}

// playRestore takes the cluster back to a state before some changes.
func playRestore(s *script) {
	s.create("changed", "deleted", "same")
	s.begin(0)
	s.do(act{do: snapshot})
	s.change(put, at("changed"))
	s.change(remove, at("deleted"))
	s.create("new")
	s.onBus(at("new"), 1)
	s.onBus(at("deleted"), 2)
	s.onBus(at("changed"), 2)
	s.do(act{do: restore})
	s.either("resource history was rolled back", `"waiting":`)
	s.idle(0)
}

// playTakeOver makes the second forwarder take over while the first one is frozen. When the first
// one continues, it must write nothing, end, and log who took over.
func playTakeOver(s *script) {
	contested := at("contested")
	s.create("contested")
	s.begin(0)
	s.do(act{do: freeze})
	s.begin(1)
	s.change(put, contested)
	s.onBus(contested, 2)
	s.do(act{do: thaw})
	if !s.planted() {
		s.logged(0, 1, fencedOff)
		s.logged(0, 1, "is torture/forwarder-1")
	} else {
		s.idle(0)
	}
	s.change(put, contested)
	s.idle(1)
}

// playUnrecorded kills the forwarder between the acknowledgement of an event and its entry in the
// checkpoint topic.
func playUnrecorded(s *script) {
	s.create("changed", "same")
	s.begin(0)
	s.do(act{do: arm, arg: "before-record:1"})
	s.idle(0)
	s.change(put, at("changed"))
	s.until("the forwarder has died", func(context.Context) error {
		if killed, _ := s.nodes[0].state(); killed < 2 {
			return errors.New("it lives")
		}
		return nil
	})
	s.idle(0)
}

// playKilledIdle kills the forwarder when the checkpoint topic has the records of all events. Each
// partition has several objects, because the record of a single object can't be too early.
func playKilledIdle(s *script) {
	for n := range 12 {
		s.create(fmt.Sprintf("c%d", n))
	}
	s.begin(0)
	s.kill(0)
	s.begin(0)
	if !s.planted() {
		s.verify(0)
	}
}

// playLostAck lets the broker store a change but drops its acknowledgement. If the forwarder isn't
// connected yet when the proxy starts to drop responses, it can't send the request. playLostAck then
// restarts the forwarder and tries another change. Without the restart, a forwarder with the planted bug
// sends every further change out of sequence, and the broker refuses it.
func playLostAck(s *script) {
	changed := at("changed")
	s.create("changed")
	s.begin(0)
	for try := 1; s.err == nil; try++ {
		s.do(act{do: busDrop})
		s.change(put, changed)
		s.logged(0, try, "batch not acknowledged")
		stored := 0
		s.step(func() (err error) { stored, err = s.events(changed); return err })
		s.do(act{do: busPass})
		s.idle(0)
		if stored > try {
			return
		}
		s.step(func() error {
			if try == 12 {
				return errors.New("no change has reached the broker while answers were dropped")
			}
			return nil
		})
		s.kill(0)
		s.begin(0)
	}
}

// playRecordsDeleted deletes all records of the event topic.
func playRecordsDeleted(s *script) {
	s.create("lost")
	s.begin(0)
	s.do(act{do: lose, n: 1000})
	if !s.planted() {
		s.onBus(at("lost"), 2)
	}
	s.idle(0)
}

// playGrow adds partitions to the checkpoint topic, so that objects are recorded in other
// partitions than before.
func playGrow(s *script) {
	var names []string
	for n := range 40 {
		names = append(names, fmt.Sprintf("c%d", n))
	}
	s.create(names...)
	s.begin(0)
	s.kill(0)
	s.do(act{do: addPartitions, arg: checkpointName})
	s.begin(0)
	s.create(names[1:]...)
	s.change(remove, at(names[0]))
	s.idle(0)
	for range 3 { // the first start reads the last events itself, and the others rely on the checkpoint topic
		s.kill(0)
		s.begin(0)
	}
}
