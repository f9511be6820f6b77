package main

import (
	"context"
	"slices"
)

const (
	demoNamespace = "shop"
	oddName       = "demo:odd.name with * and >"
)

// act is one step of the demo and the events that it must cause.
type act struct {
	say  string   // description of the action
	like []string // commands with the same effect
	do   step
	want []want              // events that must arrive before the next act; if empty, the next act begins at once
	note func(*stage) string // if set, returns a remark to print after the act
}

func start(_ context.Context, s *stage) error { return s.forwarder.Start() }

// acts are the steps of the demo, in order.
var acts = []act{{
	say:  "start the forwarder{server}; existing objects arrive as a snapshot",
	like: []string{"bin/forwarder run"},
	do:   start,
	want: []want{
		snapshot("namespaces"), snapshot("deployments.apps"), snapshot("replicasets.apps"), snapshot("pods"),
		snapshot("roles.rbac.authorization.k8s.io"), snapshot("customresourcedefinitions.apiextensions.k8s.io"),
	},
}, {
	say:  "create a Namespace",
	like: []string{"kubectl create namespace shop"},
	do:   create(namespaces, "namespace.yaml"),
	want: []want{created("namespaces", "shop")},
}, {
	say:  "create a Deployment; the controllers create a ReplicaSet and Pods for it",
	like: []string{"kubectl apply -f hack/demo/manifests/deployment.yaml"},
	do:   create(deployments, "deployment.yaml"),
	want: []want{
		created("deployments.apps", "web"), created("replicasets.apps", "web-"), created("pods", "web-").times(2),
		shows("pods", "web-", "status.phase", "Running").times(2), shows("deployments.apps", "web", "status.availableReplicas", "2"),
	},
}, {
	say:  "scale it",
	like: []string{"kubectl scale deployment web -n shop --replicas=3"},
	do:   patch(deployments, "web", `{"spec": {"replicas": 3}}`),
	want: []want{created("pods", "web-"), shows("deployments.apps", "web", "status.availableReplicas", "3")},
}, {
	say:  "roll out another image: a new ReplicaSet takes over",
	like: []string{"kubectl set image deployment web -n shop nginx=nginx:1.29"},
	do: patch(deployments, "web",
		`{"spec": {"template": {"spec": {"containers": [{"name": "nginx", "image": "nginx:1.29"}]}}}}`),
	want: []want{
		created("replicasets.apps", "web-"), created("pods", "web-").times(3), deleted("pods", "web-").times(3),
		shows("replicasets.apps", "web-", "spec.replicas", "3", "status.availableReplicas", "3"),
	},
}, {
	say:  "delete a Pod; its ReplicaSet creates another",
	like: []string{"kubectl delete pod -n shop web-…"},
	do:   removeOnePod,
	want: []want{deleted("pods", "web-"), created("pods", "web-")},
}, {
	say: "create a CustomResourceDefinition, and two objects of its kind: the forwarder starts to watch them by itself",
	like: []string{
		"kubectl apply -f hack/demo/manifests/widget-crd.yaml",
		"kubectl apply -f hack/demo/manifests/gear.yaml -f hack/demo/manifests/spring.yaml",
	},
	do: all(create(definitions, "widget-crd.yaml"),
		create(widgets, "gear.yaml"), create(widgets, "spring.yaml")),
	want: []want{
		created("customresourcedefinitions.apiextensions.k8s.io", "widgets.demo.kuberelay.io"),
		shows("widgets.demo.kuberelay.io", "gear", "spec.color", "grey"),
		shows("widgets.demo.kuberelay.io", "spring", "spec.color", "blue"),
	},
}, {
	say:  "change the spec of a Widget",
	like: []string{`kubectl patch widget gear -n shop --type=merge -p '{"spec": {"color": "red"}}'`},
	do:   patch(widgets, "gear", `{"spec": {"color": "red"}}`),
	want: []want{shows("widgets.demo.kuberelay.io", "gear", "spec.color", "red")},
}, {
	say:  "change its status",
	like: []string{`kubectl patch widget gear -n shop --subresource=status --type=merge -p '{"status": {"phase": "Turning"}}'`},
	do:   patch(widgets, "gear", `{"status": {"phase": "Turning"}}`, "status"),
	want: []want{shows("widgets.demo.kuberelay.io", "gear", "status.phase", "Turning")},
}, {
	say:  "delete it; the event has its last state",
	like: []string{"kubectl delete widget gear -n shop"},
	do:   remove(widgets, "gear"),
	want: []want{deleted("widgets.demo.kuberelay.io", "gear").with("spec.color", "red")},
}, {
	say:  "create a Role with an odd name, as RBAC allows",
	like: []string{"kubectl create role '" + oddName + "' -n shop --verb=get,list,watch --resource=pods"},
	do:   create(roles, "role.yaml"),
	want: []want{created("roles.rbac.authorization.k8s.io", oddName)},
	note: func(s *stage) string {
		events, _ := s.events() // perform has checked the events
		i := slices.IndexFunc(events, func(e event) bool { return e.name == oddName })
		return "its " + s.bus.subject + " on the bus: " + events[i].subject
	},
}, {
	say:  "kill the forwarder{killed}",
	like: []string{"kill -9 …"},
	do:   func(_ context.Context, s *stage) error { return s.forwarder.Kill() },
}, {
	say: "while it is down: delete a Widget and create one, delete the Role and create one of the same name",
	like: []string{
		"kubectl delete widget spring -n shop", "kubectl apply -f hack/demo/manifests/bolt.yaml",
		"kubectl delete role '" + oddName + "' -n shop", "kubectl create -f hack/demo/manifests/role.yaml",
	},
	do: all(remove(widgets, "spring"), create(widgets, "bolt.yaml"), remove(roles, oddName), create(roles, "role.yaml")),
}, {
	say:  "start it again: NO DELETE IS LOST",
	like: []string{"bin/forwarder run"},
	do:   start,
	want: []want{
		deleted("widgets.demo.kuberelay.io", "spring").because("reconcile").with("spec.color", "blue"),
		deleted("roles.rbac.authorization.k8s.io", oddName).because("reconcile"),
		created("roles.rbac.authorization.k8s.io", oddName),
		created("widgets.demo.kuberelay.io", "bolt"),
	},
	note: func(*stage) string {
		return "nobody saw these deletes, and no watch reports them afterwards: the forwarder found them by comparing the bus\n" +
			"  with the cluster, and each event has the last state; no other event was repeated"
	},
}, {
	say:  "delete the CustomResourceDefinition; each of its objects gets a deleted event too",
	like: []string{"kubectl delete crd widgets.demo.kuberelay.io"},
	do:   remove(definitions, "widgets.demo.kuberelay.io"),
	want: []want{
		deleted("widgets.demo.kuberelay.io", "bolt"),
		deleted("customresourcedefinitions.apiextensions.k8s.io", "widgets.demo.kuberelay.io"),
	},
}, {
	say:  "delete the Namespace and everything left in it",
	like: []string{"kubectl delete namespace shop"},
	do:   remove(namespaces, "shop"),
	want: []want{
		deleted("pods", "web-").times(3), deleted("replicasets.apps", "web-").times(2), deleted("deployments.apps", "web"),
		deleted("roles.rbac.authorization.k8s.io", oddName), deleted("namespaces", "shop"),
	},
}}
