package torture

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// feltLimit is the maximum wait for the effect of a fault. A fault has no effect if the forwarder has
// nothing to do meanwhile.
const feltLimit = 3 * time.Second

// The maximum waits for the end of a namespace and for the service of a new definition, whose first objects
// the API server delays by 2 s. After that, the plan continues without the namespace or the definition.
const (
	goneLimit   = 10 * time.Second
	servedLimit = 5 * time.Second
)

// perform executes a plan until its faults have ended. Then one forwarder keeps running or, with
// leader election, all of them.
func (w *world) perform(ctx context.Context, p *plan) error {
	for n, ph := range p.phases {
		var faults error
		var running sync.WaitGroup
		over := make(chan struct{})
		running.Go(func() {
			for _, a := range ph.acts {
				w.awaitOps(ctx, a.after, over)
				if err := w.execute(ctx, a); err != nil {
					faults = errors.Join(faults, fmt.Errorf("phase %d, %s: %w", n, a, err))
				}
			}
		})
		w.user.run(ctx, ph.ops)
		close(over)
		running.Wait()
		if faults != nil {
			return faults
		}
	}
	if err := w.endFaults(ctx); err != nil {
		return err
	}
	if w.settings.replicas > 0 {
		var all error
		for _, n := range w.nodes {
			all = errors.Join(all, n.keep(ctx))
		}
		return all
	}
	w.nodes[1-p.survivor].kill()
	return w.nodes[p.survivor].keep(ctx)
}

