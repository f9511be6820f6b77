package status

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// judgeClusters judges the document of several clusters: it returns the documents of the clusters with
// their verdicts, and the findings of all, each with the name of its cluster.
func judgeClusters(d Document) (clusters []Document, findings []Finding) {
	clusters, findings = []Document{}, []Finding{}
	for _, f := range d.find() {
		if f.Reason == ClusterFailed || f.Reason == Starting { // the others are of one cluster
			findings = append(findings, f)
		}
	}
	for _, c := range d.Clusters {
		c.Version = d.Version
		c = Judge(c)
		clusters = append(clusters, c)
		for _, f := range c.Verdict.Findings {
			// The clusters share the bus and the memory.
			if f.Reason == MemoryLow && slices.ContainsFunc(findings, func(other Finding) bool { return other.Reason == MemoryLow }) {
				continue
			}
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
	s := fmt.Sprintf("%s, %s watched, %s, ", counted(len(d.Clusters), "cluster"), counted(resources, "resource"), counted(objects, "object"))
	if dirty == 0 {
		return s + "everything published"
	}
	return s + fmt.Sprintf("%d changes on their way", dirty)
}

// writeClusters writes a line for each cluster.
func (d Document) writeClusters(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer t.Flush() //nolint:errcheck // a Buffer never fails
	fmt.Fprintln(t, "CLUSTER\tVERDICT\tRESOURCES\tOBJECTS\tDIRTY\tCONSISTENT\tBUS\tLEASE")
	for _, c := range d.Clusters {
		dirty, lease := "-", "-"
		if c.knowsUnsent() {
			dirty = fmt.Sprint(c.dirty())
		}
		if c.Lease != nil {
			lease = c.Lease.String()
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\n", c.Cluster, c.Verdict.Level, len(c.Resources), c.objects(), dirty, c.ago(c.consistentAsOf()), c.Bus.State, lease)
	}
}
