package main

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// values gives all of the chart's values, in the order in which to show them. The Go
// types of k8s.io/api stand for Kubernetes' own forms.
func values(config value) []value {
	return slices.Concat(
		[]value{replicas(), image(), kubernetes[[]corev1.LocalObjectReference]("imagePullSecrets", []any{}, "Secrets with the registry's credentials."), config},
		rights(), storage(), network(), observation(), pod(), names(),
	)
}

func replicas() value {
	return value{
		name: "replicas", preset: nil, kind: "number",
		description: "How many forwarders run: one of them writes, the others stand by. 0 is for a pause. More than one need `config.leaderElection`. Not set: 2 with it, else 1.",
		form:        object{"type": []string{"integer", "null"}, "minimum": 0},
	}
}

func image() value {
	return section("image", "The container image.",
		text("repository", "ghcr.io/kuberelay/kuberelay", "Registry and name."),
		text("tag", "", "Tag. Not set: the chart's `appVersion`."),
		value{
			name: "digest", preset: "", kind: "text", description: "Digest, such as `sha256:…`, which wins over the tag.",
			form: object{"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
		},
		choice("pullPolicy", "IfNotPresent", "When to pull it.", "Always", "IfNotPresent", "Never"),
	)
}

func rights() []value {
	return []value{
		section("serviceAccount", "Who the forwarder is to the API server.",
			boolean("create", true, "Create it."),
			text("name", "", "Its name. Not set: the release's if it is created, else `default`."),
			texts("annotations", "Its annotations."),
		),
		section("rbac", "What the service account may do. Made from `config.resources` and `config.namespaces`: get, list and watch on these and nothing else, and what is switched on here.",
			boolean("create", true, "Create Roles, ClusterRole and their bindings. Without, bind rights yourself."),
			boolean("definitions", true, "Let it get, list and watch CustomResourceDefinitions, and list and watch APIServices, so that a new resource is watched at once. Without, it is found by polling discovery every 2 seconds."),
			boolean("clusterIdentity", true, "Let it get the namespace `kube-system`, whose UID tells clusters apart. Without, set `config.clusterName`; then it is not noticed if two clusters have one name."),
			list("clusterScoped", "Cluster-scoped custom resources among `config.resources`, such as `clusterissuers.cert-manager.io`, where `config.namespaces` is set: they get a ClusterRole, all others a Role in each namespace. Kubernetes' own are known.", `^[a-z0-9-]+\.[a-z0-9.-]+$`),
			boolean("secretsByWildcard", false, "Allow `*` in `config.resources`, by which the service account may read Secrets too: RBAC cannot leave them out of a wildcard. The forwarder reads them only if they are named."),
			kubernetes[[]rbacv1.PolicyRule]("extraRules", []any{}, "More rules where those of `config.resources` are: in a Role in each of `config.namespaces`, or in the ClusterRole. What `config.follow` leads to needs get, list and watch here."),
			kubernetes[[]rbacv1.PolicyRule]("extraClusterRules", []any{}, "More rules in the ClusterRole."),
		),
	}
}

func storage() []value {
	return []value{section("persistence", "A PersistentVolumeClaim for the files of the built-in NATS server, which runs where `config.sink` is nats and `config.natsUrl` is not set. Without, they go with the pod, and everything is published anew.",
		boolean("enabled", false, "Use one."),
		text("existingClaim", "", "Name of one that exists. Not set: one is created, and kept when the release is removed."),
		text("storageClass", "", "Its storage class. Not set: the cluster's default."),
		kubernetes[[]corev1.PersistentVolumeAccessMode]("accessModes", []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, "Its access modes."),
		text("size", "8Gi", "Its size."),
		texts("annotations", "Its annotations."),
	)}
}

func network() []value {
	anyPeer := []any{}
	return []value{
		section("service", "The Service, for metrics, and for the built-in NATS server where `config.natsListen` lets others reach it.",
			choice("type", "ClusterIP", "Its type.", "ClusterIP", "NodePort", "LoadBalancer"),
			number("port", 8080, 1, 65535, "Port of metrics and health."),
			number("natsPort", 4222, 1, 65535, "Port of the built-in NATS server."),
			texts("annotations", "Its annotations."),
		),
		section("networkPolicy", "The NetworkPolicy: out to DNS, the API server and the bus, in to metrics. An empty list of peers means any.",
			boolean("enabled", true, "Create it."),
			kubernetes[[]networkingv1.NetworkPolicyPeer]("dnsTo", anyPeer, "Where DNS is, port 53."),
			kubernetes[[]networkingv1.NetworkPolicyPeer]("apiServerTo", anyPeer, "Where the API server is. Its address is that of its endpoints, not of the Service `kubernetes`."),
			value{
				name: "apiServerPorts", preset: []int{443, 6443}, kind: "list of numbers", description: "Ports of the API server.",
				form: object{"type": "array", "items": object{"type": "integer", "minimum": 1, "maximum": 65535}},
			},
			kubernetes[[]networkingv1.NetworkPolicyPeer]("busTo", anyPeer, "Where the bus is. The ports are those of `config.natsUrl` or `config.kafkaBrokers`."),
			value{
				name: "busPorts", preset: []int{}, kind: "list of numbers", description: "More ports of the bus, such as those that Kafka's brokers advertise.",
				form: object{"type": "array", "items": object{"type": "integer", "minimum": 1, "maximum": 65535}},
			},
			kubernetes[[]networkingv1.NetworkPolicyPeer]("metricsFrom", anyPeer, "Who may read metrics and health."),
			kubernetes[[]networkingv1.NetworkPolicyPeer]("natsFrom", []any{object{"podSelector": object{}}}, "Who may reach the built-in NATS server, which asks for no credentials; by default the pods of its own namespace."),
			kubernetes[[]networkingv1.NetworkPolicyIngressRule]("extraIngress", []any{}, "More rules for what comes in."),
			kubernetes[[]networkingv1.NetworkPolicyEgressRule]("extraEgress", []any{}, "More rules for what goes out."),
		),
	}
}

// What the operator's types have that are not in k8s.io/api.
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
			texts("labels", "More labels, by which Prometheus selects it. The chart's own win."),
			text("interval", "", "How often to scrape. Not set: Prometheus' own."),
			text("scrapeTimeout", "", "How long a scrape may take. Not set: Prometheus' own."),
			kubernetes[[]relabeling]("relabelings", []any{}, "Relabelings of the target."),
			kubernetes[[]relabeling]("metricRelabelings", []any{}, "Relabelings of the metrics."),
		),
		section("prometheusRule", "Alerts for the Prometheus operator.",
			boolean("enabled", false, "Create them."),
			texts("labels", "More labels, by which Prometheus selects them. The chart's own win."),
			value{
				name: "for", preset: "15m", kind: "text", description: "How long something must be wrong before an alert fires.",
				form: object{"type": "string", "pattern": "^([0-9]+(ms|s|m|h|d|w|y))+$"},
			},
			texts("alertLabels", "Labels of every alert, beside `severity`."),
			kubernetes[[]alertingRule]("extraRules", []any{}, "More rules."),
		),
		section("podDisruptionBudget", "The PodDisruptionBudget.",
			boolean("enabled", true, "Create it."),
			kubernetes[*intstr.IntOrString]("minAvailable", nil, "How many must stay, instead of `maxUnavailable`. With one replica, 1 would keep its node from being drained."),
			kubernetes[*intstr.IntOrString]("maxUnavailable", 1, "How many may be away."),
		),
	}
}

