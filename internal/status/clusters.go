package status

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// judgeClusters judges a document of several clusters. It returns the documents of the clusters
// with their verdicts, and all findings, each with the name of its cluster.
func judgeClusters(d Document) (clusters []Document, findings []Finding) {
	clusters, findings = []Document{}, []Finding{}
	for _, f := range d.find() {
		if f.Reason == ClusterFailed || f.Reason == Starting { // the other reasons concern one cluster
			findings = append(findings, f)
		}
	}
	for _, c := range d.Clusters {
		c.Version = d.Version
		c = Judge(c)
		clusters = append(clusters, c)
		for _, f := range c.Verdict.Findings {
			// The clusters share the memory of the process, so report low memory only once.
			if f.Reason == MemoryLow && slices.ContainsFunc(findings, func(other Finding) bool { return other.Reason == MemoryLow }) {
				continue
			}
			f.Cluster = c.Cluster
			f.Headline, f.Message = c.Cluster+": "+f.Headline, c.Cluster+": "+f.Message
			findings = append(findings, f)
		}
	}
	return clusters, findings
}

// clustersSummary is the summary of several clusters without a finding.
func (d Document) clustersSummary() string {
	if len(d.Clusters) == 0 {
		return "the source has no cluster"
	}
	resources, objects, dirty := 0, 0, 0
	for _, c := range d.Clusters {
		resources, objects, dirty = resources+len(c.Resources), objects+c.objects(), dirty+c.dirty()
	}
	return fmt.Sprintf("%s, %s watched, %s, %s", counted(len(d.Clusters), "cluster"), counted(resources, "resource"), counted(objects, "object"), onTheWay(dirty))
}

// Row describes one of several clusters in one line. It has times but no ages, so that it
// stays equal while nothing changes. The JSON field names are stable.
type Row struct {
	Cluster  string `json:"cluster"`
	Level    Level  `json:"level"`
	Headline string `json:"headline,omitempty"` // headline of the worst finding, unless it is a notice

	Resources      int        `json:"resources"`
	Objects        int        `json:"objects"`
	Dirty          *int       `json:"dirty,omitempty"`
	ConsistentAsOf *time.Time `json:"consistentAsOf,omitempty"` // time of the resource that is furthest behind
	Bus            BusState   `json:"bus"`
	Lease          *Lease     `json:"lease,omitempty"`
}

// Rows returns a line for each cluster of a judged document.
func (d Document) Rows() []Row {
	rows := []Row{}
	for _, c := range d.Clusters {
		r := Row{
			Cluster: c.Cluster, Level: c.Verdict.Level, Resources: len(c.Resources), Objects: c.objects(),
			ConsistentAsOf: c.consistentAsOf(), Bus: c.Bus.State, Lease: c.Lease,
		}
		if all := c.Verdict.Findings; len(all) > 0 && !all[0].isNotice() {
			r.Headline = all[0].Headline
		}
		if dirty := c.dirty(); c.knowsUnsent() {
			r.Dirty = &dirty
		}
		rows = append(rows, r)
	}
	return rows
}

// writeClusters writes a line for each cluster.
func (d Document) writeClusters(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer t.Flush() //nolint:errcheck // a Buffer never fails
	fmt.Fprintln(t, "CLUSTER\tVERDICT\tRESOURCES\tOBJECTS\tDIRTY\tCONSISTENT\tBUS\tLEASE")
	for _, r := range d.Rows() {
		dirty, lease := "-", "-"
		if r.Dirty != nil {
			dirty = fmt.Sprint(*r.Dirty)
		}
		if r.Lease != nil {
			lease = r.Lease.String()
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\n", r.Cluster, r.Level, r.Resources, r.Objects, dirty, d.ago(r.ConsistentAsOf), r.Bus, lease)
	}
}
