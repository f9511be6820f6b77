package torture

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/test/lab/controlplane"
	"github.com/kuberelay/kuberelay/test/lab/faultproxy"
)

// The resources that not every API server serves. A plan has at most one of them.
const (
	flunders  = "flunders"            // served by the aggregated API server
	revisions = "controllerrevisions" // not served by the second API server
)

// others contains the groups and versions of these resources.
var others = map[string]schema.GroupVersionResource{
	flunders:  {Group: controlplane.AggregatedGroup, Version: controlplane.AggregatedVersion, Resource: flunders},
	revisions: {Group: "apps", Version: "v1", Resource: revisions},
}

// The actions that concern the available API servers
const (
	serviceGoes    verb = "remove the APIService"
	serviceComes   verb = "apply the APIService"
	aggregatedKill verb = "kill the aggregated API server"
	aggregatedRun  verb = "start the aggregated API server"

	toSecond  verb = "lead to the second API server"
	toEither  verb = "lead to either API server, in turn"
	toFirst   verb = "lead to the first API server"
	lagBegins verb = "cut the second API server off from etcd"
	lagEnds   verb = "mend the second API server's connection to etcd"
)

const (
	serviceReturns = "APIService deleted and recreated"
	aggregatedDown = "aggregated API server killed and restarted"
	servesFewer    = "requests routed to an API server that serves fewer resources"
	serverLags     = "requests routed to an API server that lags"

	theAggregated = "aggregated API server"
)

// serverKinds are the faults that concern the available API servers.
var serverKinds = []kind{
	{
		name: serviceReturns, uses: []string{theAggregated, theAPI}, slow: true, alone: []string{restored, nsRemoved},
		add: func(g *generator, from, to int) {
			g.plan.settings.other = flunders
			acts := []act{{do: serviceGoes}, {do: awaitDeleted, arg: flunders}, {do: serviceComes}}
			switch g.IntN(5) {
			case 0:
				acts = acts[:1] // the APIService stays away
			case 1:
				acts = []act{{do: serviceGoes}, {do: killNow}, {do: awaitDeleted, arg: flunders}, {do: serviceComes}}
			case 2:
				acts = append(acts, acts...)
			case 3:
				acts = []act{{do: serviceGoes}, {do: serviceComes}}
			}
			g.during(from, to, acts...)
		},
	},
	{
		name: servesFewer, uses: []string{theAPI}, slow: true, alone: []string{restored},
		add: func(g *generator, from, to int) {
			g.plan.settings.other = revisions
			acts := []act{{do: []verb{toSecond, toEither}[g.IntN(2)]}}
			if g.IntN(2) == 0 {
				acts = append(acts, act{do: killNow})
			}
			g.during(from, to, append(acts, act{do: toFirst})...)
		},
	},
	{
		name: aggregatedDown, uses: []string{theAggregated, theAPI}, slow: true, alone: []string{restored, nsRemoved},
		add: func(g *generator, from, to int) {
			g.plan.settings.other = flunders
			acts := []act{{do: aggregatedKill}, {do: aggregatedRun}}
			if g.IntN(2) == 0 {
				acts = []act{{do: aggregatedKill}, {do: killNow}, {do: aggregatedRun}}
			}
			g.during(from, to, acts...)
		},
	},
	{
		name: serverLags, uses: []string{theAPI}, slow: true, alone: []string{restored},
		add: func(g *generator, from, to int) {
			g.plan.settings.second = true
			acts := []act{{do: lagBegins}, {do: []verb{toSecond, toEither}[g.IntN(2)]}, {do: lagEnds}, {do: toFirst}}
			if g.IntN(2) == 0 {
				acts = []act{{do: lagBegins}, {do: toSecond}, {do: killNow}, {do: awaitLog, arg: synced}, {do: toFirst}, {do: lagEnds}}
			}
			g.during(from, to, acts...)
		},
	},
}

