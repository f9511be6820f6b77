package check

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/discovery"
)

// TestRun verifies the decisions. Each case changes one fact of a deployment in which every check
// that applies is ok.
func TestRun(t *testing.T) {
	seen := map[string]map[Status]bool{}
	note := func(r Report) map[string]Result {
		by := map[string]Result{}
		for _, c := range r.Checks {
			by[c.ID] = c
			if seen[c.ID] == nil {
				seen[c.ID] = map[Status]bool{}
			}
			seen[c.ID][c.Status] = true
		}
		return by
	}
	for _, sink := range []string{config.SinkNATS, config.SinkKafka} {
		r := Run(well(sink))
		for _, c := range note(r) {
			if c.Status != OK && c.Status != Skipped || c.Message == "" || c.Fix != "" || c.See != "" {
				t.Errorf("all is well on %s: %+v", sink, c)
			}
		}
		if r.Status != OK || len(r.Checks) < 30 {
			t.Errorf("all is well on %s: %s, %s", sink, r.Status, r.Summary)
		}
	}
	for _, c := range cases() {
		t.Run(c.id+"/"+c.name, func(t *testing.T) {
			sink := c.sink
			if sink == "" {
				sink = config.SinkNATS
			}
			f := well(sink)
			c.change(&f)
			r := Run(f)
			got := note(r)[c.id]
			if got.Status != c.want || !strings.Contains(got.Message+"; "+got.Fix, c.words) {
				t.Errorf("got %+v, want %s with %q", got, c.want, c.words)
			}
			switch bad := c.want.Code() > 0; {
			case bad && (got.Fix == "" || got.See != page+c.id || r.Status.Code() < c.want.Code()):
				t.Errorf("the result lacks a fix or a link, or the report has a better status: %+v, %s", got, r.Status)
			case !bad && got.Fix+got.See != "":
				t.Errorf("with a fix: %+v", got)
			}
		})
	}
	for _, c := range All() {
		if !seen[c.ID][OK] || !seen[c.ID][Warning] && !seen[c.ID][Failed] {
			t.Errorf("%s needs a case in which it is ok, and one in which it is not; it has %v", c.ID, seen[c.ID])
		}
	}
}

// TestRunWithoutFacts verifies that no check is ok without the observation that it needs, and that
// no check panics.
func TestRunWithoutFacts(t *testing.T) {
	for _, sink := range []string{config.SinkNATS, config.SinkKafka, config.SinkStdout} {
		f := Facts{KubeErr: errFault, BusErr: errFault, Pre: true}
		f.Settings.Event.Sink = sink
		f.Settings.Kafka.Idempotent = true
		for _, c := range Run(f).Checks {
			if c.Status == OK && c.ID != configuration && c.ID != "kafka-idempotence" {
				t.Errorf("%s: %+v", sink, c)
			}
		}
	}
}

// TestClusters verifies that the report of several clusters has the worst status, and a section for
// each cluster.
func TestClusters(t *testing.T) {
	broken := well(config.SinkNATS)
	broken.Cluster, broken.KubeErr = "b", errFault
	fine := well(config.SinkNATS)
	fine.Cluster = "a"
	r := Clusters([]Report{Run(fine), Run(broken)})
	if r.Status != Failed || r.Summary != "2 clusters: 1 ok, 0 with a warning, 1 failed" {
		t.Errorf("got %s: %s", r.Status, r.Summary)
	}
	var b strings.Builder
	if err := Printers()["table"](&b, r); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"FAILED: 2 clusters", "\ncluster a: OK: ", "\ncluster b: FAILED: ", "fault"} {
		if !strings.Contains(b.String(), part) {
			t.Errorf("%q is not in:\n%s", part, b.String())
		}
	}
	if r := Clusters(nil); r.Status != OK || r.Summary != "the source has no cluster" {
		t.Errorf("got %s: %s", r.Status, r.Summary)
	}
}

