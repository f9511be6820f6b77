package kafkabroker_test

import (
	"context"
	"testing"

	"github.com/kuberelay/kuberelay/test/lab/childprocess/childprocesstest"
	"github.com/kuberelay/kuberelay/test/lab/kafkabroker"
)

// startChild starts the processes that TestKilledParentLeavesNothing checks.
func startChild() (childprocesstest.Started, error) {
	b, err := kafkabroker.Start(context.Background(), kafkabroker.Options{})
	if err != nil {
		return childprocesstest.Started{}, err
	}
	return childprocesstest.Started{Dir: b.Dir(), Pids: b.Pids()}, nil
}

func TestKilledParentLeavesNothing(t *testing.T) { childprocesstest.KilledParent(t) }
