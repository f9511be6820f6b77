package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/reader"
	"github.com/kuberelay/kuberelay/internal/publish/nats"
)

// Options says what to compare. They are those of the forwarder whose work is
// looked at.
type Options struct {
	Kube *rest.Config
	// NATS says where the stream is. It is opened for reading only. Cluster may
	// be empty: it is then the UID of the namespace kube-system. History must be
	// the stream's.
	NATS nats.Options
	// Kafka, if set, is read instead. Cluster is as above. Repeats are no problem where
	// the forwarder does not produce idempotently.
	Kafka   *reader.Options
	Repeats bool

	// Selectors of resources, as in the environment. UnlessNamed are those that a
	// wildcard leaves out.
	Resources, ExcludeResources, UnlessNamed []string
	Namespaces, ExcludeNamespaces            []string        // empty for all, and for none
	NamespaceSelector                        labels.Selector // nil for all
	LabelSelector, FieldSelector             string

	// TellDeselected: the forwarder tells of what another configuration had selected.
	TellDeselected bool
	// Follow are the paths of references that are followed.
	Follow []string

	// Shape says what is sent of the objects of a resource; nil for all of all.
	Shape func(event.Resource) event.Shape

	// RedactionKey is that of the hashes of Secrets' values; without it these are
	// not compared.
	RedactionKey []byte
	// DeleteRetention is how long the events of a deleted object stay; 24 h if 0.
	DeleteRetention time.Duration

	// Settle is how long the bus has to come to a state of the cluster; 10 s if 0.
	Settle time.Duration

	Logger *slog.Logger // none if nil
}

// DefaultSettle is how long the bus has to come to a state of the cluster, if not
// said otherwise.
const DefaultSettle = 10 * time.Second

func (o Options) withDefaults() Options {
	o.NATS.ReadOnly = true
	o.NATS.SubjectPrefix = cmp.Or(o.NATS.SubjectPrefix, "kuberelay")
	o.NATS.History = cmp.Or(o.NATS.History, 8)
	o.DeleteRetention = cmp.Or(o.DeleteRetention, 24*time.Hour)
	o.Settle = cmp.Or(o.Settle, DefaultSettle)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return o
}

// ErrUnreachable is in the chain of why nothing could be read from a bus that gave no
// answer.
var ErrUnreachable = errors.New("it cannot be reached")

// Run compares the bus with the cluster, in about twice the settle time at most
// beyond what reading takes, and says what it found. It changes nothing.
//
// An error means that it could not look, or not everywhere: then the report holds
// what it found elsewhere, but that nothing is wrong cannot be said. What is wrong
// is in the report and is no error.
func Run(ctx context.Context, o Options) (Report, error) {
	o = o.withDefaults()
	c, err := newCluster(o.Kube, o)
	if err != nil {
		return Report{}, err
	}
	if err := c.ready(ctx); err != nil {
		return Report{}, err
	}
	f, err := openFollower(ctx, o, c)
	if err != nil {
		return Report{}, err
	}
	defer func() { _ = f.bus.Close() }() // it was only read

	v := &verification{
		report: Report{Cluster: f.place.Cluster},
		opts:   o, cluster: c, log: o.Logger,
		selectors: selectors{o.Resources, o.ExcludeResources, o.UnlessNamed}, follower: f,
		listed: map[schema.GroupResource]uint32{}, candidates: map[event.Key]*candidate{}, unlisted: map[string]string{},
	}
	return v.run(ctx)
}

// openFollower opens the bus.
func openFollower(ctx context.Context, o Options, c *cluster) (*follower, error) {
	name := o.NATS.Cluster
	if o.Kafka != nil {
		name = o.Kafka.Cluster
	}
	if name == "" {
		var err error
		if name, err = c.name(ctx); err != nil {
			return nil, err
		}
	}
	if o.Kafka != nil {
		return openTopics(o, name, c.form)
	}
	return openStream(ctx, o, name, c.form)
}

// verification is one run.
type verification struct {
	opts      Options
	cluster   *cluster
	selectors selectors
	follower  *follower
	log       *slog.Logger

	selection  *selection
	listings   uint32                          // so far; each marks the objects that it finds
	listed     map[schema.GroupResource]uint32 // the last listing of each resource
	candidates map[event.Key]*candidate
	unlisted   map[string]string // resource to reason
	followed   map[schema.GroupResource]*followedSet
	report     Report
}

func (v *verification) run(ctx context.Context) (Report, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := v.follower.bus.lasts(ctx, func(k event.Key, position uint64) { v.follower.ends[k] = position }); err != nil {
		return Report{}, err
	}
	followed := make(chan struct{})
	go func() { defer close(followed); v.follower.run(ctx) }()
	defer func() { cancel(); <-followed }()

	v.log.Debug("reading the bus", "objects", len(v.follower.ends))
	if err := v.follower.catchUp(ctx); err != nil {
		return Report{}, err
	}
	for _, step := range []func(context.Context) error{
		v.compareClaim, v.selectResources, v.compareAll, v.settle, v.follower.resolveDoubts, v.explain,
	} {
		if err := step(ctx); err != nil {
			return Report{}, err
		}
	}
	return v.finish()
}

// compareClaim ends it if the bus says that the name is another cluster's: then there is
// nothing to compare. Where the cluster does not let us know its UID, it is left at that.
func (v *verification) compareClaim(ctx context.Context) error {
	uid, err := v.cluster.name(ctx)
	if claim := v.follower.claim(); err == nil && claim != "" && claim != uid {
		return fmt.Errorf("the name %s belongs to another cluster on this bus: its namespace kube-system has the UID %s, that of this cluster %s; "+
			"check KUBECONFIG and KUBERELAY_CLUSTER_NAME", v.report.Cluster, claim, uid)
	}
	return ctx.Err()
}

