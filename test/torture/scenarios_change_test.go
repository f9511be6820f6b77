package torture

import (
	"context"
	"errors"
	"fmt"

	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// changing are the scenarios that change the configuration, a definition, the API server or the
// content of the bus.
var changing = []scenario{
	{
		name: "a label selector is removed after an object has left it", bugs: []string{"delete-hides-equal-version", "refresh-all-the-time"},
		settings: selecting(), play: playWiden, rests: true,
	},
	{
		name:     "a CustomResourceDefinition is deleted without its objects and recreated",
		settings: usual, play: playUnblock, rests: true,
	},
	{
		name: "a CustomResourceDefinition gains a default and prunes a field", bugs: []string{"equal-version-is-unchanged"},
		settings: usual, play: playRemodel,
	},
	{
		name:     "an APIService is deleted and recreated",
		settings: withOther(flunders), play: playService, rests: true,
	},
	{
		name: "requests are routed to an API server that serves fewer resources", bugs: []string{"discovery-is-proof"},
		settings: withOther(revisions), play: playFewer,
	},
	{
		name: "NATS restarts with an empty store", bugs: []string{"stream-begins-at-one"},
		settings: usual, play: playEmpty,
	},
	{
		name: "the event topic loses its end (Kafka)", bugs: []string{"only-what-survived"},
		settings: undivided(usualOnKafka()), play: playTail,
	},
	{
		name: "another writer covers the lost end of the event topic (Kafka)", bugs: []string{"trust-any-record"},
		settings: undivided(usualOnKafka()), play: playCovered,
	},
	{
		name:     "the forwarder uses another topic for a while (Kafka)",
		settings: alsoIn(usualOnKafka(), otherTopic), play: playTopic,
	},
}

// withOther adds a resource that not every API server serves.
func withOther(resource string) settings {
	s := usual
	s.other = resource
	return s
}

// undivided gives the event topic one partition.
func undivided(s settings) settings {
	s.kafka.partitions = 1
	return s
}

// alsoIn makes the suite also record another event topic, for a later configuration.
func alsoIn(s settings, topic string) settings {
	s.later = []configuration{{topic: topic}}
	return s
}

// configure restarts the running forwarders with another configuration.
func (s *script) configure(change func(*configuration)) {
	s.step(func() error {
		to := s.settings.configuration
		change(&to)
		s.started = len(s.nodes[0].Log())
		return s.reconfigure(s.t.Context(), to, true)
	})
	s.idle(0)
}

// lastIs waits until the last event of an object has a type. A forwarder with a planted bug may
// never publish that event, so lastIs then ignores a timeout and leaves the result to the checks.
func (s *script) lastIs(t target, kind string) {
	is := func(context.Context) error {
		all, _, err := s.bus.All()
		if err != nil {
			return err
		}
		home := s.user.home + t.namespace
		if t.namespace == "" {
			home = "_"
		}
		for _, m := range s.replica(all) {
			if resourceName(m) == t.resource && m.Attributes["name"] == s.user.key(t) && (home == "_" || m.Attributes["namespace"] == home) && m.Kind() == kind {
				return nil
			}
		}
		return errors.New("it is not")
	}
	what := fmt.Sprintf("the last event of %s is %s", t.name, kind)
	if !s.planted() {
		s.until(what, is)
		return
	}
	s.step(func() error {
		_ = poll.Until(s.t.Context(), buggyReady, what, is)
		return nil
	})
}

// playWiden makes an object leave a label selector, and then removes the selector. The delete of the
// object has the version in which the object still exists.
func playWiden(s *script) {
	s.create("leaves", "stays")
	s.begin(0)
	s.change(deselect, at("leaves"))
	s.lastIs(at("leaves"), "deleted")
	s.configure(func(c *configuration) { c.labels = false })
	s.lastIs(at("leaves"), "created")
	s.idle(0)
}

// playUnblock removes a definition whose objects have a finalizer, removes the definition's own
// finalizer, and applies the definition again. The objects return with the same versions.
func playUnblock(s *script) {
	w, definition := target{widgets, "a", "held"}, target{resource: widgets}
	s.t.Cleanup(func() { s.forget(widgets) })
	s.change(pin, w)
	s.begin(0)
	s.change(undefine, definition)
	s.lastIs(w, "updated")
	s.change(unblock, definition)
	s.lastIs(w, "deleted")
	s.until("it is defined again", func(ctx context.Context) error { return s.user.define(ctx, widgets) })
	s.until("widgets are served", func(ctx context.Context) error { return s.user.served(ctx, widgets) })
	s.lastIs(w, "created")
	s.idle(0)
	s.change(release, w)
	s.lastIs(w, "deleted")
}

// playRemodel changes the content of objects without changing their versions.
func playRemodel(s *script) {
	w, definition := target{widgets, "a", "same"}, target{resource: widgets}
	s.t.Cleanup(func() { s.forget(widgets) })
	s.change(put, w)
	s.begin(0)
	for n, how := range []opVerb{giveDefault, prune} {
		s.change(how, definition)
		if s.planted() {
			continue
		}
		s.onBus(w, 2+n)
	}
	s.idle(0)
}

// playService removes an APIService and applies it again. The objects of the aggregated API server
// return with the same versions.
func playService(s *script) {
	f := target{flunders, "a", "one"}
	s.change(put, f)
	s.begin(0)
	s.do(act{do: serviceGoes})
	s.lastIs(f, "deleted")
	s.do(act{do: serviceComes})
	s.lastIs(f, "created")
	s.idle(0)
}

// playFewer connects the forwarder to an API server that doesn't serve a resource, and then to the
// first API server again.
func playFewer(s *script) {
	one := target{revisions, "a", "one"}
	s.change(put, one)
	s.begin(0)
	s.do(act{do: toSecond})
	s.either(unwatch, "resource no longer watched", "watch ended")
	s.create("other")
	s.onBus(at("other"), 1)
	s.idle(0)
	s.do(act{do: toFirst})
	s.create("more")
	s.onBus(at("more"), 1)
	s.idle(0)
}

// playEmpty brings NATS back with an empty store.
func playEmpty(s *script) {
	s.create("changed", "deleted", "same")
	s.begin(0)
	s.kill(0)
	s.change(remove, at("deleted"))
	s.do(act{do: emptyStore})
	s.begin(0)
	s.change(put, at("changed"))
	s.idle(0)
}

// playTail makes the event topic lose all or the last records of objects, while the checkpoint
// topic keeps all records. The event topic has one partition, so that the cut records don't depend on
// the partitions of the objects.
func playTail(s *script) {
	s.create("deleted", "changed", "same")
	s.begin(0)
	s.change(put, at("changed"))
	s.onBus(at("changed"), 2)
	s.change(remove, at("deleted"))
	s.onBus(at("deleted"), 2)
	s.idle(0)
	s.kill(0)
	s.do(act{do: cutTail, arg: topicName, n: 2})
	s.begin(0)
}

// playCovered loses records like playTail. Then a forwarder is killed in its takeover, after it has
// written only a marker past the lost records. The next forwarder must still find the loss.
func playCovered(s *script) {
	s.create("deleted", "changed", "same")
	s.begin(0)
	s.change(put, at("changed"))
	s.onBus(at("changed"), 2)
	s.change(remove, at("deleted"))
	s.onBus(at("deleted"), 2)
	s.idle(0)
	s.kill(0)
	s.do(act{do: cutTail, arg: topicName, n: 1})
	s.do(act{do: start, arg: "taking-over:2"})
	s.until("the forwarder has died", func(context.Context) error {
		if killed, _ := s.nodes[0].state(); killed < 2 { // the first kill is ours
			return errors.New("it lives")
		}
		return nil
	})
	s.idle(0)
}

// playTopic makes the forwarder write to another topic for a while.
func playTopic(s *script) {
	s.create("changed", "deleted", "same")
	s.begin(0)
	s.configure(func(c *configuration) { c.topic = otherTopic })
	s.change(put, at("changed"))
	s.change(remove, at("deleted"))
	s.idle(0)
	s.configure(func(c *configuration) { c.topic = topicName })
	s.idle(0)
}
