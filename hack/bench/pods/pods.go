// Package pods generates pods for benchmarks that resemble the pods of a large cluster. Uniform pods
// would compress too well and make the results look better than they are.
//
// Each block of 20,000 pods has 50 Deployments. The pods of one Deployment share the fields of its
// template (pod.yaml). Their names, nodes, addresses, container IDs, times, restarts and the name of
// the token volume differ. A pod has about 14 KB as JSON, including the managedFields that an API
// server adds when kube-controller-manager creates a [Pod] and the kubelet writes its status.
//
// The same seed and number always result in the same pod.
package pods

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// Version changes when the generated pods change. The benchmark does not use cached clusters of
	// another version.
	Version = "1"

	deployments = 50     // Deployments per block
	block       = 20_000 // pods per block
	podsOnNode  = 40
)

// Namespaces returns the namespaces of the pods.
func Namespaces() (names []string) {
	for _, team := range teams {
		names = append(names, "team-"+team)
	}
	return names
}

// Touched reports whether a user labels the i-th pod with kubectl.
func Touched(i int) bool { return i%10 == 3 }

// Pod returns the i-th pod. Its status is that of a pod that has been running for a while.
func Pod(seed uint64, i int) *corev1.Pod {
	index := i/block*deployments + i%deployments
	t := templateOf(deployment{seed, index})
	r := random{rand.New(rand.NewPCG(seed, 1<<32|uint64(i)))}
	pod := t.pod.DeepCopy()
	pod.GenerateName = t.Name + "-" + t.Hash + "-"
	pod.Name = pod.GenerateName + r.suffix(3) + spell(i) // the number makes the name unique
	pod.Spec.NodeName = fmt.Sprintf("ip-10-%d-%d-%d.eu-central-1.compute.internal", 16+index%4, r.IntN(4), r.IntN(1+block/podsOnNode))
	pod.Status = r.status(t)
	pod.Annotations["cni.projectcalico.org/containerID"] = r.hex(64)
	pod.Annotations["cni.projectcalico.org/podIP"] = pod.Status.PodIP + "/32"
	pod.Annotations["cni.projectcalico.org/podIPs"] = pod.Status.PodIP + "/32"
	token := "kube-api-access-" + r.suffix(5)
	pod.Spec.Volumes[2].Name = token
	for c := range pod.Spec.Containers {
		pod.Spec.Containers[c].VolumeMounts[len(pod.Spec.Containers[c].VolumeMounts)-1].Name = token
	}
	return pod
}

// epoch is earlier than every time in a status.
var epoch = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// status returns the status of a running pod. One container in eight has restarted.
func (r random) status(t *template) corev1.PodStatus {
	began := epoch.Add(time.Duration(r.IntN(30*24*3600)) * time.Second)
	later := func(seconds int) metav1.Time { return metav1.NewTime(began.Add(time.Duration(seconds) * time.Second)) }
	ready, yes, start := 5+r.IntN(90), true, later(0)
	host, address := r.address(), r.address()
	s := corev1.PodStatus{
		Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable, StartTime: &start,
		HostIP: host, HostIPs: []corev1.HostIP{{IP: host}}, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}},
	}
	for i, kind := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		after := []int{3, 0, ready, ready, 0}[i]
		s.Conditions = append(s.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: later(after)})
	}
	for i, c := range t.pod.Spec.Containers {
		repository := c.Image[:strings.LastIndexByte(c.Image, ':')]
		cs := corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: repository + "@" + t.digests[i], ContainerID: "containerd://" + r.hex(64),
			Ready: true, Started: &yes, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: later(2 + i)}},
		}
		if r.IntN(8) == 0 {
			cs.RestartCount = int32(1 + r.IntN(20))
			cs.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
				ExitCode: 137, Reason: "OOMKilled", ContainerID: "containerd://" + r.hex(64), StartedAt: later(2 + i), FinishedAt: later(100 + r.IntN(1_000_000)),
			}
		}
		s.ContainerStatuses = append(s.ContainerStatuses, cs)
	}
	return s
}

// random draws the values that differ between Deployments or pods.
type random struct{ *rand.Rand }

const letters = "bcdfghjklmnpqrstvwxz2456789" // the alphabet of apimachinery's generated names

func (r random) draw(n int, from string) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = from[r.IntN(len(from))]
	}
	return string(b)
}

func (r random) suffix(n int) string { return r.draw(n, letters) }
func (r random) hex(n int) string    { return r.draw(n, "0123456789abcdef") }

func (r random) uid() string {
	return fmt.Sprintf("%s-%s-4%s-8%s-%s", r.hex(8), r.hex(4), r.hex(3), r.hex(3), r.hex(12))
}

func (r random) address() string {
	return fmt.Sprintf("10.%d.%d.%d", 64+r.IntN(64), r.IntN(256), r.IntN(256))
}

// spell returns a number as text in the alphabet of generated names.
func spell(i int) (text string) {
	for ; i > 0 || text == ""; i /= len(letters) {
		text += string(letters[i%len(letters)])
	}
	return text
}
