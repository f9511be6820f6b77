package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/test/lab/poll"
)

// TestMessagesAreDeletedByHand_Slow deletes the messages of a thousand objects from the stream. verify
// must name these objects. After the next refresh of the checkpoint, the bus must have the objects
// again, and verify must find no problem.
func TestMessagesAreDeletedByHand_Slow(t *testing.T) {
	const objects, lost = 1_200, 1_000
	bus := natsServer(t)
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := quietNamespace(t, u)
	inParallel(t, objects, func(n int) { u.create(configMaps, namespace, configMap(fmt.Sprintf("c%04d", n), "1")) })
	settings := map[string]string{"RESOURCES": "configmaps", "NAMESPACES": namespace, "CHECKPOINT_REFRESH": "1h"}
	f := newForwarder(t, cp.Kubeconfig(), bus.URL, settings)
	f.start().idle()

	js := jetStream(t, bus.URL)
	stream, err := js.Stream(t.Context(), "KUBERELAY")
	if err != nil {
		t.Fatal(err)
	}
	sub := subscribe(t, bus.URL)
	sub.end()
	left := lost
	for s, r := range sub.last() {
		if left > 0 && strings.Contains(s, ".configmaps."+namespace+".c") {
			if err := stream.DeleteMsg(t.Context(), r.sequence); err != nil {
				t.Fatal(err)
			}
			left--
		}
	}
	if left != 0 {
		t.Fatalf("%d messages: too few to delete", left)
	}
	if code, stdout, _ := f.run("verify", "--settle=100ms"); code != 1 || !strings.Contains(stdout, " 1,000 differences") {
		t.Errorf("verify: exit code %d: ...%s; want 1 and %d differences", code, stdout[max(0, len(stdout)-300):], lost)
	}
	f.stop()

	settings["CHECKPOINT_REFRESH"] = "1s"
	f = newForwarder(t, cp.Kubeconfig(), bus.URL, settings)
	f.start().idle()
	sub.end()
	before := sub.total()
	for s, r := range sub.last() {
		if left < lost && strings.Contains(s, ".configmaps."+namespace+".c") {
			if err := stream.DeleteMsg(t.Context(), r.sequence); err != nil {
				t.Fatal(err)
			}
			left++
		}
	}
	poll.Try(t, "verify is clean", func(context.Context) error {
		code, stdout, stderr := f.run("verify", "--settle=100ms")
		if code != 0 {
			return fmt.Errorf("exit code %d: %.300s %s", code, stdout, stderr)
		}
		return nil
	})
	sub.end()
	if got := sub.total() - before; got != lost {
		t.Errorf("%d messages were published, want the %d that were lost", got, lost)
	}
}