// TestSections verifies that every check has a section in docs/troubleshooting.md, and that every
// section has a check.
func TestSections(t *testing.T) {
	b, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(b), "\n## The checks of forwarder check\n")
	text, _, _ = strings.Cut(text, "\n## ")
	var sections, ids []string
	for _, match := range regexp.MustCompile(`(?m)^### (.*)$`).FindAllStringSubmatch(text, -1) {
		sections = append(sections, match[1])
	}
	page := strings.ToLower(string(b)) // an anchor is in lower case, at any level of heading
	for _, c := range All() {
		ids = append(ids, c.ID)
		if n := len(regexp.MustCompile(`(?m)^#+ `+c.ID+`$`).FindAllString(page, -1)); n != 1 {
			t.Errorf("docs/troubleshooting.md has %d headings %q, want 1, so that the link works", n, c.ID)
		}
		if !regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`).MatchString(c.ID) {
			t.Errorf("%q is not its own anchor", c.ID)
		}
	}
	if !found || !slices.Equal(sections, ids) {
		t.Errorf("the sections are\n%q\nand the checks\n%q", sections, ids)
	}
	for section := range strings.SplitSeq(text, "\n### ") {
		name, body, _ := strings.Cut(section, "\n")
		if slices.Contains(ids, name) && !strings.Contains(body, "**Fix:**") && !strings.HasPrefix(strings.TrimSpace(body), "See [") {
			t.Errorf("the section %s has no fix", name)
		}
	}
}

func TestPrinters(t *testing.T) {
	f := well(config.SinkNATS)
	f.Server.Version = "v1.20.0"
	f.ForwarderErr, f.Forwarder = errFault, nil
	r := Run(f)
	var table, json bytes.Buffer
	if err := Printers()["table"](&table, r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"FAILED: ", "\n\nAPI server\n", "  warning  api-server-version", "fix: upgrade Kubernetes to 1.25 or later\n",
		"see: https://github.com/kuberelay/kuberelay/blob/main/docs/troubleshooting.md#api-server-version\n", "  failed   forwarder-status",
	} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table has no %q:\n%s", want, &table)
		}
	}
	if err := Printers()["json"](&json, r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"status": "failed"`, `"id": "lease"`, `"group": "API server"`, `"fix": "upgrade`} {
		if !strings.Contains(json.String(), want) {
			t.Errorf("the JSON has no %q:\n%s", want, &json)
		}
	}
}

func TestListAdd(t *testing.T) {
	for answer, want := range map[string]int64{
		`{"items": [{}, {}]}`: 2,
		`{"metadata": {"continue": "x", "remainingItemCount": 40}, "items": [{}, {}]}`:      42,
		`{"metadata": {"continue": "x"}, "items": [{}, {}]}`:                                -1,
		`{"metadata": {"continue": "", "remainingItemCount": null}, "items": [{"a": "b"}]}`: 1,
	} {
		var l List
		if err := l.Add([]byte(answer)); err != nil || l.Objects != want {
			t.Errorf("%s: %+v, %v, want %d objects", answer, l, err, want)
		}
	}
	l := List{}
	for _, answer := range []string{`{"metadata": {"continue": "x"}, "items": [{"a":1}]}`, `{"items": [{"a":"longer"}]}`} {
		if err := l.Add([]byte(answer)); err != nil {
			t.Fatal(err)
		}
	}
	if want := (List{Objects: -1, Sampled: 2, Bytes: 7 + 14, Largest: 14}); l != want {
		t.Errorf("got %+v, want %+v", l, want)
	}
	if l.Add([]byte("<html>")) == nil {
		t.Error("a response that is not a list causes no error")
	}
}

// TestWatchesNamespaces verifies that the check and the forwarder agree on whether the forwarder watches
// namespaces.
func TestWatchesNamespaces(t *testing.T) {
	for n := range 8 {
		var f Facts
		var s discovery.NamespaceSelection
		if n&1 > 0 {
			f.Settings.Watch.NamespaceSelector, s.Selector = "a=b", labels.SelectorFromSet(labels.Set{"a": "b"})
		}
		if n&2 > 0 {
			f.Settings.Watch.Namespaces, s.Include = config.List{"a"}, []string{"a"}
		}
		if n&4 > 0 {
			f.Settings.Watch.ExcludeNamespaces, s.Exclude = config.List{"b"}, []string{"b"}
		}
		if got, want := f.watchesNamespaces(), discovery.NewNamespaces(s).NeedsWatch(); got != want {
			t.Errorf("%+v: got %t, want %t", s, got, want)
		}
	}
}
