package pods

import (
	"bytes"
	_ "embed"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	texttemplate "text/template"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

var (
	teams    = strings.Fields("checkout search catalog payments identity shipping analytics media messaging platform")
	things   = strings.Fields("order cart invoice session profile inventory price review recommendation image video email push report ledger fraud address token index crawler feed coupon tax refund")
	kinds    = strings.Fields("api worker gateway consumer frontend indexer scheduler cache")
	backends = strings.Fields("postgres redis kafka elasticsearch mongodb rabbitmq vault s3 memcached cassandra")
	settings = strings.Fields("URL HOST PORT POOL_SIZE TIMEOUT_MS MAX_RETRIES TLS_MODE CONSUMER_GROUP KEY_PREFIX REGION")
	switches = strings.Fields("FEATURE_NEW_PRICING FEATURE_ASYNC_WRITES ENABLE_TRACING ENABLE_PROFILING STRICT_VALIDATION USE_IPV6 FEATURE_BULK_EXPORT ENABLE_RATE_LIMIT READ_ONLY_MODE FEATURE_DARK_LAUNCH")
)

//go:embed pod.yaml
var podYAML string

var podTemplate = texttemplate.Must(texttemplate.New("pod.yaml").Parse(podYAML))

// template has the values that the pods of one Deployment share.
type template struct {
	random
	Name, Team, Hash, Tag string // values of the Deployment, its ReplicaSet and its image
	UID, Checksum         string
	RestartedAt           string
	Env                   []variable
	Port, Grace           int
	CPU, MiB, Limit       int
	digests               [2]string // digests of the containers' images
	pod                   corev1.Pod
}

type variable struct{ Name, Value, Secret string }

type deployment struct {
	seed  uint64
	index int
}

// templates caches the templates by deployment.
var templates sync.Map

// templateOf creates each template once. If you change the order in which it draws random numbers, change
// Version, too.
func templateOf(d deployment) *template {
	if t, ok := templates.Load(d); ok {
		return t.(*template)
	}
	t := &template{random: random{rand.New(rand.NewPCG(d.seed, 2<<32|uint64(d.index)))}}
	t.Team = teams[d.index%len(teams)]
	t.Name = fmt.Sprintf("%s-%s-%s", t.Team, things[t.IntN(len(things))], kinds[t.IntN(len(kinds))])
	t.Hash = t.suffix(10)
	t.Tag = fmt.Sprintf("%d.%d.%d-%s", 1+t.IntN(9), t.IntN(40), t.IntN(20), t.hex(8))
	t.Port = 8000 + t.IntN(1000)
	t.UID, t.Checksum = t.uid(), t.hex(64)
	for i := range t.digests {
		t.digests[i] = "sha256:" + t.hex(64)
	}
	t.CPU, t.MiB = 100+50*t.IntN(20), 128<<t.IntN(4)
	t.Limit, t.Grace = 2*t.MiB, 30+d.index%3*30
	if d.index%3 == 0 {
		t.RestartedAt = fmt.Sprintf("2026-03-%02dT08:%02d:17Z", 1+d.index%28, d.index%60)
	}
	t.addEnvironment()
	var text bytes.Buffer
	err := podTemplate.Execute(&text, t)
	if err == nil {
		err = yaml.UnmarshalStrict(text.Bytes(), &t.pod)
	}
	if err != nil {
		panic(fmt.Sprintf("pod.yaml: %v", err)) // tests create a pod from every template
	}
	kept, _ := templates.LoadOrStore(d, t)
	return kept.(*template)
}

// addEnvironment adds the variables that describe the services a container uses.
func (t *template) addEnvironment() {
	for _, b := range t.Perm(len(backends))[:2] {
		prefix := strings.ToUpper(backends[b])
		t.Env = append(t.Env, variable{Name: prefix + "_PASSWORD", Secret: t.Name + "-" + backends[b]})
		for _, s := range t.Perm(len(settings))[:4] {
			t.Env = append(t.Env, variable{Name: prefix + "_" + settings[s], Value: t.setting(settings[s], backends[b])})
		}
	}
	for _, s := range t.Perm(len(switches))[:2] {
		t.Env = append(t.Env, variable{Name: switches[s], Value: fmt.Sprint(t.IntN(2) == 0)})
	}
}

func (t *template) setting(name, backend string) string {
	host := fmt.Sprintf("%s-%d.%s.svc.cluster.local", backend, t.IntN(6), t.Team)
	switch name {
	case "URL":
		return fmt.Sprintf("https://%s:%d/%s?pool=%d", host, 1024+t.IntN(40_000), t.Name, t.IntN(64))
	case "HOST":
		return host
	case "TLS_MODE":
		return "verify-full"
	case "CONSUMER_GROUP", "KEY_PREFIX":
		return t.Name + "-" + t.hex(4)
	case "REGION":
		return "eu-central-1"
	default:
		return fmt.Sprint(1 + t.IntN(30_000))
	}
}