// awaitOps waits until this many operations of the phase are done, or until the phase is over.
func (w *world) awaitOps(ctx context.Context, after int, over <-chan struct{}) {
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for int(w.user.done.Load()) < after {
		select {
		case <-over:
			return
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// execute performs one action. An action that ends a fault does nothing if the fault isn't active.
func (w *world) execute(ctx context.Context, a act) error {
	n := w.nodes[a.node]
	switch a.do {
	case start:
		if a.arg != "" {
			return n.start("FAILPOINT=" + a.arg)
		}
		return n.start()
	case arm:
		return n.restart("FAILPOINT=" + a.arg)
	case killNow:
		n.Signal(syscall.SIGKILL)
	case terminate:
		return n.terminate(ctx)
	case stop:
		return n.stop(ctx)
	case freeze:
		n.Signal(syscall.SIGSTOP)
	case thaw:
		n.Signal(syscall.SIGCONT)
	case awaitDead:
		return w.awaitDead(ctx, n)
	case awaitLog:
		w.awaitLog(ctx, n, a.arg)
	case awaitDeleted:
		w.awaitDeleted(ctx, a.arg)
	case busDrop:
		n.bus.DropAnswers()
	case apiDrop:
		n.api.DropAnswers()
	case busHold:
		n.bus.Freeze()
	case apiHold:
		n.api.Freeze()
	case busRefuse:
		n.bus.Refuse()
	case apiRefuse:
		n.api.Refuse()
	case busPass:
		mend(n.bus)
	case apiPass:
		mend(n.api)
	case reconfigure:
		return w.reconfigure(ctx, w.settings.later[a.n-1], a.arg == orderly)
	case change:
		return w.change(ctx, a.arg)
	case comeBack:
		return w.comeBack(ctx, a.arg)
	case awaitAPI:
		w.awaitServed(ctx, a.arg)
	case forge:
		return w.forge(ctx, a.arg, a.n)
	case racePurges:
		return w.racePurges(ctx, n, a.n)
	case killLeader, pauseLeader, awaitLeader, wakeLeader, handOver:
		return w.executeOnLeader(ctx, a)
	default:
		return w.executeOnServers(ctx, a)
	}
	return nil
}

// mend restores a connection. It breaks the connection first, because the fault may have dropped
// data.
func mend(p interface {
	Break()
	Pass()
}) {
	p.Break()
	p.Pass()
}

func (w *world) executeOnServers(ctx context.Context, a act) error {
	switch a.do {
	case busKill:
		w.busDown = true
		return w.bus.kill()
	case busStart:
		if w.busDown {
			w.busDown = false
			return w.bus.start(ctx)
		}
	case busFreeze:
		w.busFrozen = true
		return w.bus.freeze()
	case busThaw:
		if w.busFrozen {
			w.busFrozen = false
			return w.bus.thaw()
		}
	case lose:
		return w.lose(ctx, a.n)
	case apiKill:
		w.apiDown = true
		return w.cp.KillAPIServer()
	case apiStart:
		if w.apiDown {
			w.apiDown = false
			return w.cp.StartAPIServer(ctx)
		}
	case apiFreeze:
		w.apiFrozen = true
		w.user.hurry.Store(true)
		return w.cp.PauseAPIServer()
	case apiThaw:
		if w.apiFrozen {
			w.apiFrozen = false
			w.user.hurry.Store(false)
			return w.cp.ResumeAPIServer()
		}
	case compact:
		w.compacted = true
		return w.cp.CompactEtcd(ctx)
	case etcdKill:
		w.etcdDown = true
		w.user.hurry.Store(true)
		return w.cp.KillEtcd()
	case etcdStart:
		if w.etcdDown {
			w.etcdDown = false
			w.user.hurry.Store(false)
			return w.cp.StartEtcd(ctx)
		}
	case snapshot:
		w.snapshot = filepath.Join(w.dir, "snapshot")
		return w.cp.SnapshotEtcd(ctx, w.snapshot)
	case restore:
		w.restored = true
		return w.cp.RestoreEtcd(ctx, w.snapshot)
	case revoke:
		w.forbidden = true
		return w.kube.RbacV1().ClusterRoleBindings().Delete(ctx, coreRole.Name, metav1.DeleteOptions{})
	case grant:
		if w.forbidden {
			w.forbidden = false
			return w.allow(ctx)
		}
	default:
		return w.executeOnOthers(ctx, a)
	}
	return nil
}

// awaitDead waits until a failpoint has killed a forwarder.
func (w *world) awaitDead(ctx context.Context, n *node) error {
	before, err := n.state()
	if err != nil {
		return err
	}
	_ = poll.Until(ctx, feltLimit, "the forwarder has died", func(context.Context) error {
		if now, _ := n.state(); now == before {
			return errors.New("it lives")
		}
		return nil
	})
	return nil
}

// awaitLog waits until a text appears again in a forwarder's log.
func (w *world) awaitLog(ctx context.Context, n *node, text string) {
	before := logged(n.Log(), text)
	_ = poll.Until(ctx, feltLimit, text, func(context.Context) error {
		if logged(n.Log(), text) == before {
			return errors.New("not logged")
		}
		return nil
	})
}

// awaitDeleted waits until the last event of an object of a resource is a reconciled delete.
func (w *world) awaitDeleted(ctx context.Context, resource string) {
	_ = poll.Until(ctx, feltLimit, "a delete is on the bus", func(context.Context) error {
		all, _, err := w.bus.All()
		if err != nil {
			return err
		}
		for _, m := range w.replica(all) {
			if resourceName(m) == resource && m.Kind() == "deleted" && m.Attributes["cause"] == "reconcile" {
				return nil
			}
		}
		return errors.New("none is")
	})
}

// change performs an operation that is written as "verb name".
func (w *world) change(ctx context.Context, what string) error {
	verb, name, _ := strings.Cut(what, " ")
	o := op{do: opVerb(verb), target: target{resource: name, name: name}}
	if o.do == pin || o.do == fresh {
		o.target.name = fmt.Sprintf("%s%d", o.do, w.user.changes.Load())
		if name != planets {
			o.target.namespace = "a"
		}
	}
	err := w.user.do(ctx, o)
	if apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) || apierrors.IsForbidden(err) || apierrors.IsConflict(err) || isDown(err) {
		return nil // the cluster isn't ready for the operation yet, or another fault prevents it
	}
	return err
}

// lose makes the bus lose the last messages of some objects. The forwarders are frozen meanwhile,
// so that no event follows these messages.
func (w *world) lose(ctx context.Context, objects int) error {
	if has, err := w.awaitStored(ctx, "there is something to lose"); !has {
		return err
	}
	for _, n := range w.nodes {
		n.Signal(syscall.SIGSTOP)
		defer n.Signal(syscall.SIGCONT)
	}
	if err := w.quiet(ctx); err != nil {
		return err
	}
	lost, err := w.bus.lose(ctx, objects)
	for _, place := range lost {
		w.lost[place] = true
	}
	return err
}

// awaitStored waits until the bus has a message. It returns false if the bus is empty and no
// forwarder should run, for example because a fault stopped the forwarder first.
func (w *world) awaitStored(ctx context.Context, what string) (has bool, err error) {
	err = poll.Until(ctx, limit, what, func(ctx context.Context) error {
		stored, err := w.bus.Stored(ctx)
		has = stored > 0
		if err == nil && !has && slices.ContainsFunc(w.nodes, (*node).isWanted) {
			err = errors.New("the bus is empty")
		}
		return err
	})
	return has && err == nil, err
}

// quiet waits until the stream stops growing and the recorder has read all of it.
func (w *world) quiet(ctx context.Context) error {
	last, same := uint64(0), 0
	return poll.Until(ctx, limit, "the stream is quiet", func(ctx context.Context) error {
		now, err := w.bus.Stored(ctx)
		if err != nil {
			return err
		}
		if now != last {
			last, same = now, 0
		}
		if same++; same < 5 {
			return errors.New("it is not")
		}
		return w.bus.CatchUp(ctx, limit)
	})
}

// racePurges deletes objects and recreates them around the time when their deletes are purged, one
// after the other, for longer than the interval of purges.
func (w *world) racePurges(ctx context.Context, n *node, objects int) error {
	targets := make([]target, objects)
	for i := range targets {
		targets[i] = target{configMaps, "a", fmt.Sprintf("purged%d", i)}
		_ = w.user.do(ctx, op{do: put, target: targets[i]})
	}
	w.awaitLog(ctx, n, targets[objects-1].name)
	for _, t := range targets {
		_ = w.user.do(ctx, op{do: remove, target: t})
	}
	w.awaitLog(ctx, n, emptied)
	ticker := time.NewTicker(1200 * time.Millisecond / time.Duration(objects))
	defer ticker.Stop()
	for i, t := range targets {
		_ = w.user.do(ctx, op{do: put, target: t, value: i})
		_ = w.user.do(ctx, op{do: remove, target: targets[(i+objects/2)%objects]})
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
