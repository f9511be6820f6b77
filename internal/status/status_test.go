package status

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/kuberelay/kuberelay/test/lab/golden"
)

var now = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func ago(d time.Duration) *time.Time {
	t := now.Add(-d)
	return &t
}

func count(n int) *int { return &n }

func count64(n int64) *int64 { return &n }

// well returns the document of a forwarder that has no problem.
func well() Document {
	return Document{
		Time: now, Version: "v1.2.3", Cluster: "prod-eu1", Instance: "kuberelay-6d9f7c5b8-x2x4q_a1",
		Resources: []Resource{
			{
				Name: "configmaps", Version: "v1", State: "synced", Since: ago(3 * time.Hour), Objects: 120, Dirty: count(0),
				ConsistentAsOf: ago(12 * time.Second), LastPublished: ago(4 * time.Minute),
			},
			{
				Name: "deployments.apps", Version: "v1", State: "synced", Since: ago(3 * time.Hour), Objects: 31, Dirty: count(0),
				ConsistentAsOf: ago(41 * time.Second),
			},
		},
		Discovery: []DiscoveryError{}, Unmatched: []Unmatched{}, Selectors: []string{"KUBERELAY_EXCLUDE_NAMESPACES=kube-system"}, Work: []Work{},
		Bus:    Bus{Sink: "nats", State: BusReady},
		Lease:  &Lease{Name: "kuberelay/kuberelay", Leading: true, Holder: "kuberelay-6d9f7c5b8-x2x4q_a1"},
		Memory: Memory{Used: 80 << 20, Limit: 230 << 20},
	}
}

