package simulate

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/test/harness"
)

// planted lists the bugs of the torture suite that are in the core. Its other bugs are in the
// informers, the Kafka code, discovery, leader election, or the code that connects these parts.
var planted = []string{
	"acknowledge-before-publish", "adopt-position-blindly", "compare-with-last-seen", "delete-hides-equal-version",
	"deselected-is-deleted", "equal-version-is-unchanged", "forget-deselected", "forget-uid", "give-up", "ignore-digest",
	"ignore-epoch", "missing-is-deleted", "out-of-scope-is-deleted", "overwrite-newer", "publish-unchanged", "random-ids",
	"refresh-all-the-time", "skip-synced", "trust-foreign",
}

// plantedInTakeover lists the bugs of the torture suite that are in the decisions of a takeover.
var plantedInTakeover = []string{"only-what-survived", "trust-any-record", "trust-checkpoint"}

// foundOnKafka lists the bugs in the bugs directory that the simulator finds sooner on Kafka.
var foundOnKafka = []string{"handler-behind-comparison", "removal-is-foreign", "removal-is-not-attempted"}

// TestPlantedBugs_Slow verifies that the simulator finds each planted bug, and logs how many histories it
// needs. The bugs directory contains bugs that the simulator once found in the forwarder, and bugs
// that were added to show that one of the oracle's checks detects them. The log names the story if the failing
// history follows one.
func TestPlantedBugs_Slow(t *testing.T) {
	patches, err := filepath.Glob(filepath.Join("bugs", "*.patch"))
	if err != nil || len(patches) == 0 {
		t.Fatalf("no patches: %v", err)
	}
	for _, bug := range slices.Concat(planted, plantedInTakeover) {
		patches = append(patches, filepath.Join("..", "torture", "bugs", bug+".patch"))
	}
	for _, patch := range patches {
		bug := strings.TrimSuffix(filepath.Base(patch), ".patch")
		t.Run(bug, func(t *testing.T) {
			dir := t.TempDir()
			overlay, err := harness.Patch(t.Context(), patch, dir)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, "simulate")
			if out, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "-o", file, "./run").CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			sink := NATS
			if slices.Contains(plantedInTakeover, bug) || slices.Contains(foundOnKafka, bug) {
				sink = Kafka
			}
			out, err := exec.CommandContext(t.Context(), file, "-sink", string(sink), "-seeds", "60000", "-story=false").CombinedOutput()
			_, found, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
			if err == nil || !regexp.MustCompile(`^seed \d+ fails, after \d+ histories( \(it follows the story [a-z-]+\))?: `).MatchString(found) {
				t.Errorf("no history breaks a rule: %v\n%s", err, out)
				return
			}
			t.Log(found)
		})
	}
}
