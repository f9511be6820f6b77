package e2e

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/test/lab/natstest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

func natsServer(t *testing.T) *natstest.Process {
	t.Helper()
	return natstest.StartProcess(t)
}

// forTest returns a view of the subscriber for another test.
func (s *subscriber) forTest(t *testing.T) *view { return &view{s, t} }

// view is a subscriber that reports failures to a subtest.
type view struct {
	*subscriber
	t *testing.T
}

// checkReplica verifies that the last events of the sampled resources equal the objects that the
// API server lists.
func checkReplica(t *testing.T, u *user, sub *subscriber, of []sample) {
	t.Helper()
	for _, s := range of {
		checkReplicaOf(t, u, sub, s.gvr)
	}
}

func checkReplicaOf(t *testing.T, u *user, sub *subscriber, gvr schema.GroupVersionResource) {
	t.Helper()
	checkReplicaIn(t, u, sub, gvr, metav1.NamespaceAll)
}

func checkReplicaIn(t *testing.T, u *user, sub *subscriber, gvr schema.GroupVersionResource, namespace string) {
	t.Helper()
	poll.Try(t, "the bus has every "+gvr.Resource+" as it is", func(ctx context.Context) error {
		list, err := u.of(gvr, namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		onBus := map[string]received{}
		group := strings.Split(subject(gvr, "", ""), ".")[2]
		for subject, r := range sub.last() {
			tokens := strings.Split(subject, ".")
			if tokens[2] == group && tokens[3] == gvr.Resource && r.kind() != "deleted" {
				onBus[r.attribute("uid")] = r
			}
		}
		for n := range list.Items {
			o := &list.Items[n]
			r, ok := onBus[string(o.GetUID())]
			if !ok {
				return fmt.Errorf("%s/%s is not on the bus", o.GetNamespace(), o.GetName())
			}
			delete(onBus, string(o.GetUID()))
			if got, want := decode(t, r.data), asPublished(o); !reflect.DeepEqual(got, want) {
				return fmt.Errorf("%s/%s differs:\n got %v\nwant %v", o.GetNamespace(), o.GetName(), got, want)
			}
		}
		for _, r := range onBus {
			return fmt.Errorf("%s is on the bus and not in the cluster", r.subject)
		}
		return nil
	})
}
