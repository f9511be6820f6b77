package tail

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// Table writes objects as a table, like kubectl get.
type Table struct {
	Namespaces bool // add a column of namespaces if an object has one
	Wide       bool // add more columns, like kubectl get -o wide
	Now        time.Time
}

// Write writes a header line and one line for each object. If the objects are in several clusters,
// the table has a column of clusters. If they belong to several resources, each name begins with the
// kind and the group, as [Object.Name] returns it.
func (t Table) Write(w io.Writer, objects []Object) error {
	clusters, resources, namespaced := Clusters(objects) > 1, false, false
	for _, o := range objects {
		resources = resources || o.Key.GroupResource() != objects[0].Key.GroupResource()
		namespaced = namespaced || t.Namespaces && o.Key.Namespace != ""
	}
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0) //nolint:mnd // as kubectl
	line := func(cluster, namespace, name, age string, wide ...string) {
		var cells []string
		if clusters {
			cells = append(cells, cluster)
		}
		if namespaced {
			cells = append(cells, namespace)
		}
		cells = append(cells, name, age)
		if t.Wide {
			cells = append(cells, wide...)
		}
		fmt.Fprintln(table, strings.Join(cells, "\t"))
	}
	line("CLUSTER", "NAMESPACE", "NAME", "AGE", "KIND", "RESOURCEVERSION", "CHANGED")
	for _, o := range objects {
		name, namespace := show(o.Key.Name), ""
		if resources {
			name = show(o.Name())
		}
		if o.Key.Namespace != "" {
			namespace = show(o.Key.Namespace)
		}
		line(show(o.Cluster), namespace, name, t.age(o.Created), show(o.Kind), show(o.Version), t.age(o.Changed))
	}
	return table.Flush()
}

func (t Table) age(since time.Time) string {
	if since.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(t.Now.Sub(since))
}

// Clusters returns the number of different clusters among the objects.
func Clusters(objects []Object) int {
	clusters := map[string]bool{}
	for _, o := range objects {
		clusters[o.Cluster] = true
	}
	return len(clusters)
}

// Name returns the name with the kind and the group, like kubectl get -o name, for example
// deployment.apps/web.
func (o Object) Name() string {
	kind := strings.ToLower(o.Kind)
	if o.Key.Group != "" {
		kind += "." + o.Key.Group
	}
	return kind + "/" + o.Key.Name
}

// WriteNames writes the name of each object.
func WriteNames(w io.Writer, objects []Object) error {
	for _, o := range objects {
		if _, err := fmt.Fprintln(w, show(o.Name())); err != nil {
			return err
		}
	}
	return nil
}
