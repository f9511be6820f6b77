package main

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// values returns all values of the chart, in the order of the documentation. Values with a Kubernetes type
// use the Go types in k8s.io/api.
func values(config value) []value {
	return slices.Concat(
		[]value{replicas(), image(), kubernetes[[]corev1.LocalObjectReference]("imagePullSecrets", []any{}, "Secrets with the registry's credentials."), config},
		rights(), storage(), network(), observation(), pod(), names(),
	)
}

func replicas() value {
	return value{
		name: "replicas", preset: nil, kind: "number",
		description: "Number of forwarders: one leads and publishes, and the others stand by. 0 pauses publishing. A number above 1 requires `config.leaderElection`. Not set: 2 with leader election, otherwise 1.",
		form:        object{"type": []string{"integer", "null"}, "minimum": 0},
	}
}

func image() value {
	return section("image", "The container image.",
		text("registry", "", "Registry, such as a mirror, to use instead of the one in `repository`."),
		text("repository", "ghcr.io/kuberelay/kuberelay", "Registry and name. No public image exists yet: set this to the image that you built."),
		text("tag", "", "Tag. Not set: the chart's `appVersion`."),
		value{
			name: "digest", preset: "", kind: "text", description: "Digest, such as `sha256:…`. It takes precedence over the tag.",
			form: object{"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
		},
		choice("pullPolicy", "IfNotPresent", "Pull policy.", "Always", "IfNotPresent", "Never"),
	)
}

func rights() []value {
	return []value{
		section("serviceAccount", "The service account of the forwarder.",
			boolean("create", true, "Create the service account."),
			text("name", "", "Name of the service account. Not set: the name of the release if the chart creates it, otherwise `default`."),
			texts("annotations", "Annotations of the service account."),
		),
		section("rbac", "The permissions of the service account. The chart derives get, list, and watch from `config.resources` and `config.namespaces`, and adds the permissions that are enabled here.",
			boolean("create", true, "Create the Roles, the ClusterRole, and their bindings. If false, grant the permissions yourself."),
			boolean("definitions", true, "Allow get, list, and watch on CustomResourceDefinitions, and list and watch on APIServices, so that the forwarder watches a new resource at once. If false, the forwarder polls discovery every 2 seconds, and if a custom resource is removed while the forwarder is down, the resource's objects stay on the bus."),
			boolean("namespaces", true, "Allow get and list on each of `config.namespaces`. The Role in a namespace is removed with the namespace, so the forwarder needs these permissions to find the deletes of a namespace that was removed while the forwarder was down."),
			boolean("clusterIdentity", true, "Allow get on the `kube-system` namespace, whose UID identifies the cluster. If false, set `config.clusterName`. The forwarder then doesn't detect another cluster with the same name."),
			list("clusterScoped", "Cluster-scoped custom resources among `config.resources`, such as `clusterissuers.cert-manager.io`, if `config.namespaces` is set. The chart grants them in a ClusterRole, and all other resources in a Role in each namespace. Built-in resources need no entry, because the chart knows their scope.", `^[a-z0-9-]+\.[a-z0-9.-]+$`),
			boolean("secrets", false, "Allow get, list, and watch on Secrets if `config.resources` names them, and in the namespaces of `config.clusterApi`. The service account, and anyone who can use it, can then read the values of these Secrets. The bus gets keyed hashes of the values. No wildcard grants access to Secrets."),
			list("groupsWithSubresources", "Groups in which the service account may get, list, and watch every resource and every subresource, if `config.resources` selects the group with `*.GROUP` or `*`. An RBAC wildcard includes subresources, and some subresources are consoles or proxies, so name resources instead if you can. Built-in groups need no entry, because the chart lists their resources. Example: `cert-manager.io`.", `^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`),
			kubernetes[[]rbacv1.PolicyRule]("extraRules", []any{}, "Additional rules, in a Role in each of `config.namespaces`, or in the ClusterRole if `config.namespaces` is not set. The resources that `config.follow` adds need get, list, and watch here."),
			kubernetes[[]rbacv1.PolicyRule]("extraClusterRules", []any{}, "Additional rules in the ClusterRole."),
		),
	}
}

func storage() []value {
	return []value{section("persistence", "The PersistentVolumeClaim for the files of the built-in NATS server, which runs if `config.sink` is nats and `config.natsUrl` is not set. With another bus, the chart ignores this section.",
		boolean("ephemeral", false, "Use an emptyDir instead of a claim. When the pod is replaced, deletes that happen between the two pods are never published, and every existing object is published again. Use this only to try things out."),
		text("existingClaim", "", "Name of an existing claim. If it is set, the chart ignores the other values of this section. Not set: the chart creates a claim."),
		text("storageClass", "", "Storage class of the created claim. `-` means no class (`storageClassName: \"\"`), for a volume that you create. Not set: the cluster's default."),
		value{
			name: "accessModes", preset: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, kind: "list of PersistentVolumeAccessMode",
			description: "Access modes of the created claim. ReadWriteOncePod also keeps all other pods from using the volume, if the storage supports that mode.",
			form: object{"type": "array", "minItems": 1, "items": object{"type": "string", "enum": []corev1.PersistentVolumeAccessMode{
				corev1.ReadWriteOnce, corev1.ReadWriteOncePod, corev1.ReadWriteMany,
			}}},
		},
		value{
			name: "size", preset: "8Gi", kind: "text", form: object{"type": "string"},
			description: "Size of the created claim, or the limit of the emptyDir. The claim can grow if the storage class allows it. Example: `20Gi`.",
		},
		choice("whenDeleted", "Retain", "What happens to the created claim when the release is deleted or no longer uses it.", "Retain", "Delete"),
		texts("annotations", "Annotations of the created claim."),
		value{
			name: "enabled", preset: nil, kind: "true or false", form: object{"type": []string{"boolean", "null"}},
			description: "Deprecated: use `ephemeral` instead. Not set or `true`: the files are on a claim. `true` with `ephemeral` is an error. `false` is accepted only with `ephemeral`, so that no upgrade discards the files by accident.",
		},
	)}
}

func network() []value {
	anyPeer := []any{}
	return []value{
		section("service", "The Service for metrics, and for the built-in NATS server if `config.natsListen` is an address beyond the loopback interface.",
			choice("type", "ClusterIP", "Type of the Service.", "ClusterIP", "NodePort", "LoadBalancer"),
			number("port", 8080, 65535, "Port of metrics and health."),
			number("natsPort", 4222, 65535, "Port of the built-in NATS server."),
			texts("annotations", "Annotations of the Service."),
		),
		section("networkPolicy", "The NetworkPolicy. It allows outgoing traffic to DNS, the API server, and the bus, and incoming traffic to metrics. An empty list of peers means any peer.",
			boolean("enabled", true, "Create the NetworkPolicy."),
			kubernetes[[]networkingv1.NetworkPolicyPeer]("dnsTo", anyPeer, "Peers for DNS, port 53."),
			kubernetes[[]networkingv1.NetworkPolicyPeer]("apiServerTo", anyPeer, "Peers for the API server. Use the addresses of the API server's endpoints, not that of the Service `kubernetes`."),
			value{
				name: "apiServerPorts", preset: []int{443, 6443}, kind: "list of numbers", description: "Ports of the API server.",
				form: object{"type": "array", "items": object{"type": "integer", "minimum": 1, "maximum": 65535}},
			},
			kubernetes[[]networkingv1.NetworkPolicyPeer]("busTo", anyPeer, "Peers for the bus. The ports are those of `config.natsUrl` or `config.kafkaBrokers`."),
			value{
				name: "busPorts", preset: []int{}, kind: "list of numbers", description: "Additional ports of the bus, such as the ports that the Kafka brokers advertise.",
				form: object{"type": "array", "items": object{"type": "integer", "minimum": 1, "maximum": 65535}},
			},
			kubernetes[[]networkingv1.NetworkPolicyPeer]("metricsFrom", anyPeer, "Peers that may read metrics and health."),
			kubernetes[[]networkingv1.NetworkPolicyPeer]("natsFrom", []any{object{"podSelector": object{}}}, "Peers that may reach the built-in NATS server. Default: the pods of its namespace."),
			kubernetes[[]networkingv1.NetworkPolicyIngressRule]("extraIngress", []any{}, "Additional rules for incoming traffic."),
			kubernetes[[]networkingv1.NetworkPolicyEgressRule]("extraEgress", []any{}, "Additional rules for outgoing traffic."),
		),
	}
}

func names() []value {
	return []value{
		text("nameOverride", "", "Name to use instead of the chart's name in names and labels."),
		text("fullnameOverride", "", "Name to use instead of the combination of the release's and the chart's name."),
		text("namespaceOverride", "", "Existing namespace to use instead of the release's namespace."),
		texts("commonLabels", "Additional labels for every object. The chart's labels take precedence."),
		texts("commonAnnotations", "Additional annotations for every object except the pods, which have `podAnnotations`. More specific annotations take precedence."),
		{
			name: "extraObjects", preset: []any{}, kind: "list of objects",
			form:        object{"type": "array", "items": object{"type": "object", "required": []string{"apiVersion", "kind", "metadata"}}},
			description: "Additional objects of the release. Text in `{{ }}` is a template, such as `{{ include \"kuberelay.fullname\" . }}`.",
		},
		{
			name: "global", preset: object{}, kind: "map", form: object{"type": "object"},
			description: "Not used. Helm passes global values to the dependencies of a chart.",
		},
		boolean("enabled", true, "Not used. A chart that depends on this one can use this value as a condition."),
	}
}
