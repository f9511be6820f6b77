package main

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// values returns all values of the chart, in the order of the documentation. The Go types of
// k8s.io/api stand for the Kubernetes types.
func values(config value) []value {
	return slices.Concat(
		[]value{replicas(), image(), kubernetes[[]corev1.LocalObjectReference]("imagePullSecrets", []any{}, "Secrets with the credentials of the registry."), config},
		rights(), storage(), network(), observation(), pod(), names(),
	)
}

func replicas() value {
	return value{
		name: "replicas", preset: nil, kind: "number",
		description: "Number of forwarders: one leads and publishes, the others stand by. 0 pauses publishing. More than one require `config.leaderElection`. Not set: 2 with it, otherwise 1.",
		form:        object{"type": []string{"integer", "null"}, "minimum": 0},
	}
}

func image() value {
	return section("image", "The container image.",
		text("repository", "ghcr.io/kuberelay/kuberelay", "Registry and name. No public image exists yet: name the one that you built."),
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
			boolean("create", true, "Create it."),
			text("name", "", "Its name. Not set: the name of the release if the chart creates it, otherwise `default`."),
			texts("annotations", "Its annotations."),
		),
		section("rbac", "The permissions of the service account. The chart derives get, list and watch from `config.resources` and `config.namespaces`, and adds what is enabled here.",
			boolean("create", true, "Create the Roles, the ClusterRole and their bindings. If false, grant the permissions yourself."),
			boolean("definitions", true, "Allow get, list and watch on CustomResourceDefinitions, and list and watch on APIServices, so that a new resource is watched at once. If false, new resources are found by polling discovery every 2 seconds, and the objects of a custom resource that is removed while the forwarder is down stay on the bus."),
			boolean("clusterIdentity", true, "Allow get on the namespace `kube-system`, whose UID identifies the cluster. If false, set `config.clusterName`; two clusters with one name are then not noticed."),
			list("clusterScoped", "Cluster-scoped custom resources among `config.resources`, such as `clusterissuers.cert-manager.io`, if `config.namespaces` is set. They get a ClusterRole, all others a Role in each namespace. The chart knows the built-in ones.", `^[a-z0-9-]+\.[a-z0-9.-]+$`),
			boolean("secrets", false, "Allow get, list and watch on Secrets if `config.resources` names them. The service account, and whoever can act as it, can then read their values; the bus gets keyed hashes. No wildcard grants Secrets."),
			list("groupsWithSubresources", "Groups of which the service account may get, list and watch every resource and every subresource, if `config.resources` selects the group with `*.GROUP` or `*`. RBAC can't leave subresources out of a wildcard, and in some groups they are consoles or proxies: name resources instead where you can. Built-in groups need no entry, because the chart writes out their resources. Example: `cert-manager.io`.", `^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`),
			kubernetes[[]rbacv1.PolicyRule]("extraRules", []any{}, "More rules beside those of `config.resources`: in a Role in each of `config.namespaces`, or in the ClusterRole. What `config.follow` leads to needs get, list and watch here."),
			kubernetes[[]rbacv1.PolicyRule]("extraClusterRules", []any{}, "More rules in the ClusterRole."),
		),
	}
}

func storage() []value {
	return []value{section("persistence", "The PersistentVolumeClaim for the files of the built-in NATS server, which runs if `config.sink` is nats and `config.natsUrl` is not set. With another bus, the chart ignores this section.",
		boolean("ephemeral", false, "Use an emptyDir instead of a claim. When the pod is replaced, deletes in between are never published, and every existing object is published again. For trying things out."),
		text("existingClaim", "", "Name of an existing claim. The other values of this section are then ignored. Not set: the chart creates a claim."),
		text("storageClass", "", "Storage class of the created claim. `-` means no class (`storageClassName: \"\"`), for a volume that you create. Not set: the cluster's default."),
		value{
			name: "accessModes", preset: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, kind: "list of PersistentVolumeAccessMode",
			description: "Access modes of the created claim. ReadWriteOncePod, if the storage supports it, also keeps all other pods from the volume.",
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
			description: "From earlier releases; use `ephemeral` instead. Not set, or true: the files are on a claim. `true` with `ephemeral` is an error. `false` is accepted with `ephemeral` only, so that no upgrade discards the files by accident.",
		},
	)}
}

