package torture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// The operations that change the selected namespaces, in plans that select by the label of a team
const (
	leaveTeam opVerb = "unlabel-namespace"
	joinTeam  opVerb = "label-namespace"
	scatter   opVerb = "unlabel-crowd" // all namespaces but the plan's own
	gather    opVerb = "label-crowd"
	stranger  opVerb = "create-namespace-unlabeled"
)

// teamLabel is the label that adds a namespace to the team of a world. Its value names the world.
const teamLabel = "torture-team"

// watchedOneByOne is the maximum number of selected namespaces that a forwarder watches one by one
// when it starts. It watches more namespaces with a single watch. A running forwarder switches between
// the two at half and at twice this number.
const watchedOneByOne = 10

// teamSettings draws how namespaces are selected: in a third of the plans by label. Half of these
// plans select too many namespaces to watch them one by one.
func (g *generator) teamSettings() {
	s := &g.plan.settings
	s.byTeam = g.IntN(3) == 0
	s.crowd = []int{0, 0, 4, watchedOneByOne, watchedOneByOne + 1, 2*watchedOneByOne - 1}[g.IntN(6)]
	s.tells = g.IntN(2) == 0
}

// teamOp draws a change of namespace labels.
func (g *generator) teamOp() op {
	o := op{do: []opVerb{leaveTeam, leaveTeam, joinTeam, joinTeam, joinTeam}[g.IntN(5)], target: target{resource: namespaces, name: g.namespace()}}
	if g.plan.settings.crowd > 0 && g.IntN(6) == 0 {
		o.do = []opVerb{scatter, gather}[g.IntN(2)]
		o.target.name = "crowd"
	}
	return o
}

// flips draws changes of namespace labels that a fault makes while no forwarder watches.
func (g *generator) flips() []act {
	home, other := "a", "b"
	if g.IntN(2) == 0 {
		home, other = other, home
	}
	flip := func(do opVerb, name string) act { return act{do: change, arg: string(do) + " " + name} }
	return [][]act{
		{flip(leaveTeam, home)},
		{flip(leaveTeam, home), flip(joinTeam, other)},
		{flip(leaveTeam, home), flip(joinTeam, home)},
		{flip(leaveTeam, home), flip(scatter, "crowd")},
		{flip(joinTeam, home), flip(gather, "crowd"), flip(leaveTeam, other)},
		{flip(leaveTeam, home), flip(removeAll, home), {do: comeBack, arg: string(stranger) + " " + home}},
		{flip(removeAll, home), {do: comeBack, arg: string(stranger) + " " + home}, flip(joinTeam, home)},
	}[g.IntN(7)]
}

// team returns the label's value in a world.
func (u *user) team() string { return strings.TrimSuffix(u.home, "-") }

// homes returns the namespaces of the user's objects.
func (u *user) homes() []string { return []string{u.home + "a", u.home + "b"} }

// crowdOf returns the names of the namespaces that worlds share. The suite creates them only once,
// because the controller manager takes a while to remove a namespace.
func crowdOf(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("crowd-%d", i)
	}
	return names
}

// labeling records whether a namespace had the team's label in a version.
type labeling struct {
	version  uint64
	selected bool
}

// labelings contains the labelings of each namespace, by its name in the cluster. It also contains
// the namespaces whose label is unknown, because a response was lost.
type labelings struct {
	of      map[string][]labeling
	unknown map[string]bool
}

// setTeam adds the label to a namespace of the cluster, or removes it.
func (u *user) setTeam(ctx context.Context, name string, selected bool) error {
	var value any
	if selected {
		value = u.team()
	}
	o, err := u.patchAs(ctx, target{resource: namespaces, name: strings.TrimPrefix(name, u.home)}, name, map[string]any{"labels": map[string]any{teamLabel: value}})
	u.noteTeam(name, o, err)
	return err
}

// noteTeam records the result for a namespace.
func (u *user) noteTeam(name string, o *unstructured.Unstructured, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.teams.of == nil {
		u.teams = labelings{map[string][]labeling{}, map[string]bool{}}
	}
	if err != nil {
		u.teams.unknown[name] = u.teams.unknown[name] || isDown(err)
		return
	}
	version, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	u.teams.unknown[name] = u.teams.unknown[name] || err != nil
	u.teams.of[name] = append(u.teams.of[name], labeling{version, o.GetLabels()[teamLabel] == u.team()})
	slices.SortStableFunc(u.teams.of[name], func(a, b labeling) int { return cmp.Compare(a.version, b.version) })
}

// unselected returns the end of each period in which a namespace wasn't selected: the version in which
// it regained the label, or math.MaxUint64 if it hasn't yet. It returns false if these versions are
// unknown.
func (u *user) unselected(name string) (until []uint64, known bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	was := true
	for _, l := range u.teams.of[name] {
		switch {
		case was && !l.selected:
			until = append(until, math.MaxUint64)
		case !was && l.selected:
			until[len(until)-1] = l.version
		}
		was = l.selected
	}
	return until, !u.teams.unknown[name]
}

// everSelected reports whether a namespace may have had the label at any time.
func (u *user) everSelected(name string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.teams.unknown[name] || slices.ContainsFunc(u.teams.of[name], func(l labeling) bool { return l.selected })
}

// doToTeam performs an operation on namespace labels.
func (u *user) doToTeam(ctx context.Context, o op) error {
	if o.do == leaveTeam || o.do == joinTeam {
		return u.setTeam(ctx, u.home+o.target.name, o.do == joinTeam)
	}
	for _, name := range crowdOf(u.crowd) {
		if err := u.setTeam(ctx, name, o.do == gather); err != nil {
			return err
		}
	}
	return nil
}

// assemble creates the namespaces of the crowd, unless an earlier world has, and labels them.
func (u *user) assemble(ctx context.Context) error {
	for _, name := range crowdOf(u.crowd) {
		o := &unstructured.Unstructured{Object: map[string]any{}}
		o.SetAPIVersion("v1")
		o.SetKind("Namespace")
		o.SetName(name)
		if _, err := u.client.Resource(core(namespaces)).Create(ctx, o, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return u.doToTeam(ctx, op{do: gather})
}

// comeBack recreates a namespace or a definition once the old one is gone. It gives up after
// goneLimit. what has the same format as in [world.change].
func (w *world) comeBack(ctx context.Context, what string) error {
	verb, name, _ := strings.Cut(what, " ")
	_ = poll.Until(ctx, goneLimit, name+" is there again", func(ctx context.Context) error {
		if w.user.hurry.Load() {
			return errors.New("the API server doesn't respond")
		}
		if opVerb(verb) == define {
			return w.user.define(ctx, name)
		}
		if err := w.user.releaseAll(ctx, w.user.home+name); err != nil {
			return err
		}
		return w.user.do(ctx, op{do: opVerb(verb), target: target{resource: namespaces, name: name}})
	})
	return nil
}
