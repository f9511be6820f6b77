package broker

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// parallel limits the number of partitions that [Each] handles concurrently. Each partition uses one
// connection to its broker.
const parallel = 16

// Each calls do with 0 to n-1, up to parallel calls at a time, and returns the first error.
func Each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(parallel)
	for i := range n {
		all.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return do(ctx, i)
		})
	}
	return all.Wait()
}
