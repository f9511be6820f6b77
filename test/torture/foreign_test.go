package torture

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/kuberelay/kuberelay/test/harness"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// A foreign writer has write permission on the bus: the bus writer of docs/security.md. It knows the
// format of every message, reads the bus, and writes during the workload and the faults.

// forge makes the foreign writer write. arg names a forgery, and n is its seed.
const forge verb = "write foreign messages:"

// forgery is a kind of foreign messages.
type forgery struct {
	name string
	make func(f *forger) []rawMessage
}

// rawMessage is a message in the form in which it is sent.
type rawMessage struct {
	subject string // on NATS
	topic   string // on Kafka; "" for the event topic
	key     []byte // on Kafka
	where   int    // on Kafka, the partition; -1 for any
	headers []rawHeader
	block   string // on NATS, the header block, instead of headers
	body    []byte // nil for a tombstone
	times   int    // on Kafka, the number of copies in one compressed batch; 0 means 1

	// event means that a subscriber takes the message for an event of an object.
	event bool
}

type rawHeader struct{ name, value string }

// foreignMessages are the messages that the foreign writer has written.
type foreignMessages struct {
	at      map[harness.Place]bool // by place, whether a subscriber takes the message for an event
	count   int                    // written, including those in topics that aren't recorded
	refused int                    // refused by the bus
	peak    int64                  // the peak of a forwarder's resident memory, in bytes

	// entries contains the keys of foreign records in Kafka's checkpoint topic. A forwarder that
	// starts trusts these records.
	entries map[string]bool
}

// The number of forgeries in a phase
const (
	leastForgeries = 4
	mostForgeries  = 10
)

// forgeries adds foreign messages to a phase. They use their own random source, so that all other
// decisions of a seed are the same with and without a foreign writer.
func (g *generator) forgeries(n int) {
	kinds := slices.Concat(commonForgeries, g.plan.settings.sink.forgeries())
	ph := &g.plan.phases[n]
	for range leastForgeries + g.foreign.IntN(mostForgeries-leastForgeries) {
		ph.acts = append(ph.acts, act{do: forge, arg: kinds[g.foreign.IntN(len(kinds))].name, n: 1 + g.foreign.IntN(1<<30), after: g.foreign.IntN(leastOps)})
	}
}

func (s sink) forgeries() []forgery {
	if s == onKafka {
		return forgeriesOnKafka
	}
	return forgeriesOnNATS
}

// forger creates foreign messages from messages on the bus.
type forger struct {
	*rand.Rand
	world *world
	all   []harness.Received // messages of the cluster that have attributes and aren't foreign
	live  []harness.Received // last events of existing objects
	gone  []harness.Received // last events of removed objects
}

func (w *world) newForger(seed int) (*forger, error) {
	f := &forger{Rand: rand.New(rand.NewPCG(uint64(seed), 0x62)), world: w}
	all, _, err := w.bus.All()
	if err != nil {
		return nil, err
	}
	f.all = slices.DeleteFunc(messagesOf(clusterName, all), func(m harness.Received) bool { return w.isForeign(m) || m.Attributes == nil })
	replica := w.replica(f.all)
	for _, key := range slices.Sorted(maps.Keys(replica)) {
		switch m := replica[key]; {
		case gone(m):
			f.gone = append(f.gone, m)
		case w.covers(key):
			f.live = append(f.live, m)
		}
	}
	return f, nil
}

