package pods

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

var (
	teams  = []string{"checkout", "search", "catalog", "payments", "identity", "shipping", "analytics", "media", "messaging", "platform"}
	things = []string{
		"order", "cart", "invoice", "session", "profile", "inventory", "price", "review", "recommendation", "image", "video",
		"email", "push", "report", "ledger", "fraud", "address", "token", "index", "crawler", "feed", "coupon", "tax", "refund",
	}
	kinds    = []string{"api", "worker", "gateway", "consumer", "frontend", "indexer", "scheduler", "cache"}
	backends = []string{"postgres", "redis", "kafka", "elasticsearch", "mongodb", "rabbitmq", "vault", "s3", "memcached", "cassandra"}
	settings = []string{
		"URL", "HOST", "PORT", "POOL_SIZE", "TIMEOUT_MS", "MAX_RETRIES", "TLS_MODE", "CONSUMER_GROUP", "KEY_PREFIX", "REGION",
	}
	switches = []string{
		"FEATURE_NEW_PRICING", "FEATURE_ASYNC_WRITES", "ENABLE_TRACING", "ENABLE_PROFILING", "STRICT_VALIDATION", "USE_IPV6",
		"FEATURE_BULK_EXPORT", "ENABLE_RATE_LIMIT", "READ_ONLY_MODE", "FEATURE_DARK_LAUNCH",
	}
)

const tokenPath = "/var/run/secrets/kubernetes.io/serviceaccount"

// template is what the pods of one Deployment have in common.
type template struct {
	own
	index      int
	name, team string
	hash       string // of the ReplicaSet
	tag        string // of the image
	port       int32
	owner      metav1.OwnerReference
	env        []corev1.EnvVar
	checksum   string
	digests    [2]string // of the containers' images
	cpu, mib   int64
}

func newTemplate(seed uint64, index int) *template {
	t := &template{own: own{rand.New(rand.NewPCG(seed, 2<<32|uint64(index)))}, index: index}
	t.team = teams[index%len(teams)]
	t.name = fmt.Sprintf("%s-%s-%s", t.team, things[t.IntN(len(things))], kinds[t.IntN(len(kinds))])
	t.hash = t.suffix(10)
	t.tag = fmt.Sprintf("%d.%d.%d-%s", 1+t.IntN(9), t.IntN(40), t.IntN(20), t.hex(8))
	t.port = int32(8000 + t.IntN(1000))
	t.owner = metav1.OwnerReference{
		APIVersion: "apps/v1", Kind: "ReplicaSet", Name: t.name + "-" + t.hash, UID: t.uid(), Controller: pointer(true), BlockOwnerDeletion: pointer(true),
	}
	t.checksum = t.hex(64)
	for i := range t.digests {
		t.digests[i] = "sha256:" + t.hex(64)
	}
	t.cpu, t.mib = int64(100+50*t.IntN(20)), int64(128<<t.IntN(4))
	t.env = t.environment()
	return t
}

// environment is what a service is told of the others that it uses.
func (t *template) environment() []corev1.EnvVar {
	env := []corev1.EnvVar{
		{Name: "POD_NAME", ValueFrom: field("metadata.name")},
		{Name: "POD_NAMESPACE", ValueFrom: field("metadata.namespace")},
		{Name: "NODE_NAME", ValueFrom: field("spec.nodeName")},
		{Name: "ENVIRONMENT", Value: "production"},
		{Name: "SERVICE_NAME", Value: t.name},
		{Name: "OTEL_RESOURCE_ATTRIBUTES", Value: "service.name=" + t.name + ",service.version=" + t.tag + ",deployment.environment=production"},
	}
	for _, b := range t.Perm(len(backends))[:2] {
		prefix := strings.ToUpper(backends[b])
		env = append(env, corev1.EnvVar{Name: prefix + "_PASSWORD", ValueFrom: secret(t.name+"-"+backends[b], "password")})
		for _, s := range t.Perm(len(settings))[:4] {
			env = append(env, corev1.EnvVar{Name: prefix + "_" + settings[s], Value: t.setting(settings[s], backends[b])})
		}
	}
	for _, s := range t.Perm(len(switches))[:2] {
		env = append(env, corev1.EnvVar{Name: switches[s], Value: fmt.Sprint(t.IntN(2) == 0)})
	}
	return env
}

func (t *template) setting(name, backend string) string {
	host := fmt.Sprintf("%s-%d.%s.svc.cluster.local", backend, t.IntN(6), t.team)
	switch name {
	case "URL":
		return fmt.Sprintf("https://%s:%d/%s?pool=%d", host, 1024+t.IntN(40_000), t.name, t.IntN(64))
	case "HOST":
		return host
	case "TLS_MODE":
		return "verify-full"
	case "CONSUMER_GROUP", "KEY_PREFIX":
		return t.name + "-" + t.hex(4)
	case "REGION":
		return "eu-central-1"
	default:
		return fmt.Sprint(1 + t.IntN(30_000))
	}
}