// faults are changes to a document. Each of them must cause exactly the given findings.
var faults = []struct {
	name  string
	fault func(*Document)
	want  []string // level and reason
	says  string
}{
	{"well", func(*Document) {}, nil, "2 resources watched, 151 objects, everything published, consistent as of 41s ago"},
	{"changes on their way", func(d *Document) { d.Resources[0].Dirty, d.OldestUnsent = count(3), ago(time.Second) }, nil, "3 changes on their way"},
	{"deletes of a removed resource on their way", func(d *Document) { d.Resources[0].Dirty, d.UnwatchedDirty = count(3), 2 }, nil, "5 changes on their way"},
	{"deletes of a removed resource unsent", func(d *Document) { d.UnwatchedDirty, d.OldestUnsent = 1, ago(61*time.Second) },
		[]string{"warning unsent_changes"}, "1 object has a change that the bus has not acknowledged"},
	{"starting", func(d *Document) { d.Resources, d.WaitingFor = nil, ForCluster }, []string{"warning starting"}, "the forwarder is starting"},
	{"a cluster that cannot be copied", func(d *Document) { d.Resources, d.WaitingFor, d.Failed = nil, ForCluster, &Error{"no way", now} },
		[]string{"critical cluster_failed"}, "no way"},
	{"a cluster whose new kubeconfig cannot be used", func(d *Document) { d.KubeconfigError = &Error{"not a kubeconfig", now} }, []string{"warning cluster_failed"}, "not a kubeconfig"},
	{"the same, while it waits for the bus", func(d *Document) {
		d.WaitingFor, d.Waiting, d.KubeconfigError = ForBus, "no route", &Error{"not a kubeconfig", now}
	}, []string{"critical bus_unavailable", "warning cluster_failed"}, "no route"},
	{"the same, while it waits for the API server", func(d *Document) {
		d.Resources, d.WaitingFor, d.Waiting, d.KubeconfigError = nil, ForCluster, "401 Unauthorized", &Error{"not a kubeconfig", now}
	}, []string{"critical cluster_unavailable", "warning cluster_failed"}, "401 Unauthorized"},
	{"a source of clusters that cannot be read", func(d *Document) {
		*d = Document{Time: d.Time, WaitingFor: ForCluster, Clusters: []Document{}, Failed: &Error{"no source", now}}
	}, []string{"critical cluster_failed"}, "no source"},
	{"a source of clusters that can no longer be read", func(d *Document) {
		*d = Document{Time: d.Time, Clusters: []Document{*d}, Failed: &Error{"no source", now}}
	}, []string{"warning cluster_failed"}, "no source"},
	{"one of two clusters away", func(d *Document) {
		well, away := *d, *d
		well.Cluster, away.Cluster = "a", "b"
		away.Resources, away.WaitingFor, away.Waiting = nil, ForCluster, "the API server x is unreachable"
		*d = Document{Time: d.Time, Clusters: []Document{well, away}}
	}, []string{"critical cluster_unavailable"}, "b: the API server x is unreachable"},
	{"two clusters well", func(d *Document) { *d = Document{Time: d.Time, Clusters: []Document{*d, *d}} }, nil, "2 clusters, 4 resources watched, 302 objects, everything published"},
	{"API server unavailable", func(d *Document) {
		d.Resources, d.WaitingFor, d.Waiting = nil, ForCluster, "the API server x is unreachable"
	},
		[]string{"critical cluster_unavailable"}, "the API server x is unreachable"},
	{"bus unavailable at the start", func(d *Document) { d.Resources, d.WaitingFor, d.Waiting = nil, ForBus, "dial x" }, []string{"critical bus_unavailable"}, "dial x"},
	{"bus unavailable", func(d *Document) {
		d.Bus.State, d.Bus.Since, d.Bus.Error = BusUnavailable, ago(2*time.Minute), "no\nconnection"
		d.Resources[0].PublishError = &Error{"not sent", now}
		d.Resources[1].ConsistentAsOf = ago(time.Hour)
	}, []string{"critical bus_unavailable"}, "bus unavailable for 2m: no connection"},
	{"standby", func(d *Document) {
		d.Lease.Leading, d.Bus.State = false, BusUnused
		for i := range d.Resources {
			r := &d.Resources[i]
			r.Dirty, r.ConsistentAsOf, r.LastPublished = nil, nil, nil
		}
	}, nil, "standing by, the leader is kuberelay-6d9f7c5b8-x2x4q_a1; 2 resources watched, 151 objects"},
	{"nobody leads", func(d *Document) { d.Lease.Leading, d.Lease.Holder, d.Bus.State = false, "", BusUnused }, []string{"critical no_leader"}, "kuberelay/kuberelay"},
	{"the lease cannot be renewed", func(d *Document) {
		d.Lease.Leading, d.Lease.Holder, d.Bus.State = false, "", BusUnused
		d.Lease.Renewed, d.Lease.RenewError = ago(40*time.Second), "renew the lease: no space"
	}, []string{"critical no_leader"}, "no forwarder is known to hold the lease kuberelay/kuberelay for 40s: renew the lease: no space"},
	{"lease denied", func(d *Document) { d.Lease.Leading, d.Lease.Holder, d.Lease.Error = false, "", "leases is forbidden" },
		[]string{"critical lease_denied"}, "lease kuberelay/kuberelay: leases is forbidden"},
	{"a group fails", func(d *Document) { d.Discovery = []DiscoveryError{{"metrics.k8s.io", "503"}} }, []string{"warning discovery_failing"}, "metrics.k8s.io"},
	{"discovery fails", func(d *Document) { d.Discovery = []DiscoveryError{{"*", "refused"}} }, []string{"critical discovery_failing"}, "discovery fails: refused"},
	{"nothing watched", func(d *Document) { d.Resources = nil }, []string{"critical nothing_watched"}, "KUBERELAY_RESOURCES"},
	{"one forbidden", func(d *Document) { degrade(&d.Resources[0], "forbidden", time.Hour) }, []string{"warning forbidden"}, "access denied to 1 of 2 resources: configmaps (no way)"},
	{"all forbidden", func(d *Document) {
		degrade(&d.Resources[0], "forbidden", time.Hour)
		degrade(&d.Resources[1], "forbidden", time.Hour)
	}, []string{"critical forbidden"}, "access denied to every selected resource"},
	{"one namespace forbidden", func(d *Document) {
		for i := range d.Resources {
			degradeNamespaces(&d.Resources[i], 2, "forbidden")
		}
	}, []string{"warning forbidden"}, "access denied in 1 of 2 namespaces: configmaps (ns0: no way), deployments.apps (ns0: no way)"},
	{"one namespace forbidden, one resource in all", func(d *Document) {
		degradeNamespaces(&d.Resources[0], 2, "forbidden")
		degradeNamespaces(&d.Resources[1], 2, "forbidden", "forbidden")
	}, []string{"warning forbidden"}, "access denied to 2 of 2 resources: configmaps (ns0: no way), deployments.apps (ns0: no way; ns1: no way)"},
	{"all namespaces forbidden", func(d *Document) {
		for i := range d.Resources {
			degradeNamespaces(&d.Resources[i], 2, "forbidden", "forbidden")
		}
	}, []string{"critical forbidden"}, "access denied to every selected resource"},
	{"one namespace forbidden, another failing", func(d *Document) { degradeNamespaces(&d.Resources[0], 3, "forbidden", "failing") },
		[]string{"critical watch_failing", "warning forbidden"}, "lists or watches of 1 of 2 resources fail: configmaps (ns1: no way) (and 1 more)"},
	{"a watch failed just now", func(d *Document) { degrade(&d.Resources[0], "failing", time.Minute) }, []string{"warning watch_failing"}, "1 of 2 resources fail"},
	{"a watch fails", func(d *Document) { degrade(&d.Resources[0], "failing", time.Minute+time.Second) }, []string{"critical watch_failing"}, "configmaps (no way)"},
	{"syncing", func(d *Document) { d.Resources[1].State = "starting" }, []string{"warning syncing"}, "deployments.apps"},
	{"unsent", func(d *Document) { d.Resources[0].Dirty, d.OldestUnsent = count(3), ago(61*time.Second) },
		[]string{"warning unsent_changes"}, "3 objects have changes that the bus has not acknowledged, the oldest for 61s"},
	{"unsent for long", func(d *Document) { d.OldestUnsent = ago(301 * time.Second) }, []string{"critical unsent_changes"}, "for 5m1s"},
	{"refused", func(d *Document) { d.Resources[1].PublishError = &Error{"too large", *ago(time.Minute)} },
		[]string{"warning publish_failing"}, "deployments.apps for 60s: too large"},
	{"too large and refused", func(d *Document) {
		d.Resources[0].PublishError, d.Resources[0].PublishErrorTooLarge = &Error{"shop/big: too large", *ago(time.Minute)}, true
		d.Resources[1].PublishError = &Error{"shop/web: no room", *ago(time.Minute)}
	}, []string{"warning publish_failing", "warning object_too_large"}, "deployments.apps for 60s: shop/web: no room"},
	{"a stuck watch", func(d *Document) { d.Resources[1].ConsistentAsOf = ago(16 * time.Minute) },
		[]string{"warning consistency_point_old"}, "consistency points of 1 of 2 resources have not advanced for 16m: deployments.apps"},
	{"two stuck watches", func(d *Document) {
		d.Resources[0].ConsistentAsOf, d.Resources[1].ConsistentAsOf = ago(16*time.Minute), ago(48*time.Hour)
	},
		[]string{"warning consistency_point_old"}, "consistency points of 2 of 2 resources have not advanced for 2d: deployments.apps, configmaps"},
	{"no point since the first sync", func(d *Document) {
		d.Resources[1].ConsistentAsOf, d.Resources[1].NoPointSince = nil, ago(16*time.Minute)
	},
		[]string{"warning consistency_point_old"}, "consistency points of 1 of 2 resources have not advanced for 16m: deployments.apps"},
	{"no point yet", func(d *Document) {
		d.Resources[1].ConsistentAsOf, d.Resources[1].NoPointSince = nil, ago(15*time.Minute)
	}, nil, "everything published"},
	{"no comparison", func(d *Document) { d.Comparisons = []ComparisonError{{"pods", Error{"403: no", *ago(time.Minute)}}} },
		[]string{"warning comparison_failing"}, "deletes can be missing: pods; pods for 60s: 403: no"},
	{"no comparison for long", func(d *Document) {
		d.Comparisons = []ComparisonError{{"nodes", Error{"503: away", *ago(time.Minute)}}, {"pods", Error{"403: no", *ago(301 * time.Second)}}}
	}, []string{"critical comparison_failing"}, "deletes can be missing: nodes, pods; pods for 5m1s: 403: no"},
	{"bus unavailable, and no comparison", func(d *Document) {
		d.Bus.State, d.Bus.Error, d.Comparisons = BusUnavailable, "no connection", []ComparisonError{{"pods", Error{"not sent", *ago(time.Hour)}}}
	}, []string{"critical bus_unavailable"}, "no connection"},
	{"the filter fails", func(d *Document) { d.Resources[0].FilterError = &Error{"no such key: absent", *ago(time.Hour)} },
		[]string{"warning filter_failing"}, "KUBERELAY_FILTER fails for objects of 1 resource, so these objects are published: configmaps (no such key: absent)"},
	{"metadata only", func(d *Document) { d.Resources[0].Truncated, d.Resources[1].Truncated = 1, 3 },
		[]string{"warning objects_truncated"}, "objects of 2 resources are too large for the bus, which has their metadata only: configmaps (1 state), deployments.apps (3 states)"},
	{"memory", func(d *Document) { d.Memory.Used = 220 << 20 }, []string{"warning memory_low"}, "220 MiB of 230 MiB"},
	{"no memory limit", func(d *Document) { d.Memory = Memory{Used: 1 << 40} }, nil, "everything published"},
	{"a name of nothing", func(d *Document) {
		d.Unmatched = []Unmatched{{"KUBERELAY_RESOURCES", "deploymnts", "deployments.apps"}}
	},
		[]string{"warning setting_unmatched"}, "KUBERELAY_RESOURCES: deploymnts matches nothing; did you mean deployments.apps?"},
	{"a filter of nothing", func(d *Document) { d.Unmatched = []Unmatched{{Setting: "KUBERELAY_FILTER", Entry: "pods"}} },
		[]string{"warning setting_unmatched"}, "KUBERELAY_FILTER selects no object of pods"},
	{"no objects", func(d *Document) { d.Resources[0].Objects, d.Resources[1].Objects = 0, 0 },
		[]string{"warning no_objects"}, "no object is selected by KUBERELAY_EXCLUDE_NAMESPACES=kube-system"},
	{"no objects yet", func(d *Document) {
		d.Resources[0].Objects, d.Resources[1].Objects, d.Resources[1].State = 0, 0, "starting"
	}, []string{"warning syncing"}, "deployments.apps"},
	{"an empty cluster", func(d *Document) { d.Resources[0].Objects, d.Resources[1].Objects, d.Selectors = 0, 0, nil }, nil, "0 objects"},
	{"a bus that can lose", func(d *Document) { d.Bus.Risks = []Risk{{Setting: "x=1", Message: "x=1 (s): lost", Fix: "set x=3"}} },
		[]string{"notice bus_can_lose"}, "everything published"},
	{"a bus that can lose, and memory", func(d *Document) {
		d.Bus.Risks, d.Memory.Used = []Risk{{Setting: "x=1", Message: "x=1 (s): lost", Fix: "set x=3"}}, 220<<20
	}, []string{"warning memory_low", "notice bus_can_lose"}, "220 MiB of 230 MiB"},
	{"two", func(d *Document) {
		d.Memory.Used = 220 << 20
		degrade(&d.Resources[0], "failing", time.Hour)
	}, []string{"critical watch_failing", "warning memory_low"}, "configmaps (no way) (and 1 more)"},
}

