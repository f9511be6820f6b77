package torture

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kuberelay/kuberelay/test/harness"
)

// otherCluster has the variables of a forwarder that writes to the bus for another cluster.
var otherCluster = map[string]string{"CLUSTER_NAME": "other"}

// clusters returns the cluster names of the forwarders in the world.
func (w *world) clusters() []string {
	names := map[string]bool{clusterName: true}
	for _, more := range w.more {
		if name, ok := more["CLUSTER_NAME"]; ok {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// messagesOf returns the messages of a cluster among those of a bus.
func messagesOf(cluster string, all []harness.Received) []harness.Received {
	var of []harness.Received
	for _, m := range all {
		if strings.HasPrefix(m.Subject, cluster+"/") || strings.HasPrefix(m.Subject, "kuberelay."+cluster+".") {
			of = append(of, m)
		}
	}
	return of
}

// inCluster returns objects with the partitionkey that they have in another cluster.
func inCluster(cluster string, objects map[string]unstructured.Unstructured) map[string]unstructured.Unstructured {
	all := map[string]unstructured.Unstructured{}
	for key, o := range objects {
		all[cluster+strings.TrimPrefix(key, clusterName)] = o
	}
	return all
}

// playClusters runs a forwarder of another cluster on the same bus. It must keep running while the
// first forwarder is killed in a publish and cut off from the bus, and after the bus has lost the
// last messages of both.
func playClusters(s *script) {
	s.create("changed", "deleted", "replaced", "same")
	s.begin(0)
	s.begin(1)

	s.do(act{do: arm, arg: "after-publish:1"})
	s.change(put, at("changed"))
	s.idle(1)
	s.onBus(at("changed"), 2)
	s.idle(0)

	s.do(act{do: busRefuse})
	s.do(act{do: awaitLog, arg: busTrouble})
	s.change(remove, at("deleted"))
	s.change(recreate, at("replaced"))
	s.idle(1)
	s.do(act{do: busPass})
	s.onBus(at("replaced"), 3)
	s.idle(0)

	s.kill(0)
	if s.settings.sink == onKafka {
		s.do(act{do: cutTail, arg: topicName, n: 1})
	} else {
		s.do(act{do: lose, n: 1000})
	}
	s.change(put, at("same"))
	s.idle(1)
	s.begin(0)
	s.change(put, at("changed"))
	s.idle(0)
	s.idle(1)
}
