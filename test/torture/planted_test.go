package torture

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// scenario is a sequence of steps in which some planted bugs must have an effect.
type scenario struct {
	name     string
	bugs     []string
	settings settings
	more     []map[string]string // variables of the first and second forwarder
	play     func(*script)
	rests    bool // the forwarders are checked at rest at the end
}

// usual are settings with long intervals, so that no resync or refresh repairs the effect of a bug.
var usual = settings{
	configuration: configuration{namespaces: true, topic: topicName},

	sink: onNATS, history: manyMessages, workers: 4, inFlight: 4096,
	resync: 10 * time.Minute, refresh: 10 * time.Minute, retention: 24 * time.Hour,
}

// plays is the maximum number of times that a scenario is played with a bug. One play can miss a bug, because its
// effect depends on the partitions of the objects (and so on the name of the world) and on the order of the
// acknowledgements.
const plays = 2

// TestPlantedBugs_Slow tests the tests. It plays each scenario with the unchanged forwarder, which must
// pass, and with each planted bug of the scenario, which the checks must find.
func TestPlantedBugs_Slow(t *testing.T) {
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Run("as it is", func(t *testing.T) {
				w := newWorld(t, s.settings, "", s.more...)
				err := w.play(s, settle)
				if err != nil {
					t.Error(err)
					w.showLogs()
				}
			})
			for _, bug := range s.bugs {
				t.Run(bug, func(t *testing.T) {
					for range plays {
						w := newWorld(t, s.settings, bug, s.more...)
						err := w.play(s, buggySettle)
						var wrong *wrongError
						switch {
						case errors.As(err, &wrong):
							t.Logf("found: %s", wrong.problems[0])
							return
						case err != nil:
							t.Errorf("could not look for the bug: %v", err)
							w.showLogs()
							return
						}
						t.Log("the bug was not found")
					}
					t.Errorf("the bug was not found in %d plays", plays)
				})
			}
		})
	}
}

// play plays a scenario and checks the result.
func (w *world) play(s scenario, settle time.Duration) error {
	sc := &script{world: w}
	s.play(sc)
	if sc.err != nil {
		return sc.err
	}
	err := w.check(w.t.Context(), settle)
	if err == nil && s.rests {
		err = w.rest(w.t.Context(), quickWindow)
	}
	return err
}

// buggySettle is the maximum wait for a forwarder with a bug to converge, which it must not do. The
// scenario has already waited for the forwarder to become idle.
const buggySettle = 3 * time.Second

// TestEveryPlantedBugIsLookedFor verifies that some scenario looks for the bug of every patch, and
// that some fault uses every failpoint in the code.
func TestEveryPlantedBugIsLookedFor(t *testing.T) {
	planted := map[string][]string{"bugs": plantedBugs(t)}
	call := regexp.MustCompile(`failpoint\.Hit\("([a-z-]+)"\)`)
	for _, dir := range []string{"../../internal", "../../cmd"} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" {
				return err
			}
			text, err := os.ReadFile(path)
			for _, m := range call.FindAllStringSubmatch(string(text), -1) {
				planted["failpoints"] = append(planted["failpoints"], m[1])
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	looked := map[string][]string{"bugs": nil, "failpoints": nil}
	for _, s := range scenarios {
		looked["bugs"] = append(looked["bugs"], s.bugs...)
	}
	for _, k := range slices.Concat(natsKinds, kafkaKinds) {
		if point, ok := strings.CutPrefix(k.felt, "failpoint "); ok {
			looked["failpoints"] = append(looked["failpoints"], point)
		}
	}
	for what, of := range looked {
		slices.Sort(planted[what])
		slices.Sort(of)
		if got, want := slices.Compact(of), slices.Compact(planted[what]); !slices.Equal(got, want) {
			t.Errorf("%s: the tests have %v, the code %v", what, got, want)
		}
	}
	if least := 12; len(looked["bugs"]) < least {
		t.Errorf("%d bugs are planted, want %d at least", len(looked["bugs"]), least)
	}
}
