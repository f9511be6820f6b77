package broker

import (
	"testing"

	"github.com/kuberelay/kuberelay/internal/publish/kafka/failure"
)

func TestKindsOfOwnErrors(t *testing.T) {
	for err, want := range map[error]failure.Kind{ErrNoTopic: failure.Retry, errThrottled: failure.Retry, ErrPastEnd: failure.Never} {
		if got := failure.KindOf(err); got != want {
			t.Errorf("%v: got kind %d, want %d", err, got, want)
		}
	}
}
