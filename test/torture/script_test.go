package torture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// script runs the steps of a scenario. After a step fails, the remaining steps do nothing.
type script struct {
	*world
	err     error
	value   int // the value of the latest change
	started int // length of the first forwarder's log at its latest start
}

// step runs one step.
func (s *script) step(do func() error) {
	if s.err == nil {
		s.err = do()
	}
}

func (s *script) until(what string, is func(context.Context) error) {
	s.step(func() error { return poll.Until(s.t.Context(), limit, what, is) })
}

// do performs an action of a fault.
func (s *script) do(a act) {
	s.step(func() error {
		if a.do == start && a.node == 0 {
			s.started = len(s.nodes[0].Log())
		}
		return s.execute(s.t.Context(), a)
	})
}

// begin starts a forwarder and waits until it has nothing to do.
func (s *script) begin(n int) {
	s.do(act{do: start, node: n})
	s.idle(n)
}

// kill ends a forwarder. It isn't started again.
func (s *script) kill(n int) {
	s.step(func() error { s.nodes[n].kill(); return nil })
}

// idle waits until a forwarder has nothing to do. A forwarder with a planted bug may never become
// idle, so idle then ignores a timeout and leaves the result to the checks.
func (s *script) idle(n int) {
	wait := limit
	if s.planted() {
		wait = buggyIdle
		s.step(func() error {
			_ = poll.Until(s.t.Context(), buggyReady, "the forwarder is ready", s.nodes[n].Ready)
			return nil
		})
	}
	s.step(func() error {
		quiet := 0
		err := poll.Until(s.t.Context(), wait, fmt.Sprintf("forwarder %d is idle", n), func(ctx context.Context) error {
			if err := s.nodes[n].Idle(ctx); err != nil {
				quiet = 0
				return err
			}
			if quiet++; quiet < 3 {
				return errors.New("only just")
			}
			return nil
		})
		if s.planted() {
			return nil
		}
		return err
	})
}

// The limits for a forwarder with a planted bug to become ready, or to publish an event, and then to
// become idle
const (
	buggyReady = 30 * time.Second
	buggyIdle  = 3 * time.Second
)

// verify runs "forwarder verify" with a forwarder's settings.
func (s *script) verify(n int) {
	s.step(func() error {
		code, stdout, stderr, err := s.nodes[n].Run(s.t.Context(), "verify")
		if err == nil && code != 0 {
			err = fmt.Errorf("verify ended with %d: %s%s", code, stdout, stderr)
		}
		return err
	})
}

// at returns a ConfigMap of the first namespace.
func at(name string) target { return target{configMaps, "a", name} }

// change performs an operation that must succeed.
func (s *script) change(do opVerb, t target) {
	s.step(func() error {
		s.value++
		o := op{do: do, target: t, value: s.value}
		if s.value%5 == 0 { // skip this value, because the object would have no label
			s.value++
			o.value++
		}
		if err := s.user.do(s.t.Context(), o); err != nil {
			return fmt.Errorf("%s: %w", o, err)
		}
		return nil
	})
}

func (s *script) create(names ...string) {
	for _, name := range names {
		s.change(put, at(name))
	}
}

// onBus waits until the bus has this many events of an object.
func (s *script) onBus(t target, events int) {
	s.until(fmt.Sprintf("%d events of %s", events, t.name), func(context.Context) error {
		n, err := s.events(t)
		if err == nil && n < events {
			err = fmt.Errorf("there are %d", n)
		}
		return err
	})
}

// events returns the number of events that the bus has had of an object.
func (s *script) events(t target) (n int, err error) {
	group := cmp.Or(s.user.resource(t.resource).Group, "core")
	of, separator := []string{clusterName, group, t.resource, s.user.home + t.namespace, t.name}, "/"
	if s.settings.sink == onNATS {
		of[1] = strings.ReplaceAll(group, ".", "_")
		of, separator = slices.Concat([]string{"kuberelay"}, of), "."
	}
	subject := strings.Join(of, separator)
	all, _, err := s.bus.All()
	for _, m := range all {
		if m.Subject == subject {
			n++
		}
	}
	return n, err
}

// logged waits until a text is in a forwarder's log this many times.
func (s *script) logged(n, times int, text string) {
	s.until(fmt.Sprintf("%q is in the log of forwarder %d", text, n), func(context.Context) error {
		if got := strings.Count(s.nodes[n].Log(), text); got < times {
			return fmt.Errorf("it occurs %d times", got)
		}
		return nil
	})
}

// either waits until the first forwarder has logged one of the texts since its latest start.
func (s *script) either(texts ...string) {
	s.until(fmt.Sprintf("one of %q is logged", texts), func(context.Context) error {
		log := s.nodes[0].Log()[s.started:]
		if !slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(log, text) }) {
			return errors.New("none is")
		}
		return nil
	})
}

// allowOnly restricts the forwarder to some verbs on ConfigMaps and namespaces until the action grant
// allows the others again.
func (s *script) allowOnly(verbs ...string) {
	s.allowOnlyOf([]string{configMaps, namespaces}, verbs...)
}

func (s *script) allowOnlyOf(resources []string, verbs ...string) {
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: strings.Join(slices.Concat([]string{"torture-only"}, resources, verbs), "-")},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: resources, Verbs: verbs}},
	}
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		if err := s.kube.RbacV1().ClusterRoleBindings().Delete(ctx, role.Name, metav1.DeleteOptions{}); err != nil {
			s.t.Error(err)
		}
	})
	s.step(func() error { return s.bind(s.t.Context(), role) })
	s.do(act{do: revoke})
	s.permitted(verbs...)
}

// permitted waits until the forwarder may use exactly these verbs on ConfigMaps. The API server
// applies a change of permissions with a delay.
func (s *script) permitted(verbs ...string) {
	s.until("the permissions of the forwarder are in effect", func(ctx context.Context) error {
		for _, verb := range []string{"get", "list", "watch"} {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: reader, ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Resource: configMaps},
			}}
			answer, err := s.kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			if want := slices.Contains(verbs, verb); answer.Status.Allowed != want {
				return fmt.Errorf("%s is allowed: %v", verb, answer.Status.Allowed)
			}
		}
		return nil
	})
}

// addVersion serves a custom resource in an additional version, which discovery then prefers.
func (s *script) addVersion(resource, version string) {
	s.step(func() error {
		patch := fmt.Sprintf(`[{"op": "add", "path": "/spec/versions/-", "value": {"name": %q, "served": true, "storage": false,
			"schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}]`, version)
		_, err := s.user.client.Resource(definitions).Patch(s.t.Context(), resource+"."+group, types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
		return err
	})
}

// forget removes a definition, so that the next world creates it again.
func (s *script) forget(resource string) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := s.user.forget(ctx, resource); err != nil {
		s.t.Error(err)
	}
}
