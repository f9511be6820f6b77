package check

import (
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/explain"
	"github.com/kuberelay/kuberelay/internal/publish/kafka"
	"github.com/kuberelay/kuberelay/internal/publish/kafka/broker"
	"github.com/kuberelay/kuberelay/internal/publish/nats"
	"github.com/kuberelay/kuberelay/internal/sizing"
	"github.com/kuberelay/kuberelay/internal/status"
)

var errFault = errors.New("fault")

const uid = "8c2c3d9e"

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// well returns the facts of a deployment with a running forwarder that has no problem.
func well(sink string) Facts {
	skew := time.Duration(0)
	f := Facts{
		Now: noon, Version: "v1.0.0",
		Server:      Server{Host: "https://api", User: "system:serviceaccount:a:b", Version: "v1.36.3", Skew: &skew, UID: uid},
		Lists:       []List{{Resource: "pods", Objects: 1000, Sampled: 20, Bytes: 20 * 10_000, Largest: 20_000}},
		Lease:       Lease{Namespace: "a", Name: "kuberelay", Exists: true, Holder: "pod-1"},
		Validities:  map[string][]Validity{},
		MemoryLimit: 256 << 20,
		DataDir:     DataDir{Path: "/data", Free: 8 << 30},
		Forwarder:   &status.Document{Version: "v1.0.0", Verdict: status.Verdict{Level: status.OK, Summary: "everything published"}},
		Rights:      map[Right]Answer{},
	}
	for _, id := range []string{ServerCertificate, ClientCertificate, ServerToken, BusCertificate, BusClient, BusAuthorities, BusToken, ListenCertificate} {
		f.Validities[id] = []Validity{{What: "it", From: noon.Add(-24 * time.Hour), Until: noon.Add(100 * 24 * time.Hour)}}
	}
	f.Selection = explain.Explanation{Suggestions: map[string]string{}, Namespaces: explain.ExplainedNamespaces{Selected: []string{"a"}}, Resources: []explain.Explained{
		{Name: "pods", Version: "v1", Watched: explain.Everywhere, Scope: explain.AllNamespacesScope},
		{Name: "secrets", Version: "v1", Watched: explain.Everywhere, Scope: explain.AllNamespacesScope},
	}}
	s := &f.Settings
	s.Watch.ExcludeResources, s.Watch.NamespaceSelector = config.List{"leases"}, "a=b"
	s.Content.DropFields = config.Paths{"pods:.status"}
	s.Event = config.Event{Sink: sink, RedactionKeyFile: "key"}
	s.NATS = config.NATS{URLs: config.List{"nats://a"}, Stream: "KUBERELAY", History: 8}
	s.Kafka = config.Kafka{Brokers: config.List{"a:9092"}, Partitions: 3, Idempotent: true}
	s.Leader.Election, s.Operations.MetricsAuth = true, true
	for _, r := range f.NeededRights() {
		f.Rights[r] = Answer{Allowed: true}
	}
	claim := event.Claim{UID: uid}
	f.NATS = nats.Inspection{
		Version: "2.15.2", MaxPayload: 8 << 20, Skew: &skew, Claim: claim,
		Account: &jetstream.AccountInfo{Tier: jetstream.Tier{Store: 10 << 20, Limits: jetstream.AccountLimits{MaxStore: 10 << 30}}},
		Stream: &jetstream.StreamInfo{
			Config: jetstream.StreamConfig{Name: "KUBERELAY", Replicas: 3, MaxBytes: 1 << 30, MaxMsgs: -1},
			State:  jetstream.StreamState{Bytes: 10 << 20, Msgs: 1000},
			Cluster: &jetstream.ClusterInfo{Name: "C", Leader: "a", Replicas: []*jetstream.PeerInfo{
				{Name: "b", Current: true}, {Name: "c", Current: true},
			}},
		},
	}
	topic := func(name string) kafka.TopicInspection {
		return kafka.TopicInspection{Name: name, Inspection: broker.Inspection{
			Topic: broker.Topic{Name: name, Partitions: 3, Replication: 3, CleanupPolicy: "compact", MaxMessageBytes: 4 << 20, MinInsyncReplicas: 2}, InSync: 3, DeniedKnown: true,
		}}
	}
	f.Kafka = kafka.Inspection{Brokers: 3, Topics: []kafka.TopicInspection{topic("kuberelay")}, Checkpoint: topic("kuberelay.checkpoint"), Claim: claim}
	return f
}

// decision is a change of the facts, and the expected result of the check with the id.
type decision struct {
	id, name, sink string
	change         func(*Facts)
	want           Status
	words          string
}

