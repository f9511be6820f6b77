package torture

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
)

// configuration is the part of the settings that can differ between runs of the forwarders.
type configuration struct {
	resources  selectedResources
	namespaces bool // only the plan's own
	labels     bool // only objects with the label
	fields     bool // all objects except those with one name
	structured bool
	shaped     bool // a projection drops fields, and a filter selects by content
	asChange   bool // the data of an event is a change
	topic      string
}

// selectedResources is the value of KUBERELAY_RESOURCES.
type selectedResources int

const (
	allResources selectedResources = iota
	noWidgets
	noConfigMaps
)

// unselectedName is the name that the field selector excludes.
const unselectedName = "c0"

func (c configuration) selectors() []string {
	switch c.resources {
	case noWidgets:
		return []string{configMaps, namespaces, planets + "." + group, moons + "." + group}
	case noConfigMaps:
		return []string{namespaces, "*." + group}
	}
	return []string{configMaps, namespaces, "*." + group}
}

func (c configuration) fieldSelector() string {
	if !c.fields {
		return ""
	}
	return "metadata.name!=" + unselectedName
}

func (c configuration) labelSelector() string {
	if !c.labels {
		return ""
	}
	return selectedLabel + "=yes"
}

// covers reports whether the configuration selects a name, regardless of the object's content.
func (c configuration) covers(u *user, resource, namespace, name string) bool {
	switch {
	case c.resources == noWidgets && resource == widgets, c.resources == noConfigMaps && resource == configMaps:
		return false
	case c.namespaces && namespace != "" && namespace != "_" && !slices.Contains(u.homes(), namespace):
		return false
	case c.fields && name == unselectedName:
		return false
	}
	return true
}

// run is a configuration, and where each topic's messages with this configuration begin.
type run struct {
	configuration
	from map[string]int // by topic, the number of messages recorded before
}

// configured returns the run that wrote the nth message of a topic, as an index of the world's runs.
func (w *world) configured(topic string, nth int) int {
	last := 0
	for i, r := range w.runs {
		if r.from[topic] <= nth {
			last = i
		}
	}
	return last
}

// reconfigured reports whether the forwarders have run with more than one configuration.
func (w *world) reconfigured() bool { return len(w.runs) > 1 }

// byLabelsOrFields reports whether a label or field selector hides objects of a resource.
func byLabelsOrFields(c configuration) bool { return c.labels || c.fields }

// reconfigure ends all forwarders, by SIGTERM or by SIGKILL. Then it starts those that should run,
// with another configuration.
func (w *world) reconfigure(ctx context.Context, to configuration, orderly bool) error {
	if _, err := w.awaitStored(ctx, "there is something on the bus"); err != nil {
		return err
	}
	wanted := make([]bool, len(w.nodes))
	for n, nd := range w.nodes {
		wanted[n] = nd.isWanted()
		if orderly {
			ctx, cancel := context.WithTimeout(ctx, limit)
			err := nd.stop(ctx)
			cancel()
			if err != nil {
				return err
			}
		}
		nd.kill()
	}
	if err := w.quiet(ctx); err != nil {
		return err
	}
	all, _, err := w.bus.All()
	if err != nil {
		return err
	}
	read := map[string]int{}
	for _, m := range messagesOf(clusterName, all) {
		read[m.Topic]++
	}
	w.settings.configuration = to
	w.runs = append(w.runs, run{to, read})
	for n, nd := range w.nodes {
		nd.Configure(w.environment(n))
		if wanted[n] {
			if err := nd.start(); err != nil {
				return err
			}
		}
	}
	return nil
}

// reconfigurations returns acts that change the configuration: to a new one, and then sometimes back
// to the first one or to a third.
func (g *generator) reconfigurations(change func(*rand.Rand, *configuration)) []act {
	s := &g.plan.settings
	other := func() configuration {
		for {
			c := s.configuration
			if change(g.Rand, &c); c != s.configuration {
				return c
			}
		}
	}
	to := []configuration{other()}
	switch g.IntN(4) {
	case 0, 1:
		to = append(to, s.configuration)
	case 2:
		to = append(to, other())
	}
	var acts []act
	for _, c := range to {
		s.later = append(s.later, c)
		acts = append(acts, act{do: reconfigure, n: len(s.later), arg: []string{orderly, abrupt}[g.IntN(2)]})
		if g.IntN(2) == 0 {
			acts = append(acts, act{do: awaitLog, arg: synced})
		}
	}
	return acts
}

// How forwarders end before they start with another configuration
const (
	orderly = "in an orderly way"
	abrupt  = "by kill -9"
)

// changeSelection changes the selection of objects.
func changeSelection(r *rand.Rand, c *configuration) {
	switch r.IntN(4) {
	case 0:
		c.resources = selectedResources(r.IntN(3))
	case 1:
		c.labels = !c.labels
	case 2:
		c.fields = !c.fields
	case 3:
		c.namespaces = !c.namespaces
	}
}

// changeForm changes the form of events and, through the filter, the selection.
func changeForm(r *rand.Rand, c *configuration) {
	switch r.IntN(4) {
	case 0:
		c.structured = !c.structured
	case 1:
		c.asChange = !c.asChange
	default:
		c.shaped = !c.shaped
	}
}

// The event topics that a plan may use. All share the same checkpoint topic.
const (
	topicName     = "kuberelay"
	otherTopic    = "other"
	topicTemplate = "each.{group}.{resource}"
)

func changeTopic(r *rand.Rand, c *configuration) {
	c.topic = []string{topicName, otherTopic, topicTemplate}[r.IntN(3)]
}

// topics returns every topic that a name or template can produce.
func topics(name string) []string {
	if !strings.Contains(name, "{") {
		return []string{name}
	}
	all := []string{topicOf(name, "core", configMaps), topicOf(name, "core", namespaces)}
	for _, r := range customResources {
		all = append(all, topicOf(name, group, r))
	}
	return all
}

func topicOf(template, group, resource string) string {
	return strings.NewReplacer("{group}", group, "{resource}", resource).Replace(template)
}