func pod() []value {
	yes, no, user := true, false, int64(65532)
	seccomp := &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	return []value{
		kubernetes[[]corev1.EnvVar]("extraEnv", []any{}, "More environment variables. Those of the forwarder have values of their own, in `config`."),
		kubernetes[[]corev1.Volume]("extraVolumes", []any{}, "More volumes."),
		kubernetes[[]corev1.VolumeMount]("extraVolumeMounts", []any{}, "Where to mount them."),
		kubernetes[corev1.ResourceRequirements]("resources", object{
			"requests": object{"cpu": "100m", "memory": "128Mi"}, "limits": object{"memory": "1Gi"},
		}, "What the container gets. It keeps about 2 kB of memory for each object that is watched, and needs more while it starts: docs/sizing.md has the formula."),
		kubernetes[corev1.Probe]("livenessProbe", object{"httpGet": object{"path": "/healthz", "port": "http"}}, "When to restart it."),
		kubernetes[corev1.Probe]("readinessProbe", object{"httpGet": object{"path": "/readyz", "port": "http"}, "periodSeconds": 5},
			"When it is ready: API server and bus have answered, and every first list is in."),
		kubernetes[corev1.PodSecurityContext]("podSecurityContext", &corev1.PodSecurityContext{
			RunAsNonRoot: &yes, RunAsUser: &user, RunAsGroup: &user, FSGroup: &user, SeccompProfile: seccomp,
		}, "Of the pod, as Pod Security «restricted» wants it."),
		kubernetes[corev1.SecurityContext]("securityContext", &corev1.SecurityContext{
			AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}, "Of the container, likewise."),
		number("terminationGracePeriodSeconds", 30, 1, 3600, "How long it may take to end. More than `config.drainTimeout`."),
		texts("podAnnotations", "The pod's annotations."),
		texts("podLabels", "More labels of the pod. The chart's own win."),
		text("priorityClassName", "", "Its priority class."),
		texts("nodeSelector", "Labels of the nodes on which it may run."),
		kubernetes[[]corev1.Toleration]("tolerations", []any{}, "Taints that it tolerates."),
		kubernetes[corev1.Affinity]("affinity", object{}, "Where it would rather run."),
		kubernetes[[]corev1.TopologySpreadConstraint]("topologySpreadConstraints", []any{}, "How replicas are spread."),
	}
}

func names() []value {
	return []value{
		text("nameOverride", "", "Instead of the chart's name in names and labels."),
		text("fullnameOverride", "", "Instead of the release's and the chart's name in names."),
		texts("commonLabels", "More labels of everything. The chart's own win."),
		{
			name: "global", preset: object{}, kind: "map", form: object{"type": "object"},
			description: "Not used. Helm hands a chart's dependencies the values that are global in it.",
		},
		boolean("enabled", true, "Not used. A chart that depends on this one may have its condition here."),
	}
}
