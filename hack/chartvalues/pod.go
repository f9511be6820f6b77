package main

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

func pod() []value {
	yes, no, user := true, false, int64(65532)
	seccomp := &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	return []value{
		kubernetes[[]corev1.EnvVar]("extraEnv", []any{}, "Additional environment variables. Set the forwarder's own variables in `config`."),
		kubernetes[[]corev1.EnvFromSource]("envFrom", []any{}, "ConfigMaps and Secrets whose entries become environment variables. The entries can't set the forwarder's own variables: if you use this value, the chart sets all of the forwarder's variables itself, including those with default values."),
		kubernetes[[]corev1.Volume]("extraVolumes", []any{}, "Additional volumes."),
		kubernetes[[]corev1.VolumeMount]("extraVolumeMounts", []any{}, "Mounts of the additional volumes."),
		text("kubeconfigSecret", "", "Secret with the kubeconfigs of several clusters, one in each key, to mount at `config.kubeconfigDir`. The key without its extension is the name of the cluster. New, changed, and removed keys take effect without a restart, after the kubelet has updated the volume. Not set: no Secret is mounted."),
		kubernetes[corev1.ResourceRequirements]("resources", object{
			"requests": object{"cpu": "100m", "memory": "128Mi", "ephemeral-storage": "64Mi"}, "limits": object{"memory": "1Gi", "ephemeral-storage": "512Mi"},
		}, "Requests and limits of the container. The forwarder keeps about 2 kB of memory for each watched object, and needs more while it starts: docs/sizing.md has the formula. Ephemeral storage is for logs, which the kubelet rotates. With `persistence.ephemeral`, the chart adds `persistence.size` to the limit of the ephemeral storage."),
		kubernetes[[]corev1.Container]("initContainers", []any{}, "Containers that run in the forwarder's pod before the forwarder. They can use its service account."),
		kubernetes[[]corev1.Container]("extraContainers", []any{}, "Containers that run in the forwarder's pod beside the forwarder. They can use its service account, and reach its built-in NATS server at the loopback address."),
		kubernetes[corev1.Probe]("startupProbe", object{}, "The startup probe. Not set: none, because the forwarder answers the liveness probe immediately after its start."),
		kubernetes[corev1.Probe]("livenessProbe", object{"httpGet": object{"path": "/healthz", "port": "http"}}, "The liveness probe."),
		kubernetes[corev1.Probe]("readinessProbe", object{"httpGet": object{"path": "/readyz", "port": "http"}, "periodSeconds": 5},
			"The readiness probe. The pod is ready when the API server and the bus respond, and every first list is complete."),
		kubernetes[corev1.PodSecurityContext]("podSecurityContext", &corev1.PodSecurityContext{
			RunAsNonRoot: &yes, RunAsUser: &user, RunAsGroup: &user, FSGroup: &user, SeccompProfile: seccomp,
		}, "Security context of the pod, as the Pod Security Standard `restricted` requires. With `openshift`, the chart omits users and groups with the ID 65532."),
		kubernetes[corev1.SecurityContext]("securityContext", &corev1.SecurityContext{
			AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}, "Security context of the container, as the Pod Security Standard `restricted` requires."),
		{
			name: "openshift", preset: nil, kind: "true or false", form: object{"type": []string{"boolean", "null"}},
			description: "Adapt to OpenShift, which chooses the user and the groups of the pod itself, and whose DNS servers listen on port 5353. Not set: true if the cluster serves security.openshift.io/v1, which `helm template` can't know without `--api-versions`.",
		},
		{
			name: "hostUsers", preset: nil, kind: "true or false", form: object{"type": []string{"boolean", "null"}},
			description: "`false` runs the pod in a user namespace, so that its user has no rights on the node. This requires Kubernetes 1.33, Linux 6.3, and storage that supports idmapped mounts, which NFS doesn't. On a node that lacks any of these, the pod doesn't start. Not set: the cluster's default, `true`.",
		},
		number("terminationGracePeriodSeconds", 30, 3600, "How long the pod may take to end: at least 10 seconds more than `config.drainTimeout`, because closing the bus can take 8 seconds more, and releasing the Lease 2 seconds."),
		{
			name: "revisionHistoryLimit", preset: nil, kind: "number", form: object{"type": []string{"integer", "null"}, "minimum": 0},
			description: "How many old revisions of the Deployment or StatefulSet to keep. Not set: the cluster's default, 10.",
		},
		kubernetes[appsv1.DeploymentStrategy]("strategy", object{}, "How an upgrade replaces the pods of the Deployment, with an external bus. Without `config.leaderElection`, only the type Recreate is allowed. Not set: with leader election, a rolling update in which a new pod is ready before an old one ends; otherwise Recreate."),
		texts("podAnnotations", "Annotations of the pod."),
		texts("podLabels", "Additional labels for the pod. The chart's labels take precedence."),
		text("priorityClassName", "", "Priority class of the pod."),
		text("runtimeClassName", "", "Runtime class of the pod."),
		kubernetes[[]corev1.HostAlias]("hostAliases", []any{}, "Additional entries in the pod's /etc/hosts."),
		kubernetes[corev1.PodDNSConfig]("dnsConfig", object{}, "Additional DNS settings of the pod."),
		texts("nodeSelector", "Labels of the nodes on which the pod may run."),
		kubernetes[[]corev1.Toleration]("tolerations", []any{}, "Tolerations of the pod."),
		kubernetes[corev1.Affinity]("affinity", object{}, "Affinity of the pod."),
		kubernetes[*[]corev1.TopologySpreadConstraint]("topologySpreadConstraints", nil, "Topology spread constraints of the pod. Not set: with more than one replica, the scheduler prefers a different node and zone for each pod. `[]`: no constraints."),
	}
}
