package kafka

import (
	"fmt"
	"testing"
	"time"

	"github.com/kuberelay/kuberelay/internal/publish"
	"github.com/kuberelay/kuberelay/test/lab/publishtest"
)

// TestARetryAfterTheBrokerStartsAgain verifies that an event is not stored twice if the broker
// restarts before a retry. The events were observed days ago. The broker stores the second one, its
// acknowledgement is lost, and the broker restarts. The broker uses the timestamps of records to
// decide which producers to forget. It would store the batch of a forgotten producer again.
func TestARetryAfterTheBrokerStartsAgain(t *testing.T) {
	kb, proxy := proxiedBroker(t)
	o := testOptions(proxy.Addr())
	o.AckTimeout = 10 * time.Minute // the broker may take long to start
	bus := openBus(t, o)
	if err := bus.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	old := publishtest.Object{Name: "web", Version: 1, Observed: time.Now().Add(-72 * time.Hour)}
	type result struct {
		position uint64
		err      error
	}
	done := make(chan result, 1)
	give := func(position uint64, err error) { done <- result{position, err} }
	bus.Publish(t.Context(), old.Message(t, 0), give)
	first := <-done
	if first.err != nil {
		t.Fatal(first.err)
	}

	proxy.DropAnswers()
	old.Version = 2
	bus.Publish(t.Context(), old.Message(t, first.position), give)
	partition := publish.Partition(first.position)
	await(t, "stored", func() error {
		if end := endOffsets(t.Context(), t, kb.Addr(), o.Topic)[partition]; end <= publish.Offset(first.position)+1 {
			return fmt.Errorf("the partition ends at %d", end)
		}
		return nil
	})
	kb.Stop() // not Kill, so that the broker saves its producer state
	kb.Start()
	proxy.Break()
	proxy.Pass()
	second := <-done
	if second.err != nil {
		t.Fatal(second.err)
	}
	if got := readEvents(t, kb.Addr(), old.Key()); len(got) != 2 || got[1].Position != second.position {
		t.Errorf("the topic holds %v, want two events, and the second at %d", got, second.position)
	}
}
