package torture

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
)

// configuration is the part of the settings that may change from one run of the
// forwarders to the next.
type configuration struct {
	resources  selectedResources
	namespaces bool // only the plan's own
	labels     bool // only objects with the label
	fields     bool // all objects but those of one name
	structured bool
	shaped     bool // a part of each object is dropped, and a filter selects by content
	asChange   bool // the data are changes
	topic      string
}

// selectedResources is what KUBERELAY_RESOURCES selects.
type selectedResources int

const (
	allResources selectedResources = iota
	noWidgets
	noConfigMaps
)

// unselectedName is the object that the field selector leaves out.
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

// covers tells whether the configuration selects a name, whatever the object is like.
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

// run is what the forwarders were configured with from a message of each topic on.
type run struct {
	configuration
	from map[string]int // by topic, how many messages had been recorded
}

// configured gives the run in which a message was written, as an index of the world's
// runs. It is the nth message of its topic.
func (w *world) configured(topic string, nth int) int {
	last := 0
	for i, r := range w.runs {
		if r.from[topic] <= nth {
			last = i
		}
	}
	return last
}

// reconfigured tells whether there was more than one configuration.
func (w *world) reconfigured() bool { return len(w.runs) > 1 }

// byLabelsOrFields tells whether an API server shows only a part of a resource.
func byLabelsOrFields(c configuration) bool { return c.labels || c.fields }

// reconfigure ends all forwarders and starts those again that were to run, with another
// configuration. They end in an orderly way or by kill -9.
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

// reconfigurations are those that a kind of change draws: away from the first
// configuration, and then sometimes back to it, or on to a third.
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

// How forwarders end before they get another configuration.
const (
	orderly = "in an orderly way"
	abrupt  = "by kill -9"
)

// changeSelection changes what is selected.
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

// changeForm changes how what is selected is sent, and by the filter what is.
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

// The topics of events that a plan may use. The checkpoint topic is the same for all.
const (
	topicName     = "kuberelay"
	otherTopic    = "other"
	topicTemplate = "each.{group}.{resource}"
)

func changeTopic(r *rand.Rand, c *configuration) {
	c.topic = []string{topicName, otherTopic, topicTemplate}[r.IntN(3)]
}

// topics are all that a name or template may come to.
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