func network() []value {
	anyPeer := []any{}
	return []value{
		section("service", "The Service for metrics, and for the built-in NATS server if `config.natsListen` opens it, which requires credentials.",
			choice("type", "ClusterIP", "Its type.", "ClusterIP", "NodePort", "LoadBalancer"),
			number("port", 8080, 1, 65535, "Port of metrics and health."),
			number("natsPort", 4222, 1, 65535, "Port of the built-in NATS server."),
			texts("annotations", "Its annotations."),
		),
		section("networkPolicy", "The NetworkPolicy: outgoing to DNS, the API server and the bus, incoming to metrics. An empty list of peers means any.",
			boolean("enabled", true, "Create it."),
			kubernetes[[]networkingv1.NetworkPolicyPeer]("dnsTo", anyPeer, "Peers for DNS, port 53."),
			kubernetes[[]networkingv1.NetworkPolicyPeer]("apiServerTo", anyPeer, "Peers for the API server. Use the address of its endpoints, not of the Service `kubernetes`."),
			value{
				name: "apiServerPorts", preset: []int{443, 6443}, kind: "list of numbers", description: "Ports of the API server.",
				form: object{"type": "array", "items": object{"type": "integer", "minimum": 1, "maximum": 65535}},
			},
			kubernetes[[]networkingv1.NetworkPolicyPeer]("busTo", anyPeer, "Peers for the bus. The ports are those of `config.natsUrl` or `config.kafkaBrokers`."),
			value{
				name: "busPorts", preset: []int{}, kind: "list of numbers", description: "More ports of the bus, such as those that Kafka's brokers advertise.",
				form: object{"type": "array", "items": object{"type": "integer", "minimum": 1, "maximum": 65535}},
			},
			kubernetes[[]networkingv1.NetworkPolicyPeer]("metricsFrom", anyPeer, "Peers that may read metrics and health."),
			kubernetes[[]networkingv1.NetworkPolicyPeer]("natsFrom", []any{object{"podSelector": object{}}}, "Peers that may reach the built-in NATS server. Default: the pods of its namespace."),
			kubernetes[[]networkingv1.NetworkPolicyIngressRule]("extraIngress", []any{}, "More rules for incoming traffic."),
			kubernetes[[]networkingv1.NetworkPolicyEgressRule]("extraEgress", []any{}, "More rules for outgoing traffic."),
		),
	}
}

// Fields of the Prometheus operator, whose types are not in k8s.io/api.
type (
	relabeling struct {
		Action       string   `json:"action,omitempty"`
		Modulus      int64    `json:"modulus,omitempty"`
		Regex        string   `json:"regex,omitempty"`
		Replacement  string   `json:"replacement,omitempty"`
		Separator    string   `json:"separator,omitempty"`
		SourceLabels []string `json:"sourceLabels,omitempty"`
		TargetLabel  string   `json:"targetLabel,omitempty"`
	}
	scrapeTLS struct {
		CA                 *caSource `json:"ca,omitempty"`
		ServerName         string    `json:"serverName,omitempty"`
		InsecureSkipVerify bool      `json:"insecureSkipVerify,omitempty"`
	}
	caSource struct {
		ConfigMap *corev1.ConfigMapKeySelector `json:"configMap,omitempty"`
		Secret    *corev1.SecretKeySelector    `json:"secret,omitempty"`
	}
	alertingRule struct {
		Alert         string            `json:"alert,omitempty"`
		Record        string            `json:"record,omitempty"`
		Expr          string            `json:"expr"`
		For           string            `json:"for,omitempty"`
		KeepFiringFor string            `json:"keep_firing_for,omitempty"`
		Labels        map[string]string `json:"labels,omitempty"`
		Annotations   map[string]string `json:"annotations,omitempty"`
	}
)

func observation() []value {
	return []value{
		section("serviceMonitor", "A ServiceMonitor for the Prometheus operator.",
			boolean("enabled", false, "Create it."),
			texts("labels", "More labels, for the selector of Prometheus. Labels of the chart take precedence."),
			text("interval", "", "How often to scrape. Not set: the default of Prometheus."),
			text("scrapeTimeout", "", "How long a scrape may take. Not set: the default of Prometheus."),
			kubernetes[scrapeTLS]("tlsConfig", object{}, "How Prometheus verifies the certificate of the forwarder, if it serves metrics over TLS. Not set: with `config.listenTlsCertFile`, by the authorities of the system; with the self-signed certificate of `config.metricsAuth`, not at all."),
			kubernetes[[]relabeling]("relabelings", []any{}, "Relabelings of the target."),
			kubernetes[[]relabeling]("metricRelabelings", []any{}, "Relabelings of the metrics."),
		),
		section("prometheusRule", "Alerts for the Prometheus operator.",
			boolean("enabled", false, "Create them."),
			texts("labels", "More labels, for the selector of Prometheus. Labels of the chart take precedence."),
			value{
				name: "for", preset: "15m", kind: "text", description: "How long a condition must hold before an alert fires.",
				form: object{"type": "string", "pattern": "^([0-9]+(ms|s|m|h|d|w|y))+$"},
			},
			texts("alertLabels", "Labels of every alert, beside `severity`."),
			kubernetes[[]alertingRule]("extraRules", []any{}, "More rules."),
		),
		section("podDisruptionBudget", "The PodDisruptionBudget.",
			boolean("enabled", true, "Create it."),
			kubernetes[*intstr.IntOrString]("minAvailable", nil, "How many pods must stay available, instead of `maxUnavailable`. With one replica, 1 prevents its node from being drained."),
			kubernetes[*intstr.IntOrString]("maxUnavailable", 1, "How many pods may be unavailable."),
		),
	}
}