func forbidden() error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "x", errors.New("no"))
}

func until(id string, v Validity) func(*Facts) {
	v.What = "it"
	return func(f *Facts) { f.Validities[id] = []Validity{f.Validities[id][0], v} }
}

// several returns a change that applies to one of several clusters.
func several(change func(*Facts)) func(*Facts) {
	return func(f *Facts) { f.Settings.Fleet.Dir = "/clusters"; change(f) }
}

func cases() []decision {
	day := 24 * time.Hour
	all := []decision{
		{"configuration", "wrong", "", func(f *Facts) { f.ConfigErr = errFault }, Failed, "fault"},
		{"lease", "wrong configuration", "", func(f *Facts) { f.ConfigErr = errFault }, Skipped, "the configuration is wrong"},
		{"kubeconfig", "none", "", func(f *Facts) { f.KubeErr = errFault }, Failed, "set KUBECONFIG"},
		{"kubeconfig", "of several clusters", "", several(func(f *Facts) { f.KubeErr = errFault }), Failed, "correct the source of clusters"},
		{"memory-limit", "of several clusters", "", several(func(f *Facts) { f.MemoryLimit = 1 }), Skipped, "share its memory"},
		{"bus-storage", "of several clusters", "", several(func(f *Facts) { f.NATS.Stream.Config.MaxBytes = 1 }), Skipped, "share the stream"},
		{"api-server-ready", "no kubeconfig", "", func(f *Facts) { f.KubeErr = errFault }, Skipped, "no cluster"},
		{"redaction-key", "secrets", "", func(f *Facts) { f.Settings.Event.RedactionKeyFile = "" }, Warning, "Secrets are watched"},
		{"redaction-key", "fields", "", func(f *Facts) {
			f.Settings.Event.RedactionKeyFile, f.Selection.Resources = "", nil
			f.Settings.Content.HashFields = config.Paths{"pods:.spec"}
		}, Warning, "KUBERELAY_HASH_FIELDS"},
		{"redaction-key", "known fields", "", func(f *Facts) {
			f.Settings.Event.RedactionKeyFile, f.Selection.Resources = "", nil
			f.Selection.HashFields = []string{"configmaps.core:.data.release", "tokens.example.com:.token", "tokens.example.com:.other"}
		}, Warning, "fields of tokens.example.com that are known to hold secrets are hashed"},
		{"redaction-key", "only fields of rare objects", "", func(f *Facts) {
			f.Settings.Event.RedactionKeyFile, f.Selection.Resources = "", nil
			f.Selection.HashFields = []string{"configmaps.core:.data.release", "controllerrevisions.apps:.data.x"}
		}, Skipped, "neither"},
		{"redaction-key", "neither", "", func(f *Facts) { f.Settings.Event.RedactionKeyFile, f.Selection.Resources = "", nil }, Skipped, "neither"},

		{"api-server-reachable", "down", "", func(f *Facts) { f.Server.Err = errFault }, Failed, "does not respond: fault"},
		{"api-server-reachable", "unauthorized", "", func(f *Facts) { f.Server.Err = apierrors.NewUnauthorized("no") }, OK, "responds"},
		{"api-server-reachable", "certificate", "", func(f *Facts) { f.Server.Err = x509.UnknownAuthorityError{} }, OK, "responds"},
		{"api-server-certificate", "unknown authority", "", func(f *Facts) { f.Server.Err = fmt.Errorf("get: %w", x509.UnknownAuthorityError{}) }, Failed, "certificate-authority"},
		{"api-server-credentials", "unauthorized", "", func(f *Facts) { f.Server.Err = apierrors.NewUnauthorized("no") }, Failed, "does not accept"},
		{"api-server-credentials", "another answer", "", func(f *Facts) { f.Server.Err = apierrors.NewInternalError(errFault) }, Failed, "fault"},
		{"api-server-credentials", "anonymous", "", func(f *Facts) { f.Server.User = "system:anonymous" }, Failed, "no credentials"},
		{"api-server-credentials", "an old server", "", func(f *Facts) { f.Server.User = "" }, OK, "accepts"},
		{"api-server-credentials", "down", "", func(f *Facts) { f.Server.Err = errFault }, Skipped, "cannot be queried"},
		{"api-server-version", "old", "", func(f *Facts) { f.Server.Version = "v1.24.9-gke.1" }, Warning, "1.25"},
		{"api-server-version", "unknown", "", func(f *Facts) { f.Server.Version = "" }, Skipped, "cannot be parsed"},
		{"api-server-ready", "not", "", func(f *Facts) { f.Server.Ready = errFault }, Warning, "fault"},
		{"api-server-ready", "forbidden", "", func(f *Facts) { f.Server.Ready = forbidden() }, Skipped, "/readyz cannot be read"},
		{"api-server-clock", "ahead", "", clock(func(f *Facts) **time.Duration { return &f.Server.Skew }, 6*time.Second), Warning, "6s ahead of"},
		{"api-server-clock", "a little ahead", "", clock(func(f *Facts) **time.Duration { return &f.Server.Skew }, 4*time.Second), OK, "less than 5s"},
		{"api-server-clock", "far behind", "", clock(func(f *Facts) **time.Duration { return &f.Server.Skew }, -6*time.Minute), Failed, "6m0s behind"},
		{"api-server-clock", "unknown", "", func(f *Facts) { f.Server.Skew = nil }, Skipped, "does not report"},
		{"discovery", "fails", "", func(f *Facts) { f.SelectionErr = errFault }, Failed, "fault"},
		{"discovery", "of a group", "", func(f *Facts) {
			f.Selection.FailingGroups = []explain.FailingGroup{{Group: "metrics.k8s.io", Error: "503"}}
		}, Warning, "metrics.k8s.io (503)"},
		{"anything-watched", "discovery fails", "", func(f *Facts) { f.SelectionErr = errFault }, Skipped, "fault"},

		{"resources-matched", "not", "", func(f *Facts) {
			f.Selection.Unmatched, f.Selection.Suggestions["deploymnts"] = []string{"deploymnts", "x"}, "deployments.apps"
		}, Warning, "deploymnts (did you mean deployments.apps?), x"},
		{"excluded-resources-matched", "not", "", func(f *Facts) { f.Selection.UnmatchedExclude = []string{"x"} }, Warning, "nothing: x"},
		{"excluded-resources-matched", "not set", "", func(f *Facts) { f.Settings.Watch.ExcludeResources = nil }, Skipped, "not set"},
		{"namespaces-found", "not", "", func(f *Facts) {
			f.Selection.Namespaces.NotFound, f.Selection.Suggestions["defaul"] = []string{"defaul"}, "default"
		}, Warning, "did you mean default?"},
		{"namespaces-found", "unreadable", "", func(f *Facts) {
			f.Selection.Namespaces.Error, f.Settings.Watch.NamespaceSelector = "no", "team=a"
		}, Failed, "grant list and watch"},
		{"namespaces-found", "unreadable, to exclude some", "", func(f *Facts) {
			f.Selection.Namespaces.Error, f.Settings.Watch.NamespaceSelector = "no", ""
		}, Warning, "goes unnoticed: no"},
		{"namespaces-found", "none", "", func(f *Facts) { f.Selection.Namespaces.Selected = nil }, Warning, "no namespace"},
		{"namespaces-found", "all", "", func(f *Facts) { f.Selection.Namespaces = explain.ExplainedNamespaces{All: true} }, OK, "all namespaces"},
		{"fields-matched", "follow", "", func(f *Facts) { f.Selection.UnmatchedFollow = []string{"deploymnts.apps:spec.ref"} }, Warning, "KUBERELAY_FOLLOW match no watched resource: deploymnts.apps:spec.ref"},
		{"fields-matched", "not", "", func(f *Facts) { f.Selection.UnmatchedFields = []string{"pod:.x"} }, Warning, "pod:.x"},
		{"fields-matched", "not set", "", func(f *Facts) { f.Settings.Content.DropFields = nil }, Skipped, "not set"},
		{"secret-fields", "published", "", func(f *Facts) { f.Selection.ReadableFields = []string{"a:.b"} }, Warning, "a:.b"},
		{"anything-watched", "nothing", "", nothing, Failed, "nothing is watched"},
		{"lists", "fail", "", func(f *Facts) { f.Lists[0].Err = errFault }, Failed, "pods (fault)"},
		{"lists", "nothing", "", func(f *Facts) { f.Lists = nil }, Skipped, "nothing"},

		{"permission-list", "one denied", "", refuse("list", explain.Partly), Warning, "may not list pods in the namespace a"},
		{"permission-list", "none granted", "", func(f *Facts) { refuse("list", explain.Nowhere)(f); nothing(f) }, Failed, "pods"},
		{"permission-list", "no answer", "", func(f *Facts) { f.Selection.Warnings = []string{"unknown"} }, Skipped, "unknown"},
		{"permission-list", "nothing selected", "", func(f *Facts) { f.Selection.Resources = nil }, Skipped, "no resource"},
		{"permission-watch", "denied", "", refuse("watch", explain.Partly), Warning, "may not watch pods"},
		{"permission-get", "denied", "", refuse("get", explain.Everywhere), Warning, "cannot be confirmed"},
		{"permission-cluster-identity", "forbidden", "", func(f *Facts) { f.Server.UIDErr = forbidden() }, Failed, "set KUBERELAY_CLUSTER_NAME"},
		{"permission-cluster-identity", "forbidden, with a name", "", func(f *Facts) {
			f.Server.UIDErr, f.Settings.Event.ClusterName = forbidden(), "a"
		}, Warning, "undetected"},
		{"permission-cluster-identity", "forbidden, to replace", "", func(f *Facts) {
			f.Server.UIDErr, f.Settings.Event.ClusterName, f.Settings.Event.ClusterReplaces = forbidden(), "a", "b"
		}, Failed, "KUBERELAY_CLUSTER_REPLACES"},
		{"permission-cluster-identity", "not there", "", func(f *Facts) {
			f.Server.UIDErr, f.Settings.Event.ClusterName = apierrors.NewNotFound(schema.GroupResource{}, "x"), "a"
		}, Warning, "has no namespace"},
		{"permission-definitions", "denied", "", deny("apiservices"), Warning, "may not list apiservices.apiregistration.k8s.io, watch "},
		{"permission-definitions", "no answer", "", silent, Skipped, "fault"},
		{"permission-definitions", "not asked", "", func(f *Facts) { f.Rights = nil }, Skipped, "was not checked"},
		{"permission-namespaces", "denied", "", deny("namespaces"), Failed, "list namespaces"},
		{"permission-namespaces", "no answer", "", silent, Skipped, "fault"},
		{"permission-namespaces", "not needed", "", func(f *Facts) { f.Settings.Watch.NamespaceSelector = "" }, Skipped, "all namespaces are selected"},
		{"permission-namespaces", "all except some, denied", "", excludeUnread, Warning, "goes unnoticed"},
		{"permission-namespaces", "all except some, denied with a resource", "", func(f *Facts) {
			excludeUnread(f)
			f.Selection.Resources[0].Watched = explain.Nowhere
		}, Failed, "list namespaces"},
		{"permission-namespaces", "all except some, denied with separate watches", "", func(f *Facts) {
			excludeUnread(f)
			f.Selection.Resources[0].Scope = explain.NamespacesScope
		}, Failed, "list namespaces"},
		{"permission-namespaces", "named", "", func(f *Facts) { named(f, true) }, OK, "may read"},
		{"permission-namespaces", "named, denied", "", func(f *Facts) { named(f, false) }, Warning, "list namespaces/a"},
		{"permission-lease", "denied", "", deny("leases"), Failed, "get leases.coordination.k8s.io/kuberelay in the namespace a"},
		{"permission-lease", "create denied", "", func(f *Facts) {
			f.Lease.Exists = false
			f.Rights[Right{Verb: "create", Group: leaseGroup, Resource: "leases", Namespace: "a"}] = Answer{}
		}, Failed, "may not create leases.coordination.k8s.io in the namespace a, so"},
		{"permission-lease", "no answer", "", silent, Skipped, "fault"},
		{"permission-lease", "not needed", "", func(f *Facts) { f.Settings.Leader.Election = false }, Skipped, "false"},
		{"permission-reviews", "denied", "", deny("tokenreviews"), Failed, "system:auth-delegator"},
		{"permission-reviews", "no answer", "", silent, Skipped, "fault"},
		{"permission-reviews", "not needed", "", func(f *Facts) { f.Settings.Operations.MetricsAuth = false }, Skipped, "false"},

		{"memory-limit", "none", "", func(f *Facts) { f.MemoryLimit = 0 }, Skipped, "for 1000 objects of 10000 bytes on average, the forwarder needs"},
		{"memory-limit", "below the peak", "", func(f *Facts) { f.MemoryLimit = f.peak(load{1000, 10_000}) - 1 }, Failed, "set the memory limit to"},
		{"memory-limit", "little above the peak", "", func(f *Facts) { f.MemoryLimit = f.peak(load{1000, 10_000}) + 1 }, Warning, "set the memory limit to"},
		{"memory-limit", "more on Kafka", config.SinkKafka, func(f *Facts) {
			f.MemoryLimit = sizing.Measured().Peak(1000, 0, 10_000) + sizing.Measured().Kafka - 1
		}, Failed, "set the memory limit to"},
		{"memory-limit", "not counted", "", func(f *Facts) { f.Lists[0].Objects, f.Settings.Watch.LabelSelector = -1, "a" }, Skipped, "KUBERELAY_LABEL_SELECTOR"},
		{"memory-limit", "not counted without a reason", "", func(f *Facts) { f.Lists[0].Objects = -1 }, Skipped, "does not report the number of pods"},
		{"memory-limit", "not listed", "", func(f *Facts) { f.Lists[0].Err = errFault }, Skipped, "pods cannot be listed"},
		{"bus-storage", "too small", "", func(f *Facts) { f.NATS.Stream.Config.MaxBytes = 20 << 20 }, Warning, "max_bytes of the stream is 20 MB"},
		{"bus-storage", "the account is too small", "", func(f *Facts) { f.NATS.Account.Limits.MaxStore = 20 << 20 }, Warning, "the account has left"},
		{"bus-storage", "the volume is too small", "", func(f *Facts) { f.Settings.NATS.URLs, f.DataDir.Free = nil, 20<<20 }, Warning, "three quarters"},
		{"bus-storage", "set too small", "", func(f *Facts) { f.Settings.NATS.URLs, f.Settings.Server.MaxBytes = nil, 20<<20 }, Warning, "KUBERELAY_NATS_MAX_BYTES"},
		{"bus-storage", "unknown", "", func(f *Facts) { f.NATS = nats.Inspection{} }, Skipped, "no storage limit is known"},
		{"bus-storage", "no bus", "", func(f *Facts) { f.NATS, f.BusErr = nats.Inspection{}, errFault }, Skipped, "cannot be queried"},
		{"bus-storage", "not counted", "", func(f *Facts) { f.Lists[0].Objects = -1 }, Skipped, "does not report the number of"},
	}
	for _, id := range []string{ServerCertificate, ClientCertificate, ServerToken, BusCertificate, BusClient, BusAuthorities, BusToken, ListenCertificate} {
		all = append(all,
			decision{id, "expired", "", until(id, Validity{From: noon.Add(-day), Until: noon}), Failed, "it expired at 2026-01-01T12:00:00Z"},
			decision{id, "expires soon", "", until(id, Validity{From: noon.Add(-300 * day), Until: noon.Add(6 * day)}), Warning, "it expires at 2026-01-07"},
			decision{id, "is short-lived", "", until(id, Validity{From: noon.Add(-time.Hour), Until: noon.Add(time.Hour)}), OK, "valid until"},
			decision{id, "not valid yet", "", until(id, Validity{From: noon.Add(time.Minute), Until: noon.Add(day)}), Failed, "not valid before"},
			decision{id, "unreadable", "", until(id, Validity{Err: errFault}), Failed, "fault"},
			decision{id, "none", "", func(f *Facts) { delete(f.Validities, id) }, Skipped, ""})
	}
	return append(all, busCases()...)
}

