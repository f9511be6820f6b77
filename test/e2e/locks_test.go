package e2e

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/test/harness"
)

// maxLocks limits the locks that the forwarder's own code takes for one update, from the watch to the
// record of the acknowledgement. On Kafka, this includes the batches of the event and of its checkpoint
// record. The limits are a little above the present counts, 12 and 32, because on a slow machine some locks
// that are taken at intervals count too.
var maxLocks = map[string]float64{"nats": 14, "kafka": 36}

// TestLocksOfAnUpdate_Slow counts the locks that the forwarder takes for an update, with the execution
// counts of a build for test coverage. The difference between two runs leaves out the locks of the start
// and of the end.
func TestLocksOfAnUpdate_Slow(t *testing.T) {
	const module = "github.com/kuberelay/kuberelay/"
	covered := buildProgram(t, "-cover", "-covermode=atomic", "-coverpkg="+module+"internal/...,"+module+"cmd/...", "../../cmd/forwarder")
	const few, many = 100, 500
	taken := map[string]map[int]map[string]int{"nats": {}, "kafka": {}}
	for _, n := range []int{few, many} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			onBothBuses(t, func(t *testing.T, bus *anyBus) {
				taken[filepath.Base(t.Name())][n] = locksTaken(t, bus, covered, many, n)
			})
		})
	}
	for bus, of := range taken {
		total, report := 0.0, []string(nil)
		for at, n := range of[many] {
			each := float64(n-of[few][at]) / (many - few)
			if each >= 0.02 {
				report = append(report, fmt.Sprintf("%5.2f %s", each, at))
			}
			total += math.Round(each) // leaves out the locks that are taken at intervals
		}
		slices.Sort(report)
		slices.Reverse(report)
		t.Logf("%.0f locks for each update on %s:\n%s", total, bus, strings.Join(report, "\n"))
		if total < 5 || total > maxLocks[bus] {
			t.Errorf("got %.0f locks for each update on %s, want at most %.0f, and at least 5 if the count is complete", total, bus, maxLocks[bus])
		}
	}
}

// locksTaken runs a forwarder that publishes updates of n of the objects, and returns how often it took each
// lock.
func locksTaken(t *testing.T, bus *anyBus, binary string, objects, n int) map[string]int {
	t.Helper()
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := quietNamespace(t, u)
	for i := range objects {
		u.create(configMaps, namespace, configMap(fmt.Sprint("c", i), "1"))
	}
	address, err := harness.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	f := &forwarder{t: t, watched: true, Forwarder: harness.New(harness.Options{
		Binary: binary, Dir: t.TempDir(), Address: address, Kubeconfig: cp.Kubeconfig(), NATSURL: bus.url, Cluster: clusterName,
		Set: merged(map[string]string{"RESOURCES": "configmaps", "NAMESPACES": namespace, "RESOLVED_INTERVAL": "0s", "LOG_LEVEL": "info"}, bus.set),
	})}
	t.Cleanup(f.kill)
	counts := t.TempDir()
	if err := f.Start("GOCOVERDIR=" + counts); err != nil {
		t.Fatal(err)
	}
	f.idle()
	before := f.metric("kuberelay_events_published_total")
	for i := range n {
		u.label(configMaps, namespace, fmt.Sprint("c", i), "2")
	}
	f.reaches("kuberelay_events_published_total", before+float64(n))
	f.idle()
	if got := f.metric("kuberelay_events_published_total") - before; got != float64(n) {
		t.Fatalf("%v events were published, want %d", got, n)
	}
	if err := f.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	profile := filepath.Join(counts, "profile")
	if out, err := exec.Command("go", "tool", "covdata", "textfmt", "-i="+counts, "-o", profile).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return locksIn(t, profile)
}

// coverBlock is a line of a coverage profile, as "go help testflag" and golang.org/x/tools/cover define it: the
// file, the first line and column, the last line and column, the number of statements, and the count.
var coverBlock = regexp.MustCompile(`^github\.com/kuberelay/kuberelay/(.+):(\d+)\.(\d+),(\d+)\.(\d+) \d+ (\d+)$`)

// locksIn returns the count of every statement that takes a lock, by its file, line and text.
func locksIn(t *testing.T, profile string) map[string]int {
	t.Helper()
	f, err := os.Open(profile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	type position struct{ line, column int }
	type block struct {
		from, to position
		count    int
	}
	blocks := map[string][]block{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		m := coverBlock.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		var n [5]int
		for i, text := range m[2:] {
			n[i], _ = strconv.Atoi(text)
		}
		blocks[m[1]] = append(blocks[m[1]], block{position{n[0], n[1]}, position{n[2], n[3]}, n[4]})
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	taken := map[string]int{}
	lock := regexp.MustCompile(`\.R?Lock\(\)`)
	for file, of := range blocks {
		text, err := os.ReadFile(filepath.Join("..", "..", file))
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			column := lock.FindStringIndex(line)
			if column == nil || strings.HasPrefix(strings.TrimSpace(line), "//") {
				continue
			}
			at := position{i + 1, column[0] + 1}
			inner := block{}
			for _, b := range of { // the innermost block, which begins last
				begins := b.from.line < at.line || b.from.line == at.line && b.from.column <= at.column
				ends := b.to.line > at.line || b.to.line == at.line && b.to.column > at.column
				later := b.from.line > inner.from.line || b.from.line == inner.from.line && b.from.column > inner.from.column
				if begins && ends && later {
					inner = b
				}
			}
			taken[fmt.Sprintf("%s:%d %s", file, i+1, strings.TrimSpace(line))] = inner.count
		}
	}
	return taken
}