// selectResources asks what the cluster serves now.
func (v *verification) selectResources(ctx context.Context) error {
	if err := v.cluster.ready(ctx); err != nil {
		return err
	}
	s, err := v.selectors.selectResources(ctx, v.cluster.discovery)
	if err != nil {
		return err
	}
	v.selection = s
	for _, group := range v.selectors.doubtful(s) {
		v.unlisted["*."+group] = fmt.Sprintf("discovery: %v", s.failed[group])
	}
	return v.lookAtScope(ctx)
}

// lookAtScope learns what is selected by more than the configuration.
func (v *verification) lookAtScope(ctx context.Context) error {
	if err := v.cluster.lookAtNamespaces(ctx); err != nil {
		return err
	}
	return v.follow(ctx)
}

// compareAll lists the cluster and makes candidates of what differs.
func (v *verification) compareAll(ctx context.Context) error {
	all := maps.Clone(v.selection.selected)
	for gr, set := range v.followed {
		all[gr] = set.resource
	}
	for _, gr := range sortedResources(all) {
		found, err := v.compareResource(ctx, all[gr])
		switch {
		case err == nil:
			v.listed[gr] = v.listings
			v.report.Resources = append(v.report.Resources, found)
			v.report.Objects += found.Objects
			if newer(found.ResourceVersion, v.report.ResourceVersion) || v.report.ResourceVersion == "" {
				v.report.ResourceVersion = found.ResourceVersion
			}
		case isUnserved(err):
			// It went away since discovery; its objects, if the bus has any, are
			// looked at once more.
			if err := v.selectResources(ctx); err != nil {
				return err
			}
			if v.selection.served[gr] {
				v.unlisted[gr.String()] = whatFailed(gr, err)
			}
		case ctx.Err() != nil:
			return ctx.Err()
		case isRefused(err):
			v.unlisted[gr.String()] = whatFailed(gr, err)
		default:
			return errors.New(whatFailed(gr, err))
		}
	}
	v.findExtra()
	return nil
}

// compareResource lists one resource and compares each object as it comes.
func (v *verification) compareResource(ctx context.Context, r resource) (Resource, error) {
	found := Resource{Resource: r.GroupResource().String(), Version: r.Version}
	unread := 0
	begin := func() { v.listings++; found.Objects, unread = 0, 0 }
	_, filtered, _ := v.resourceOf(r.GroupResource())
	version, err := v.cluster.listAll(ctx, r, filtered, begin, func(i item) error {
		if !v.covers(i.key) {
			return nil
		}
		s := v.cluster.see(r, i)
		if !s.present {
			return nil // its content is not selected: if the bus has it, it is extra
		}
		found.Objects++
		e := v.follower.mark(i.key, v.listings)
		_, served := v.selection.as(r, e)
		switch {
		case isSame(s, e) && !served:
			unread++
		case !isSame(s, e) || !sameData(s, e):
			v.suspect(i.key)
		}
		return nil
	})
	v.report.OtherVersion += unread
	found.ResourceVersion = version
	if err == nil {
		v.log.Debug("resource listed", "resource", found.Resource, "objects", found.Objects, "resource_version", version)
	}
	return found, err
}

// findExtra makes candidates of the objects on the bus that no list had, or whose
// resource the cluster does not serve.
func (v *verification) findExtra() {
	v.follower.live(func(k event.Key, mark uint32) {
		gr := k.GroupResource()
		listing, listed := v.listed[gr]
		switch {
		case listed:
			if mark != listing && (v.covers(k) || v.mustGo(k)) {
				v.suspect(k)
			}
		case v.selection.served[gr]: // not selected, or in unlisted
			if _, _, ok := v.resourceOf(gr); !ok && v.mustGo(k) {
				v.suspect(k)
			}
		case v.selection.failed[gr.Group] != nil:
			v.unlisted[gr.String()] = fmt.Sprintf("discovery: %v", v.selection.failed[gr.Group])
		default:
			v.suspect(k)
		}
	})
}

func (v *verification) suspect(k event.Key) {
	if v.candidates[k] == nil {
		v.candidates[k] = &candidate{returns: v.changes()}
		v.follower.watch(k)
	}
}

// finish makes the report.
func (v *verification) finish() (Report, error) {
	r := &v.report
	v.follower.report(r)
	r.Unmatched = v.selection.unmatched
	v.follower.live(func(k event.Key, _ uint32) {
		_, _, selected := v.resourceOf(k.GroupResource())
		if v.selection.served[k.GroupResource()] && (!selected || !v.covers(k)) && !v.mustGo(k) {
			r.OutOfScope++
		}
	})
	for at, err := range v.cluster.coverage.refused {
		v.unlisted[at.resource.String()+" in "+at.namespace] = whatFailed(at.resource, err)
	}
	for resource, reason := range v.unlisted {
		r.Unlisted = append(r.Unlisted, Unlisted{resource, reason})
	}
	r.sort()
	v.follower.bus.report(r)
	if len(r.Unlisted) == 0 {
		return *r, nil
	}
	reasons := make([]string, len(r.Unlisted))
	for i, u := range r.Unlisted {
		reasons[i] = u.Reason
	}
	return *r, fmt.Errorf("not everything could be looked at: %s", strings.Join(reasons, "; "))
}

// keysOf gives the candidates by resource.
func (v *verification) keysOf() map[schema.GroupResource][]event.Key {
	keys := map[schema.GroupResource][]event.Key{}
	for k := range v.candidates {
		keys[k.GroupResource()] = append(keys[k.GroupResource()], k)
	}
	return keys
}
