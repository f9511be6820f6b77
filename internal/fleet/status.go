package fleet

import (
	"time"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/status"
	"github.com/kuberelay/kuberelay/internal/trace"
)

// Status returns the current state of all clusters, without a verdict. It sends no request.
func (f *Fleet) Status() status.Document {
	d := f.document()
	d.Clusters = []status.Document{}
	for _, m := range f.sorted() {
		d.Clusters = append(d.Clusters, m.document())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed != nil {
		d.Failed = &status.Error{Message: "the source of clusters cannot be read: " + f.failed.Error(), Since: f.since.UTC()}
	}
	if !f.reported {
		d.WaitingFor = status.ForCluster
	}
	return d
}

// document returns a document that describes no cluster.
func (f *Fleet) document() status.Document {
	d := status.Empty(time.Now())
	d.Instance, d.Bus = f.Relay.Identity, status.Bus{Sink: f.Relay.Settings.Event.Sink, State: status.BusUnused}
	return d
}

// ClusterStatus returns the current state of one cluster, without a verdict. If the source does not
// have the cluster, ClusterStatus returns an error, and a document that contains the error.
func (f *Fleet) ClusterStatus(name string) (status.Document, error) {
	m, err := f.find(name)
	if err != nil {
		d := f.document()
		d.Cluster, d.WaitingFor, d.Failed = name, status.ForCluster, &status.Error{Message: err.Error(), Since: d.Time}
		return d, err
	}
	return m.document(), nil
}

// Trace returns the current state of one object of a cluster.
func (f *Fleet) Trace(cluster string, k event.Key) (trace.Forwarder, error) {
	m, err := f.find(cluster)
	if err != nil {
		return trace.Forwarder{}, err
	}
	r, failed, _ := m.state()
	if r == nil {
		return trace.Forwarder{Role: trace.Starting, Cluster: m.name, Error: text(failed)}, nil
	}
	return r.Trace(k), nil
}

func (m *member) document() status.Document {
	r, failed, since := m.state()
	if r != nil {
		d := r.Status()
		m.mu.Lock()
		defer m.mu.Unlock()
		d.Cluster, d.KubeconfigError = m.name, m.unusable
		return d
	}
	d := m.fleet.document()
	d.Cluster, d.WaitingFor = m.name, status.ForCluster
	if failed != nil {
		d.Failed = &status.Error{Message: failed.Error(), Since: since.UTC()}
	}
	return d
}
