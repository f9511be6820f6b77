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

	"github.com/kuberelay/kuberelay/test/harness"
)

// The operations that change which namespaces are selected, where the plan selects by
// the label of a team.
const (
	leaveTeam opVerb = "unlabel-namespace"
	joinTeam  opVerb = "label-namespace"
	scatter   opVerb = "unlabel-crowd" // all namespaces but the plan's own
	gather    opVerb = "label-crowd"
	stranger  opVerb = "create-namespace-unlabelled"
)

// teamLabel says of which world's team a namespace is.
const teamLabel = "torture-team"

// Above this many selected namespaces a forwarder that starts watches all at once, and
// one by one up to it. One that runs goes over at half as many, and at twice as many.
const watchedOneByOne = 10

// teamSettings draws how namespaces are selected: in a third of the plans by label, and in
// half of these there are too many to watch each.
func (g *generator) teamSettings() {
	s := &g.plan.settings
	s.byTeam = g.IntN(3) == 0
	s.crowd = []int{0, 0, 4, watchedOneByOne, watchedOneByOne + 1, 2*watchedOneByOne - 1}[g.IntN(6)]
	s.tells = g.IntN(2) == 0
}

// teamOp draws a change of namespaces' labels.
func (g *generator) teamOp() op {
	o := op{do: []opVerb{leaveTeam, leaveTeam, joinTeam, joinTeam, joinTeam}[g.IntN(5)], target: target{resource: namespaces, name: g.namespace()}}
	if g.plan.settings.crowd > 0 && g.IntN(6) == 0 {
		o.do = []opVerb{scatter, gather}[g.IntN(2)]
		o.target.name = "crowd"
	}
	return o
}

// flips are changes of namespaces' labels that a fault makes while nobody looks.
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

// team is the label's value in a world.
func (u *user) team() string { return strings.TrimSuffix(u.home, "-") }

// homes are the namespaces of the user's objects.
func (u *user) homes() []string { return []string{u.home + "a", u.home + "b"} }

// crowdOf are the names of the namespaces that worlds share. They are made once: the
// controller manager takes a while to remove one.
func crowdOf(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("crowd-%d", i)
	}
	return names
}

// labelling is that a namespace got the team's label, or lost it, in a version.
type labelling struct {
	version  uint64
	selected bool
}

// labellings are all of them, by the namespace's name in the cluster, and of which
// namespaces it is not known, since an answer was lost.
type labellings struct {
	of      map[string][]labelling
	unknown map[string]bool
}

// setTeam gives a namespace of the cluster the label, or takes it away.
func (u *user) setTeam(ctx context.Context, name string, selected bool) error {
	var value any
	if selected {
		value = u.team()
	}
	o, err := u.patchAs(ctx, target{resource: namespaces, name: strings.TrimPrefix(name, u.home)}, name, map[string]any{"labels": map[string]any{teamLabel: value}})
	u.noteTeam(name, o, err)
	return err
}

// noteTeam remembers what became of a namespace.
func (u *user) noteTeam(name string, o *unstructured.Unstructured, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.teams.of == nil {
		u.teams = labellings{map[string][]labelling{}, map[string]bool{}}
	}
	if err != nil {
		u.teams.unknown[name] = u.teams.unknown[name] || isDown(err)
		return
	}
	version, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	u.teams.unknown[name] = u.teams.unknown[name] || err != nil
	u.teams.of[name] = append(u.teams.of[name], labelling{version, o.GetLabels()[teamLabel] == u.team()})
	slices.SortStableFunc(u.teams.of[name], func(a, b labelling) int { return cmp.Compare(a.version, b.version) })
}

// unselected gives when a namespace was not selected, in versions of the cluster: those in
// which it got the label, math.MaxUint64 for not yet. It is false where that is not known.
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

// everSelected tells whether a namespace had the label at any time, as far as is known.
func (u *user) everSelected(name string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.teams.unknown[name] || slices.ContainsFunc(u.teams.of[name], func(l labelling) bool { return l.selected })
}

// doToTeam does an operation on the labels of namespaces.
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

// assemble makes the namespaces of the crowd, if no world before has, and labels them.
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

// comeBack creates a namespace, or a definition, again once it is gone, which may take too long. What is
// written is that of [world.change].
func (w *world) comeBack(ctx context.Context, what string) error {
	verb, name, _ := strings.Cut(what, " ")
	_ = harness.Eventually(ctx, goneLimit, name+" is there again", func(ctx context.Context) error {
		if w.user.hurry.Load() {
			return errors.New("the API server stands still")
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