func clock(of func(*Facts) **time.Duration, skew time.Duration) func(*Facts) {
	return func(f *Facts) { *of(f) = &skew }
}

func nothing(f *Facts) {
	for i := range f.Selection.Resources {
		f.Selection.Resources[i].Watched = explain.Nowhere
	}
}

func refuse(verb string, watched explain.Watched) func(*Facts) {
	return func(f *Facts) {
		r := &f.Selection.Resources[0]
		r.Watched, r.Forbidden = watched, []explain.Refusal{{Namespace: "a", Verbs: []string{verb}}}
	}
}

func deny(resource string) func(*Facts) {
	return func(f *Facts) {
		for r := range f.Rights {
			if strings.HasPrefix(r.Resource, resource) {
				f.Rights[r] = Answer{}
			}
		}
	}
}

// excludeUnread sets KUBERELAY_EXCLUDE_NAMESPACES for a user who may not list namespaces.
func excludeUnread(f *Facts) {
	f.Settings.Watch.NamespaceSelector, f.Settings.Watch.ExcludeNamespaces = "", config.List{"a"}
	deny("namespaces")(f)
}

func silent(f *Facts) {
	for r := range f.Rights {
		f.Rights[r] = Answer{Err: errFault}
	}
}

// named sets KUBERELAY_NAMESPACES instead of KUBERELAY_NAMESPACE_SELECTOR. allowed says whether the user
// may list the namespace.
func named(f *Facts, allowed bool) {
	f.Settings.Watch.NamespaceSelector, f.Settings.Watch.Namespaces = "", config.List{"a"}
	for _, r := range f.NeededRights() {
		f.Rights[r] = Answer{Allowed: true}
	}
	f.Rights[Right{Verb: "list", Resource: "namespaces", Name: "a"}] = Answer{Allowed: allowed}
}
