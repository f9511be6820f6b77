package pods

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// epoch is before all times in a status.
var epoch = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// status is that of a running pod. One in eight has had a container that ended.
func (o own) status(t *template, pod *corev1.Pod) corev1.PodStatus {
	began := epoch.Add(time.Duration(o.IntN(30*24*3600)) * time.Second)
	later := func(seconds int) metav1.Time { return metav1.NewTime(began.Add(time.Duration(seconds) * time.Second)) }
	ready := 5 + o.IntN(90)
	host, address := o.address(), o.address()
	s := corev1.PodStatus{
		Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable, StartTime: pointer(later(0)),
		HostIP: host, HostIPs: []corev1.HostIP{{IP: host}}, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}},
	}
	for i, kind := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		after := []int{3, 0, ready, ready, 0}[i]
		s.Conditions = append(s.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: later(after)})
	}
	for i, c := range pod.Spec.Containers {
		cs := corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: imageID(c.Image, t.digests[i]), ContainerID: "containerd://" + o.hex(64),
			Ready: true, Started: pointer(true), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: later(2 + i)}},
		}
		if o.IntN(8) == 0 {
			cs.RestartCount = int32(1 + o.IntN(20))
			cs.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
				ExitCode: 137, Reason: "OOMKilled", ContainerID: "containerd://" + o.hex(64), StartedAt: later(2 + i), FinishedAt: later(100 + o.IntN(1_000_000)),
			}
		}
		s.ContainerStatuses = append(s.ContainerStatuses, cs)
	}
	return s
}

// imageID names an image by its digest in place of its tag.
func imageID(image, digest string) string {
	for i := len(image) - 1; i >= 0; i-- {
		if image[i] == ':' {
			return image[:i] + "@" + digest
		}
	}
	return image + "@" + digest
}