// otherOps adds to a phase operations on the resource that not every API server serves.
func (g *generator) otherOps(ph *phase) {
	name := g.plan.settings.other
	if name == "" {
		return
	}
	for range 4 + g.recent.IntN(8) {
		o := op{
			do:     []opVerb{put, put, put, remove, recreate, fresh}[g.recent.IntN(6)],
			target: target{name, []string{"a", "b"}[g.recent.IntN(2)], fmt.Sprintf("o%d", g.recent.IntN(4))}, value: g.recent.IntN(1_000_000),
		}
		if o.do == fresh {
			o.target.name = fmt.Sprintf("f%d", o.value)
		}
		at := g.recent.IntN(len(ph.ops) + 1)
		ph.ops = append(ph.ops[:at], append([]op{o}, ph.ops[at:]...)...)
	}
}

// selectors returns the value of KUBERELAY_RESOURCES.
func (w *world) selectors() []string {
	all := w.settings.selectors()
	if of, ok := others[w.settings.other]; ok {
		all = append(all, of.Resource+"."+of.Group)
	}
	return all
}

// otherContent sets the content of an object whose data the workload doesn't change.
func otherContent(o *unstructured.Unstructured, value int) {
	o.SetAnnotations(map[string]string{"value": fmt.Sprint(value)})
	if o.GetKind() == "ControllerRevision" {
		o.Object["data"], o.Object["revision"] = map[string]any{"never": "changes"}, int64(1)
	}
}

// useServers starts the API servers that the settings need.
func (w *world) useServers(ctx context.Context) error {
	if w.settings.other == flunders {
		if err := errors.Join(w.cp.StartAggregated(ctx), w.cp.RegisterAggregated(ctx)); err != nil {
			return err
		}
		w.t.Cleanup(w.leaveAggregated)
	}
	if w.settings.other != revisions && !w.settings.second {
		return nil
	}
	link := faultproxy.Start(w.t, w.cp.EtcdAddress())
	var err error
	if w.second, err = w.cp.AddAPIServer(ctx, "--runtime-config=apps/v1=false", "--etcd-servers=http://"+link.Addr()); err != nil {
		return err
	}
	w.etcdLink = link
	return nil
}

// leaveSecond removes the second API server, if the world has one. Then it makes the first API server
// finalize the definitions that the second one was finalizing.
func (w *world) leaveSecond(ctx context.Context) error {
	if w.second == nil {
		return nil
	}
	return errors.Join(w.second.Remove(), w.user.requeueDefinitions(ctx))
}

// leaveAggregated removes the world's objects from the aggregated API server, and ends that server.
func (w *world) leaveAggregated() {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	err := errors.Join(w.cp.StartAggregated(ctx), w.cp.RegisterAggregated(ctx))
	if err == nil {
		for _, home := range w.user.homes() {
			client := w.user.client.Resource(others[flunders]).Namespace(home)
			err = errors.Join(err, client.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
		}
	}
	w.settings.other = "" // no fault is left to end
	if err = errors.Join(err, w.cp.UnregisterAggregated(ctx), w.cp.KillAggregated()); err != nil {
		w.t.Error(err)
	}
}

// executeOnOthers performs an action that concerns the available API servers. An action that ends a
// fault does nothing if the fault isn't active.
func (w *world) executeOnOthers(ctx context.Context, a act) error {
	switch a.do {
	case serviceGoes:
		w.user.orphan(flunders)
		w.unserved = true
		return w.cp.UnregisterAggregated(ctx)
	case serviceComes:
		w.unserved = false
		return w.cp.RegisterAggregated(ctx)
	case aggregatedKill:
		return w.cp.KillAggregated()
	case aggregatedRun:
		if w.settings.other != flunders {
			return nil
		}
		if err := w.cp.StartAggregated(ctx); err != nil || w.unserved {
			return err
		}
		return w.cp.AwaitAggregated(ctx)
	case toSecond:
		w.lead(w.second.Address())
	case toEither:
		w.lead(w.second.Address(), w.cp.Address())
	case toFirst:
		w.lead(w.cp.Address())
	case lagBegins:
		w.etcdLink.Freeze()
	case lagEnds:
		if w.etcdLink != nil {
			w.etcdLink.Pass()
		}
	default:
		return w.bus.execute(ctx, a)
	}
	return nil
}

// lead connects all forwarders to these API servers, in turn.
func (w *world) lead(to ...string) {
	if w.second == nil {
		return
	}
	for _, n := range w.nodes {
		n.api.Direct(to...)
		n.api.Break()
	}
}
