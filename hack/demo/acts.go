package main

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	demoNamespace = "shop"
	oddName       = "demo:odd.name with * and >"
)

// act is one thing that the demo does, and what has to come of it.
type act struct {
	say  string // what is done, in a line
	like string // the command with which a user would do it
	do   func(context.Context, *stage) error
	// want must all come before the next act. Without it the next act begins at once.
	want []want
	note func(*stage) string // something to look at, when it has come
}

// acts are the demo, in order.
var acts = []act{{
	say:  "start the forwarder, which brings its own NATS server; what there is already comes as a snapshot",
	like: "bin/forwarder run",
	do:   startForwarder,
	want: []want{
		snapshot("namespaces"), snapshot("deployments.apps"), snapshot("replicasets.apps"), snapshot("pods"),
		snapshot("roles.rbac.authorization.k8s.io"), snapshot("customresourcedefinitions.apiextensions.k8s.io"),
	},
}, {
	say:  "create a Namespace",
	like: "kubectl create namespace shop",
	do:   create(namespaces, "namespace.yaml"),
	want: []want{created("namespaces", "shop")},
}, {
	say:  "create a Deployment; the controllers make a ReplicaSet and Pods of it",
	like: "kubectl create deployment web -n shop --image=nginx:1.28 --replicas=2",
	do:   create(deployments, "deployment.yaml"),
	want: []want{
		created("deployments.apps", "web"), created("replicasets.apps", "web-"), created("pods", "web-").times(2),
		shows("pods", "web-", "status.phase", "Running").times(2), shows("deployments.apps", "web", "status.availableReplicas", "2"),
	},
}, {
	say:  "scale it",
	like: "kubectl scale deployment web -n shop --replicas=3",
	do:   patch(deployments, "web", `{"spec": {"replicas": 3}}`),
	want: []want{created("pods", "web-"), shows("deployments.apps", "web", "status.availableReplicas", "3")},
}, {
	say:  "roll out another image: new Pods one by one, then the old ones go",
	like: "kubectl set image deployment web -n shop nginx=nginx:1.29",
	do: patch(deployments, "web",
		`{"spec": {"template": {"spec": {"containers": [{"name": "nginx", "image": "nginx:1.29"}]}}}}`),
	want: []want{
		created("replicasets.apps", "web-"), created("pods", "web-").times(3), deleted("pods", "web-").times(3),
		shows("deployments.apps", "web", "status.updatedReplicas", "3"),
	},
}, {
	say:  "delete a Pod; its ReplicaSet makes another",
	like: "kubectl delete pod -n shop web-…",
	do:   deleteOnePod,
	want: []want{deleted("pods", "web-"), created("pods", "web-")},
}, {
	say:  "create a CustomResourceDefinition, and two objects of it: the forwarder notices by itself",
	like: "kubectl apply -f hack/demo/manifests/widget-crd.yaml …",
	do: all(create(definitions, "widget-crd.yaml"),
		create(widgets, "gear.yaml"), create(widgets, "spring.yaml")),
	want: []want{
		created("customresourcedefinitions.apiextensions.k8s.io", "widgets.demo.kuberelay.io"),
		shows("widgets.demo.kuberelay.io", "gear", "spec.color", "grey"),
		shows("widgets.demo.kuberelay.io", "spring", "spec.color", "blue"),
	},
}, {
	say:  "change the spec of a Widget",
	like: `kubectl patch widget gear -n shop --type=merge -p '{"spec": {"color": "red"}}'`,
	do:   patch(widgets, "gear", `{"spec": {"color": "red"}}`),
	want: []want{shows("widgets.demo.kuberelay.io", "gear", "spec.color", "red")},
}, {
	say:  "change its status",
	like: `kubectl patch widget gear -n shop --subresource=status --type=merge -p '{"status": {"phase": "Turning"}}'`,
	do:   patch(widgets, "gear", `{"status": {"phase": "Turning"}}`, "status"),
	want: []want{shows("widgets.demo.kuberelay.io", "gear", "status.phase", "Turning")},
}, {
	say:  "delete it; its last state comes with the event",
	like: "kubectl delete widget gear -n shop",
	do:   remove(widgets, "gear"),
	want: []want{deleted("widgets.demo.kuberelay.io", "gear").with("spec.color", "red")},
}, {
	say:  "create a Role with an odd name, as RBAC allows",
	like: "kubectl create role '" + oddName + "' -n shop --verb=get,list,watch --resource=pods",
	do:   create(roles, "role.yaml"),
	want: []want{created("roles.rbac.authorization.k8s.io", oddName)},
	note: func(s *stage) string {
		return "on the bus it is " + s.subscriber.subject("roles.rbac.authorization.k8s.io", oddName)
	},
}, {
	say:  "kill the forwarder, and its NATS server with it",
	like: "kill -9",
	do:   killForwarder,
}, {
	say:  "while it is dead: delete a Widget; delete the Role and create one of the same name",
	like: "kubectl delete widget spring -n shop; …",
	do:   all(remove(widgets, "spring"), remove(roles, oddName), create(roles, "role.yaml"), create(widgets, "bolt.yaml")),
}, {
	say:  "start it again: NO DELETE IS LOST, it compares the bus with the cluster",
	like: "bin/forwarder run",
	do:   startForwarder,
	want: []want{
		deleted("widgets.demo.kuberelay.io", "spring").because("reconcile").with("spec.color", "blue"),
		deleted("roles.rbac.authorization.k8s.io", oddName).because("reconcile"),
		created("roles.rbac.authorization.k8s.io", oddName),
		created("widgets.demo.kuberelay.io", "bolt"),
	},
}, {
	say:  "delete the CustomResourceDefinition; its objects go with it, and say so",
	like: "kubectl delete crd widgets.demo.kuberelay.io",
	do:   remove(definitions, "widgets.demo.kuberelay.io"),
	want: []want{
		deleted("widgets.demo.kuberelay.io", "bolt"),
		deleted("customresourcedefinitions.apiextensions.k8s.io", "widgets.demo.kuberelay.io"),
	},
}, {
	say:  "delete the Namespace with all that is left in it",
	like: "kubectl delete namespace shop",
	do:   remove(namespaces, "shop"),
	want: []want{
		deleted("pods", "web-").times(3), deleted("replicasets.apps", "web-").times(2), deleted("deployments.apps", "web"),
		deleted("roles.rbac.authorization.k8s.io", oddName), deleted("namespaces", "shop"),
	},
}}

func create(r schema.GroupVersionResource, manifest string) func(context.Context, *stage) error {
	return func(ctx context.Context, s *stage) error { return s.cluster.create(ctx, r, manifest) }
}

func patch(r schema.GroupVersionResource, name, patch string, subresources ...string) func(context.Context, *stage) error {
	return func(ctx context.Context, s *stage) error {
		return s.cluster.patch(ctx, r, name, patch, subresources...)
	}
}

func remove(r schema.GroupVersionResource, name string) func(context.Context, *stage) error {
	return func(ctx context.Context, s *stage) error { return s.cluster.delete(ctx, r, name) }
}

func all(steps ...func(context.Context, *stage) error) func(context.Context, *stage) error {
	return func(ctx context.Context, s *stage) error {
		for _, step := range steps {
			if err := step(ctx, s); err != nil {
				return err
			}
		}
		return nil
	}
}
