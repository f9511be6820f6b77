package report

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode"

	"github.com/kuberelay/kuberelay/test/lab/golden"
)

func hostile() Report {
	r := Report{
		Cluster: "prod", Objects: 20013, Messages: 41230, Position: 61002, ResourceVersion: "1234567",
		Resources: []Resource{
			{Resource: "clusterroles.rbac.authorization.k8s.io", Version: "v1", ResourceVersion: "1234567", NoPoint: "the bus has no consistency point of it"},
			{Resource: "configmaps", Version: "v1", ResourceVersion: "1234567", NoPoint: "list: \x1b", Settled: 2},
			{Resource: "roles.rbac.authorization.k8s.io", Version: "v1", Objects: 20013, ResourceVersion: "1234567", Point: &Point{ResourceVersion: "1234560", Age: 83.4}},
			{Resource: "roles.example.com", Version: "v1", ResourceVersion: "1234567", NoPoint: "the bus has no consistency point of it"},
			{Resource: "widgets.example.com", Version: "v1", ResourceVersion: "1234567", Point: &Point{ResourceVersion: "1234561", Age: 0.4}},
		},
		OutOfScope: 1, InMotion: 2, Unmatched: []string{"widgets.example.com"},
		Settings: []string{"KUBERELAY_FILTER", "KUBERELAY_NAMESPACES"},
		Unlisted: []Unlisted{{"pods", "list pods: pods is forbidden\x1b[2J"}},
		Problems: []Problem{
			{Kind: Misordered, Resource: "configmaps", Namespace: "default", Name: "web", Bus: "7", Position: 12, Detail: "the version falls from 9 to 7"},
			{Kind: Missing, Resource: "configmaps", Namespace: "default", Name: "web", Cluster: "9", Detail: "the bus has no event of it"},
			{Kind: Stale, Resource: "roles.rbac.authorization.k8s.io", Namespace: "default", Name: "\x1b[31msystem:evil\u202e\u009b\n", Cluster: "9", Bus: "7", Position: 13, Detail: "the bus has uid \"\x1b\", the cluster \"b\""},
			{Kind: Extra, Resource: "clusterroles.rbac.authorization.k8s.io", Name: "two words", Bus: "7", Position: 14, Detail: "x", Point: "1234560"},
			{Kind: Misordered, Resource: "configmaps", Bus: "", Position: 15, Detail: "the marker occurs twice"},
		},
	}
	r.Sort()
	return r
}

func TestTable(t *testing.T) {
	var b bytes.Buffer
	if err := hostile().WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	checkGolden(t, "report.txt", b.String())
}

func TestJSON(t *testing.T) {
	r := hostile()
	var b bytes.Buffer
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	checkGolden(t, "report.json", b.String())
	var back Report
	if err := json.Unmarshal(b.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back, r) {
		t.Errorf("got back %+v, want %+v", back, r)
	}
}

// checkGolden compares got with a golden file, and verifies that got is printable.
func checkGolden(t *testing.T, name, got string) {
	t.Helper()
	golden.Check(t, name, got)
	if strings.ContainsFunc(got, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
		t.Errorf("%q does not print", got)
	}
}

func TestSummary(t *testing.T) {
	for _, tc := range []struct {
		report Report
		want   string
	}{
		{Report{}, "clean: 0 differences of state in 0 objects, 0 problems of order or form in 0 messages; stream up to 0"},
		{Report{Objects: 1, Messages: 1, Position: 999, ResourceVersion: "1000"},
			"clean: 0 differences of state in 1 object, 0 problems of order or form in 1 message; stream up to 999, cluster at 1,000"},
		// An earlier summary began with "0 differences" and hid problems of messages.
		{Report{Objects: 1523, Messages: 1583, Problems: []Problem{{Kind: Malformed}, {Kind: Misordered}, {Kind: Misordered}}},
			"not clean: 0 differences of state in 1,523 objects, 3 problems of order or form in 1,583 messages; stream up to 0"},
		{Report{Unlisted: []Unlisted{{}}},
			"not everything was read: 0 differences of state in 0 objects, 0 problems of order or form in 0 messages; stream up to 0"},
		{Report{Objects: 1234567, Messages: 100, Position: 12345, ResourceVersion: "x\n", Problems: []Problem{{Kind: Missing}, {Kind: Malformed}, {Kind: Misordered}}},
			`not clean: 1 difference of state in 1,234,567 objects, 2 problems of order or form in 100 messages; stream up to 12,345, cluster at "x\n"`},
	} {
		if got := tc.report.Summary(); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}

// TestUnknownCluster verifies that the table hints at a wrong cluster name if the bus has no message of
// the cluster.
func TestUnknownCluster(t *testing.T) {
	const hint = `the bus has no events of cluster "typo": check KUBERELAY_CLUSTER_NAME (and `
	missing := []Problem{{Kind: Missing}}
	for _, tc := range []struct {
		report Report
		want   string // "" for no hint
	}{
		{Report{Cluster: "typo", Objects: 1, Problems: missing}, hint + "KUBERELAY_NATS_SUBJECT_PREFIX)\n"},
		{Report{Cluster: "typo", Objects: 1, Problems: missing, Partitions: []Partition{{}}}, hint + "KUBERELAY_KAFKA_TOPIC)\n"},
		{Report{Cluster: "prod", Objects: 2, Messages: 1, Problems: missing}, ""},
		{Report{Cluster: "empty"}, ""},
	} {
		var b strings.Builder
		if err := tc.report.WriteTable(&b); err != nil {
			t.Fatal(err)
		}
		if got := b.String(); !strings.Contains(got, tc.want) || tc.want == "" && strings.Contains(got, "has no events") {
			t.Errorf("got %q, want %q in it", got, tc.want)
		}
	}
}

func TestSettings(t *testing.T) {
	var b strings.Builder
	if err := (Report{Settings: []string{"KUBERELAY_NAMESPACES"}}).WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	if got, want := b.String(), "KUBERELAY_NAMESPACES differs from the forwarder's: run verify with the environment of the forwarder\nclean: "; !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestReportClean(t *testing.T) {
	for _, tc := range []struct {
		report Report
		want   bool
	}{
		{Report{}, true},
		{Report{Settings: []string{"KUBERELAY_NAMESPACES"}}, true},
		{Report{OutOfScope: 1, InMotion: 1, Unmatched: []string{"x"}}, true},
		{Report{Problems: []Problem{{}}}, false},
		{Report{Unlisted: []Unlisted{{}}}, false},
	} {
		if got := tc.report.Clean(); got != tc.want {
			t.Errorf("%+v: got %t", tc.report, got)
		}
	}
}
