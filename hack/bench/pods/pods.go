// Package pods makes pods for benchmarks as they are in a large cluster, so that what
// is measured on them, compression above all, is not better than it would be there.
//
// They are the pods of some 50 Deployments for every 20,000. Those of one Deployment
// have all in common that comes from its template, and nothing else: names, nodes,
// addresses, container ids, times, restarts and the token volume's name are each pod's
// own. With the managedFields that an API server adds when [Pod] is created by
// kube-controller-manager and its status written by the kubelet, a pod has about
// 14 KB as JSON.
//
// The same seed and number make the same pod, whatever was made before.
package pods

import (
	"fmt"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// Version changes with what the generator makes: clusters that are kept filled are
	// filled anew then.
	Version = "1"

	deployments = 50     // in each block
	block       = 20_000 // pods
	podsOnNode  = 40
)

// Namespaces are those that the pods are in.
func Namespaces() []string {
	names := make([]string, len(teams))
	for i, team := range teams {
		names[i] = "team-" + team
	}
	return names
}

// Pod makes the i-th pod, its status included, as it is when it has been running for
// a while.
func Pod(seed uint64, i int) *corev1.Pod {
	t := newTemplate(seed, i/block*deployments+i%deployments)
	o := own{rand.New(rand.NewPCG(seed, 1<<32|uint64(i)))}
	pod := t.pod()
	pod.GenerateName = t.name + "-" + t.hash + "-"
	// The number keeps two pods from having one name by chance, and shows nowhere else.
	pod.Name = pod.GenerateName + o.suffix(3) + spell(i)
	pod.Spec.NodeName = fmt.Sprintf("ip-10-%d-%d-%d.eu-central-1.compute.internal", 16+t.index%4, o.IntN(4), o.IntN(1+block/podsOnNode))
	pod.Status = o.status(t, pod)
	pod.Annotations["cni.projectcalico.org/containerID"] = o.hex(64)
	pod.Annotations["cni.projectcalico.org/podIP"] = pod.Status.PodIP + "/32"
	pod.Annotations["cni.projectcalico.org/podIPs"] = pod.Status.PodIP + "/32"
	o.token(pod)
	return pod
}

// Touched tells whether somebody has labelled the i-th pod by hand, with kubectl.
func Touched(i int) bool { return i%10 == 3 }

// own is what a pod has to itself.
type own struct{ *rand.Rand }

const letters = "bcdfghjklmnpqrstvwxz2456789" // those of apimachinery's names

func (o own) suffix(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = letters[o.IntN(len(letters))]
	}
	return string(b)
}

// spell writes a number in the letters of names.
func spell(i int) string {
	text := ""
	for ; i > 0 || text == ""; i /= len(letters) {
		text += string(letters[i%len(letters)])
	}
	return text
}

func (o own) hex(n int) string {
	const digits = "0123456789abcdef"
	b := make([]byte, n)
	for i := range b {
		b[i] = digits[o.IntN(len(digits))]
	}
	return string(b)
}

func (o own) uid() types.UID {
	return types.UID(fmt.Sprintf("%s-%s-4%s-8%s-%s", o.hex(8), o.hex(4), o.hex(3), o.hex(3), o.hex(12)))
}

func (o own) address() string {
	return fmt.Sprintf("10.%d.%d.%d", 64+o.IntN(64), o.IntN(256), o.IntN(256))
}

// token names the volume that the ServiceAccount's token is in.
func (o own) token(pod *corev1.Pod) {
	name := "kube-api-access-" + o.suffix(5)
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].Projected != nil {
			pod.Spec.Volumes[i].Name = name
		}
	}
	for i := range pod.Spec.Containers {
		mounts := pod.Spec.Containers[i].VolumeMounts
		for j := range mounts {
			if mounts[j].MountPath == tokenPath {
				mounts[j].Name = name
			}
		}
	}
}

func pointer[T any](v T) *T { return &v }

func field(path string) *corev1.EnvVarSource {
	return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}
}

func secret(name, key string) *corev1.EnvVarSource {
	return &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key}}
}

func objectMeta(namespace string, labels, annotations map[string]string, owner metav1.OwnerReference) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Labels: labels, Annotations: annotations, OwnerReferences: []metav1.OwnerReference{owner}}
}
