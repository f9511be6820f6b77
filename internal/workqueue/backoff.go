package workqueue

import (
	"math"
	"math/rand/v2"
	"time"

	kubequeue "k8s.io/client-go/util/workqueue"
)

// backoff is client-go's per-item exponential backoff with jitter. The jitter spreads the retries
// of thousands of keys that failed together because the bus became unavailable.
type backoff struct {
	kubequeue.TypedRateLimiter[item]
}

func newBackoff(base, longest time.Duration) backoff {
	return backoff{kubequeue.NewTypedItemExponentialFailureRateLimiter[item](base, longest)}
}

// When returns a random delay between 0.5 and 1.5 times the exponential delay.
func (b backoff) When(key item) time.Duration {
	d := b.TypedRateLimiter.When(key)
	if d > math.MaxInt64/2 {
		return d
	}
	return d/2 + rand.N(d+1)
}