// pod makes a pod of the template; it shares nothing with another.
func (t *template) pod() *corev1.Pod {
	labels := map[string]string{
		"app.kubernetes.io/name": t.name, "app.kubernetes.io/instance": t.name + "-production", "app.kubernetes.io/version": t.tag,
		"app.kubernetes.io/part-of": t.team, "app.kubernetes.io/managed-by": "Helm",
		"pod-template-hash": t.hash, "security.istio.io/tlsMode": "istio",
	}
	annotations := map[string]string{
		"checksum/config": t.checksum, "prometheus.io/scrape": "true", "prometheus.io/port": "15020", "prometheus.io/path": "/stats/prometheus",
		"kubectl.kubernetes.io/default-container": "app",
		"sidecar.istio.io/status": `{"initContainers":null,"containers":["istio-proxy"],"volumes":["istio-envoy","istio-data"],` +
			`"imagePullSecrets":null,"revision":"1-24"}`,
	}
	if t.index%3 == 0 {
		annotations["kubectl.kubernetes.io/restartedAt"] = fmt.Sprintf("2026-03-%02dT08:%02d:17Z", 1+t.index%28, t.index%60)
	}
	pod := &corev1.Pod{ObjectMeta: objectMeta("team-"+t.team, labels, annotations, t.owner)}
	pod.Spec = corev1.PodSpec{
		ServiceAccountName: t.name, PriorityClassName: "", EnableServiceLinks: pointer(false),
		RestartPolicy: corev1.RestartPolicyAlways, DNSPolicy: corev1.DNSClusterFirst, SchedulerName: "default-scheduler",
		TerminationGracePeriodSeconds: pointer(int64(30 + t.index%3*30)),
		SecurityContext:               &corev1.PodSecurityContext{RunAsNonRoot: pointer(true), FSGroup: pointer(int64(1337))},
		ImagePullSecrets:              []corev1.LocalObjectReference{{Name: "registry-credentials"}},
		NodeSelector:                  map[string]string{"kubernetes.io/arch": "amd64"},
		Containers:                    []corev1.Container{t.app(), t.proxy()},
		Volumes: []corev1.Volume{
			{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: t.name + "-config"}, DefaultMode: pointer(int32(420)),
			}}},
			{Name: "istio-envoy", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
			tokenVolume(),
		},
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		c.ImagePullPolicy = corev1.PullIfNotPresent
		c.TerminationMessagePath, c.TerminationMessagePolicy = "/dev/termination-log", corev1.TerminationMessageReadFile
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{MountPath: tokenPath, ReadOnly: true})
		c.SecurityContext = &corev1.SecurityContext{
			AllowPrivilegeEscalation: pointer(false), ReadOnlyRootFilesystem: pointer(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}
	}
	return pod
}

func tokenVolume() corev1.Volume {
	return corev1.Volume{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: pointer(int32(420)), Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: pointer(int64(3607)), Path: "token"}},
		{ConfigMap: &corev1.ConfigMapProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
		}},
		{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
			{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}},
		}}},
	}}}}
}

func (t *template) app() corev1.Container {
	return corev1.Container{
		Name: "app", Image: "registry.example.com/" + t.team + "/" + t.name + ":" + t.tag,
		Args: []string{"--config=/etc/app/config.yaml", fmt.Sprintf("--listen=:%d", t.port)},
		Env:  t.env,
		Ports: []corev1.ContainerPort{
			{Name: "http", ContainerPort: t.port, Protocol: corev1.ProtocolTCP},
		},
		Resources:      resources(t.cpu, t.mib),
		LivenessProbe:  t.probe("/healthz", 10),
		ReadinessProbe: t.probe("/readyz", 5),
		VolumeMounts: []corev1.VolumeMount{
			{Name: "config", MountPath: "/etc/app", ReadOnly: true},
		},
	}
}

func (t *template) probe(path string, period int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:     corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString("http"), Scheme: corev1.URISchemeHTTP}},
		FailureThreshold: 3, PeriodSeconds: period, SuccessThreshold: 1, TimeoutSeconds: 2,
	}
}

func (t *template) proxy() corev1.Container {
	return corev1.Container{
		Name: "istio-proxy", Image: "registry.example.com/mesh/proxyv2:1.24.3",
		Args: []string{"proxy", "sidecar", "--domain", "$(POD_NAMESPACE).svc.cluster.local", "--proxyLogLevel=warning", "--log_output_level=default:info"},
		Env: []corev1.EnvVar{
			{Name: "PILOT_CERT_PROVIDER", Value: "istiod"}, {Name: "CA_ADDR", Value: "istiod.istio-system.svc:15012"},
			{Name: "POD_NAMESPACE", ValueFrom: field("metadata.namespace")}, {Name: "INSTANCE_IP", ValueFrom: field("status.podIP")},
			{Name: "ISTIO_META_WORKLOAD_NAME", Value: t.name},
			{Name: "ISTIO_META_OWNER", Value: "kubernetes://apis/apps/v1/namespaces/team-" + t.team + "/deployments/" + t.name},
		},
		Ports:          []corev1.ContainerPort{{Name: "http-envoy-prom", ContainerPort: 15090, Protocol: corev1.ProtocolTCP}},
		Resources:      resources(100, 128),
		ReadinessProbe: t.probe("/healthz/ready", 15),
		VolumeMounts:   []corev1.VolumeMount{{Name: "istio-envoy", MountPath: "/etc/istio/proxy"}},
	}
}

func resources(milli, mib int64) corev1.ResourceRequirements {
	requests := corev1.ResourceList{
		corev1.ResourceCPU: *resource.NewMilliQuantity(milli, resource.DecimalSI), corev1.ResourceMemory: *resource.NewQuantity(mib<<20, resource.BinarySI),
	}
	limits := maps.Clone(requests)
	limits[corev1.ResourceMemory] = *resource.NewQuantity(mib<<21, resource.BinarySI)
	return corev1.ResourceRequirements{Requests: requests, Limits: limits}
}