// forge writes the messages of a forgery. It writes nothing while the bus is down or frozen.
func (w *world) forge(ctx context.Context, name string, seed int) error {
	if w.busDown || w.busFrozen {
		return nil
	}
	f, err := w.newForger(seed)
	if err != nil {
		return err
	}
	for _, kind := range slices.Concat(commonForgeries, w.settings.sink.forgeries()) {
		if kind.name != name {
			continue
		}
		for _, m := range kind.make(f) {
			if err := w.writeForeign(ctx, m); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("unknown forgery %q", name)
}

// errRefused means that the bus did not accept a message.
var errRefused = errors.New("refused by the bus")

func (w *world) writeForeign(ctx context.Context, m rawMessage) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	places, err := w.bus.write(ctx, m)
	switch {
	case errors.Is(err, errRefused):
		w.foreign.refused++
		return nil
	case err != nil:
		return fmt.Errorf("write a foreign message: %w", err)
	}
	w.foreign.count++
	if m.topic == checkpointName {
		w.foreign.entries[string(m.key)] = true
	}
	for _, at := range places {
		w.foreign.at[at] = m.event
	}
	return nil
}

// recorded waits until the recorder has read up to a stored message, and returns the place of the
// message in the current life of its topic. before is the number of messages that were recorded
// before the write: an earlier stream with the same name may also have had the position. The bus may
// drop the message before the recorder reads it.
func recorded(ctx context.Context, b bus, before int, at harness.Place) (harness.Place, error) {
	err := poll.Until(ctx, limit, "a foreign message is recorded", func(context.Context) error {
		all, _, err := b.All()
		if err != nil {
			return err
		}
		for _, m := range all[min(before, len(all)):] {
			if m.Topic == at.Topic && m.Partition == at.Partition && m.Sequence >= at.Sequence {
				at.Life = m.Life
				return nil
			}
		}
		return errors.New("it is not")
	})
	return at, err
}

func (w *world) isForeign(m harness.Received) bool {
	_, is := w.foreign.at[m.Place]
	return is
}

// object returns the last event of an object, or an invented event.
func (f *forger) object() harness.Received {
	switch n := f.IntN(10); {
	case n < 6 && len(f.live) > 0:
		return f.copy(f.live[f.IntN(len(f.live))])
	case n < 8 && len(f.gone) > 0:
		return f.copy(f.gone[f.IntN(len(f.gone))])
	}
	return f.invented()
}

// inventedUIDs is the prefix of the UIDs that the foreign writer invents.
const inventedUIDs = "00000000-0000-4000-"

// invented returns an event of an object that doesn't exist.
func (f *forger) invented() harness.Received {
	home, name := f.world.user.home+"a", fmt.Sprintf("invented%d", f.IntN(1000))
	uid := fmt.Sprintf(inventedUIDs+"8000-%012d", f.IntN(1_000_000))
	version := fmt.Sprint(1 + f.IntN(1_000_000))
	m := harness.Received{
		Subject: strings.Join([]string{"kuberelay", clusterName, "core", configMaps, home, name}, "."),
		Attributes: map[string]string{
			"specversion": "1.0", "id": uid + "." + version, "source": "/kubernetes/" + clusterName, "type": "io.kuberelay.object.created",
			"subject": "/api/v1/namespaces/" + home + "/configmaps/" + name, "time": time.Now().UTC().Format(time.RFC3339Nano),
			"datacontenttype": "application/json", "partitionkey": strings.Join([]string{clusterName, "core", configMaps, home, name}, "/"),
			"sequence": sequence("0000", version), "apiversion": "v1", "kind": "ConfigMap", "namespace": home, "name": name, "uid": uid,
			"resourceversion": version, "cause": "watch",
		},
	}
	m.Data = fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":%q,"uid":%q,"resourceVersion":%q},"data":{"forged":"yes"}}`, name, home, uid, version)
	if f.world.settings.sink == onKafka {
		m.Subject, m.Topic = m.Attributes["partitionkey"], f.world.settings.topic
		m.Partition = -1
	}
	return m
}

func (f *forger) copy(m harness.Received) harness.Received {
	m.Attributes = maps.Clone(m.Attributes)
	return m
}

// sequence returns the sequence attribute for an epoch of four digits and a version.
func sequence(epoch, version string) string { return fmt.Sprintf("%s.%020s", epoch, version) }

// become changes the type, version and uid of the message's event.
func become(m *harness.Received, kind, uid, version string) {
	a := m.Attributes
	data := strings.Replace(string(m.Data), `"resourceVersion":"`+a["resourceversion"]+`"`, `"resourceVersion":"`+version+`"`, 1)
	m.Data = []byte(strings.Replace(data, a["uid"], uid, 1))
	a["previousversion"] = a["resourceversion"]
	a["type"], a["uid"], a["resourceversion"] = "io.kuberelay.object."+kind, uid, version
	a["sequence"] = sequence(epoch(*m), version)
	switch kind {
	case "deleted":
		a["id"] = uid + ".deleted"
	case "deselected":
		a["id"] = uid + ".deselected.1"
	default:
		a["id"] = uid + "." + version
	}
}

// tamper changes the content of a message's object.
func tamper(m *harness.Received) {
	m.Data = []byte(strings.Replace(string(m.Data), `"metadata":{`, `"forged":"yes","metadata":{`, 1))
}

// refreshing makes the forwarder refresh the checkpoint every second.
func refreshing(s settings) settings {
	s.refresh = frequently
	return s
}

// playForged makes the foreign writer delete an existing object, change one, and create one.
func playForged(s *script) {
	s.create("changed", "deleted")
	s.begin(0)
	s.step(func() error {
		f, err := s.newForger(1)
		if err != nil {
			return err
		}
		created := f.invented()
		err = s.writeForeign(s.t.Context(), f.encode(created, true))
		for _, m := range f.live {
			kind := m.Attributes["name"]
			if kind != "changed" && kind != "deleted" {
				continue
			}
			m = f.copy(m)
			become(&m, map[string]string{"changed": "updated", "deleted": "deleted"}[kind], m.Attributes["uid"], m.Attributes["resourceversion"])
			tamper(&m)
			err = errors.Join(err, s.writeForeign(s.t.Context(), f.encode(m, true)))
		}
		return err
	})
}

// playErased makes the foreign writer remove the entries of all objects from the checkpoint topic
// while no forwarder runs, and deletes one of the objects meanwhile. The second start of the
// forwarder writes its markers after all events, so the third start reads none of the events.
func playErased(s *script) {
	s.create("deleted", "same")
	s.begin(0)
	s.kill(0)
	s.begin(0)
	s.kill(0)
	s.step(func() error {
		f, err := s.newForger(1)
		for _, m := range f.live {
			err = errors.Join(err, s.writeForeign(s.t.Context(), f.erase(m)))
		}
		return err
	})
	s.change(remove, at("deleted"))
	s.begin(0)
}
