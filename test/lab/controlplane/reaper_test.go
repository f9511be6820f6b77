package controlplane_test

import (
	"context"
	"testing"

	"github.com/kuberelay/kuberelay/test/lab/childprocess/childprocesstest"
	"github.com/kuberelay/kuberelay/test/lab/controlplane"
)

// startChild starts the processes that TestKilledParentLeavesNothing_Slow checks.
func startChild() (childprocesstest.Started, error) {
	cp, err := controlplane.Start(context.Background(), controlplane.Options{})
	if err != nil {
		return childprocesstest.Started{}, err
	}
	return childprocesstest.Started{Dir: cp.Dir(), Pids: cp.Pids()}, nil
}

func TestKilledParentLeavesNothing_Slow(t *testing.T) { childprocesstest.KilledParent(t) }