func pod() []value {
	yes, no, user := true, false, int64(65532)
	seccomp := &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	return []value{
		kubernetes[[]corev1.EnvVar]("extraEnv", []any{}, "More environment variables. For those of the forwarder, use `config`."),
		kubernetes[[]corev1.Volume]("extraVolumes", []any{}, "More volumes."),
		kubernetes[[]corev1.VolumeMount]("extraVolumeMounts", []any{}, "Where to mount them."),
		kubernetes[corev1.ResourceRequirements]("resources", object{
			"requests": object{"cpu": "100m", "memory": "128Mi", "ephemeral-storage": "64Mi"}, "limits": object{"memory": "1Gi", "ephemeral-storage": "512Mi"},
		}, "Requests and limits of the container. It keeps about 2 kB of memory for each watched object, and needs more while it starts: docs/sizing.md has the formula. Ephemeral storage is for logs, which the kubelet rotates; with `persistence.ephemeral`, the chart adds `persistence.size` to its limit."),
		kubernetes[corev1.Probe]("livenessProbe", object{"httpGet": object{"path": "/healthz", "port": "http"}}, "The liveness probe."),
		kubernetes[corev1.Probe]("readinessProbe", object{"httpGet": object{"path": "/readyz", "port": "http"}, "periodSeconds": 5},
			"The readiness probe: ready when the API server and the bus respond, and every first list is complete."),
		kubernetes[corev1.PodSecurityContext]("podSecurityContext", &corev1.PodSecurityContext{
			RunAsNonRoot: &yes, RunAsUser: &user, RunAsGroup: &user, FSGroup: &user, SeccompProfile: seccomp,
		}, "Security context of the pod, as the Pod Security Standard `restricted` requires."),
		kubernetes[corev1.SecurityContext]("securityContext", &corev1.SecurityContext{
			AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}, "Security context of the container, as the Pod Security Standard `restricted` requires."),
		{
			name: "hostUsers", preset: nil, kind: "true or false", form: object{"type": []string{"boolean", "null"}},
			description: "`false` runs the pod in a user namespace, so that its user is nobody on the node. It needs Kubernetes 1.33, Linux 6.3 and storage with idmapped mounts, which NFS lacks; a pod on another node doesn't start. Not set: the default of the cluster, `true`.",
		},
		number("terminationGracePeriodSeconds", 30, 1, 3600, "How long the pod may take to end: at least 10 seconds more than `config.drainTimeout`, because closing the bus can take 8 seconds more."),
		texts("podAnnotations", "Annotations of the pod."),
		texts("podLabels", "More labels of the pod. Labels of the chart take precedence."),
		text("priorityClassName", "", "Priority class of the pod."),
		texts("nodeSelector", "Labels of the nodes on which the pod may run."),
		kubernetes[[]corev1.Toleration]("tolerations", []any{}, "Tolerations of the pod."),
		kubernetes[corev1.Affinity]("affinity", object{}, "Affinity of the pod."),
		kubernetes[[]corev1.TopologySpreadConstraint]("topologySpreadConstraints", []any{}, "Topology spread constraints of the pod."),
	}
}

func names() []value {
	return []value{
		text("nameOverride", "", "Replaces the name of the chart in names and labels."),
		text("fullnameOverride", "", "Replaces the names of the release and the chart in names."),
		texts("commonLabels", "More labels of every object. Labels of the chart take precedence."),
		{
			name: "global", preset: object{}, kind: "map", form: object{"type": "object"},
			description: "Not used. Helm passes global values to the dependencies of a chart.",
		},
		boolean("enabled", true, "Not used. A chart that depends on this one can use it as a condition."),
	}
}