func degrade(r *Resource, reason string, d time.Duration) {
	r.State, r.Reason, r.Since, r.WatchError = "degraded", reason, ago(d), &Error{"no way", *ago(d)}
}

// degradeNamespaces degrades one namespace for each reason. all is the number of namespaces.
func degradeNamespaces(r *Resource, all int, reasons ...string) {
	degrade(r, reasons[0], time.Hour)
	r.Namespaces = all
	for i, reason := range reasons {
		name := fmt.Sprintf("ns%d", i)
		r.DegradedNamespaces = append(r.DegradedNamespaces, name)
		r.NamespaceErrors = append(r.NamespaceErrors, NamespaceError{name, reason, Error{"no way", *ago(time.Hour)}})
		if reason == "forbidden" {
			r.ForbiddenNamespaces++
		}
	}
}

func TestJudge(t *testing.T) {
	seen := map[Reason]bool{Unreachable: true, TokenNotReviewed: true} // TestUnanswered covers both
	for _, c := range faults {
		t.Run(c.name, func(t *testing.T) {
			d := well()
			c.fault(&d)
			v := Judge(d).Verdict
			var got []string
			for _, f := range v.Findings {
				got = append(got, string(f.Level)+" "+string(f.Reason))
				seen[f.Reason] = true
				if f.Fix == "" || !strings.Contains(f.See, "#") || strings.Contains(f.Message, "\n") {
					t.Errorf("finding %+v", f)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("findings: got %q, want %q", got, c.want)
			}
			if !strings.Contains(v.Summary, c.says) {
				t.Errorf("summary: got %q, want %q in it", v.Summary, c.says)
			}
			want := OK
			if len(c.want) > 0 {
				level, _, _ := strings.Cut(c.want[0], " ")
				if want = Level(level); want == Notice {
					want = OK
				}
			}
			if v.Level != want {
				t.Errorf("level: got %s, want %s", v.Level, want)
			}
		})
	}
	for _, c := range Causes() {
		if !seen[c.Reason] {
			t.Errorf("no fault has the reason %s", c.Reason)
		}
	}
}

// TestHeadline verifies that a headline contains no error of another program, because its length
// and words are unknown. It also verifies the start time of the findings.
func TestHeadline(t *testing.T) {
	const raw = "error text"
	for _, c := range []struct {
		fault func(*Document)
		want  string
		since *time.Time
	}{
		{func(d *Document) { d.WaitingFor, d.Waiting, d.WaitingSince = ForCluster, raw, ago(time.Minute) }, "the API server is unreachable", ago(time.Minute)},
		{func(d *Document) { d.WaitingFor, d.Waiting, d.WaitingSince = ForBus, raw, ago(time.Minute) }, "the bus is unavailable or refuses the forwarder", ago(time.Minute)},
		{func(d *Document) { d.Bus = Bus{State: BusUnavailable, Since: ago(time.Minute), Error: raw} }, "bus unavailable", ago(time.Minute)},
		{func(d *Document) { d.Lease.Leading, d.Lease.Error = false, raw }, "access denied to the lease kuberelay/kuberelay", nil},
		{func(d *Document) {
			d.Lease.Leading, d.Lease.Holder, d.Lease.Renewed, d.Lease.RenewError = false, "", ago(time.Minute), raw
		}, "no forwarder is known to hold the lease kuberelay/kuberelay", ago(time.Minute)},
		{func(d *Document) { d.Discovery = []DiscoveryError{{"*", raw}} }, "discovery fails", nil},
		{func(d *Document) { d.Discovery = []DiscoveryError{{"metrics.k8s.io", raw}} }, "discovery of the group metrics.k8s.io fails", nil},
		{func(d *Document) { fail(d, "forbidden", raw) }, "access denied to 1 of 2 resources", ago(time.Minute)},
		{func(d *Document) { fail(d, "failing", raw) }, "lists or watches of 1 of 2 resources fail", ago(time.Minute)},
		{func(d *Document) { d.Resources = d.Resources[1:]; fail(d, "failing", raw) }, "lists or watches of 1 of 1 resource fail", ago(time.Minute)},
		{func(d *Document) { d.Resources[0].State, d.Resources[0].Since = "starting", ago(time.Minute) }, "the first list of 1 of 2 resources is not complete", ago(time.Minute)},
		{func(d *Document) { d.Resources[1].ConsistentAsOf = ago(time.Hour) }, "consistency points of 1 of 2 resources have not advanced", ago(time.Hour)},
		{func(d *Document) {
			d.Resources[0].FilterError, d.Resources[1].FilterError = &Error{raw, *ago(time.Minute)}, &Error{raw, *ago(time.Hour)}
		}, "KUBERELAY_FILTER fails for objects of 2 resources, so these objects are published", ago(time.Hour)},
		{func(d *Document) { d.Comparisons = []ComparisonError{{"pods", Error{raw, *ago(time.Minute)}}} }, "the bus cannot be compared with the cluster, so deletes can be missing: pods", ago(time.Minute)},
		{func(d *Document) { d.Resources[1].PublishError = &Error{raw, *ago(time.Minute)} }, "objects of 1 resource cannot be published", ago(time.Minute)},
		{func(d *Document) {
			d.Resources[0].Dirty, d.OldestUnsent, d.Bus.State = count(1), ago(time.Hour), BusUnused
			d.Resources[0].PublishError = &Error{raw, *ago(time.Minute)}
		}, "1 object has a change that the bus has not acknowledged", ago(time.Hour)},
		{func(d *Document) { d.Memory.Used = 220 << 20 }, "memory is near its limit: 220 MiB of 230 MiB", nil},
	} {
		d := well()
		c.fault(&d)
		f := Judge(d).Verdict.Findings[0]
		if f.Headline != c.want || (f.Since == nil) != (c.since == nil) || f.Since != nil && !f.Since.Equal(*c.since) {
			t.Errorf("got %q since %v, want %q since %v", f.Headline, f.Since, c.want, c.since)
		}
		if f.Reason != MemoryLow && f.Reason != Syncing && f.Reason != NotConsistent && !strings.Contains(f.Message, raw) {
			t.Errorf("the message of %s lacks the error: %q", f.Reason, f.Message)
		}
	}
	if f := Unanswered(errors.New(raw), now).Verdict.Findings[0]; f.Headline != "the forwarder does not respond" {
		t.Errorf("got %q", f.Headline)
	}
}

func fail(d *Document, reason, message string) {
	degrade(&d.Resources[0], reason, time.Minute)
	d.Resources[0].WatchError.Message = message
}

func TestUnanswered(t *testing.T) {
	d := Unanswered(errors.New("connection refused"), now)
	if d.Verdict.Level != Critical || len(d.Verdict.Findings) != 1 || d.Verdict.Findings[0].Reason != Unreachable || !strings.Contains(d.Verdict.Summary, "connection refused") {
		t.Errorf("got %+v", d.Verdict)
	}
	v := NotReviewed(errors.New("503"), now).Verdict
	if v.Level != Critical || v.Findings[0].Reason != TokenNotReviewed || v.Summary != "the forwarder cannot review the token: 503" || !strings.HasSuffix(v.Findings[0].See, "#cannot-review-the-token-of-a-request") {
		t.Errorf("got %+v", v)
	}
}

func TestCode(t *testing.T) {
	for l, want := range map[Level]int{OK: 0, Notice: 0, Warning: 1, Critical: 2, "unknown": 2} {
		if got := l.Code(); got != want {
			t.Errorf("%s: got %d, want %d", l, got, want)
		}
	}
}

// documents returns the documents of the golden files.
func documents() map[string]Document {
	sick := well()
	sick.Bus = Bus{Sink: "kafka", State: BusUnavailable, Since: ago(6 * time.Minute), Error: "dial tcp 10.0.0.7:9092: connection refused", Queued: 3, ForeignEvents: 2}
	sick.OldestUnsent, sick.Resources[0].Dirty = ago(6*time.Minute), count(3)
	sick.Resources[0].PublishError = &Error{"publish x: not sent", *ago(5 * time.Minute)}
	degrade(&sick.Resources[1], "forbidden", time.Hour)
	sick.Resources[1].ConsistentAsOf, sick.Resources[1].Objects = nil, 0
	sick.Unmatched = []Unmatched{{"KUBERELAY_RESOURCES", "deploymnts", "deployments.apps"}}
	risky := well()
	risky.Bus.Risks = []Risk{{Setting: "num_replicas=1", Of: []string{"KUBERELAY"}, Message: "num_replicas=1 (KUBERELAY): a server that fails loses it", Fix: "use 3"}}
	standby := well()
	standby.Lease.Leading, standby.Bus.State = false, BusUnused
	for i := range standby.Resources {
		r := &standby.Resources[i]
		r.Dirty, r.ConsistentAsOf, r.LastPublished = nil, nil, nil
	}
	syncing := well()
	syncing.Work = []Work{
		{Work: "list", Unit: "resources", Since: now, Done: 1, Total: count64(2)},
		{Work: "first_sync", Unit: "objects", Since: now, Done: 1200, Total: count64(20_000), PerSecond: 309.9, SecondsLeft: count64(61)},
		{Work: "first_sync", Unit: "objects", Since: now, Done: 3, Total: count64(4), Growing: true},
		{Work: "takeover", Unit: "records", Since: now},
	}
	return map[string]Document{
		"syncing": Judge(syncing), "risky": Judge(risky),
		"ok": Judge(well()), "critical": Judge(sick), "standby": Judge(standby),
		"unanswered": Unanswered(errors.New(`Get "http://localhost:8080/api/v1/status": connection refused | no`), now),
	}
}

func TestPrinters(t *testing.T) {
	for name, d := range documents() {
		for format, write := range Printers() {
			t.Run(name+"."+format, func(t *testing.T) {
				var b strings.Builder
				if err := write(&b, d); err != nil {
					t.Fatal(err)
				}
				golden.Check(t, name+"."+format, b.String())
				if format == "prometheus" {
					checkExposition(t, b.String())
				}
				if format == "nagios" && (strings.Count(b.String(), "\n") != 1 || strings.Count(b.String(), "|") > 1) {
					t.Errorf("%q is not one line with one separator", &b)
				}
			})
		}
	}
}

// TestPrintersAreSafe verifies that the error of a bus or of an aggregated API server cannot
// control the terminal.
func TestPrintersAreSafe(t *testing.T) {
	d := well()
	d.Bus.State, d.Bus.Error = BusUnavailable, "\x1b]0;title\a\u202e"
	for format, write := range Printers() {
		var b strings.Builder
		if err := write(&b, Judge(d)); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsFunc(b.String(), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
			t.Errorf("%s: something controls the terminal: %q", format, &b)
		}
	}
}

// checkExposition parses the text as Prometheus does.
func checkExposition(t *testing.T, text string) {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(families["kuberelay_status_finding"].GetMetric()); n != len(Causes()) {
		t.Errorf("%d reasons, want %d", n, len(Causes()))
	}
}

func TestFixNamesTheBusInUse(t *testing.T) {
	for sink, want := range map[string]string{"nats": "KUBERELAY_NATS_URL", "kafka": "KUBERELAY_KAFKA_BROKERS"} {
		d := Judge(Document{Bus: Bus{Sink: sink, State: BusUnavailable, Error: "refused"}})
		var fixes []string
		for _, f := range d.Verdict.Findings {
			if f.Reason == BusIsUnavailable {
				fixes = append(fixes, f.Fix)
			}
		}
		if len(fixes) != 1 || !strings.Contains(fixes[0], want) || strings.Contains(fixes[0], " or ") {
			t.Errorf("%s: got %q, want only %s", sink, fixes, want)
		}
	}
}

// TestOneChangeOfClusters verifies the summary of several clusters with a single change. It used to be "1
// changes on their way".
func TestOneChangeOfClusters(t *testing.T) {
	one := 1
	d := Judge(Document{Clusters: []Document{{Cluster: "a", Resources: []Resource{{Name: "pods", State: "synced", Objects: 7, Dirty: &one}}}}})
	if got, want := d.Verdict.Summary, "1 cluster, 1 resource watched, 7 objects, 1 change on its way"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
