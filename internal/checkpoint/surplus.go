package checkpoint

import (
	"maps"
	"math"
	"slices"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/ledger"
)

// deleteBytes is the memory that a deleted object takes until its events are purged, including
// garbage. See Deleted and GC in internal/sizing.
const deleteBytes = 1200

// MaxDeletes returns the number of deletes that fit in half of a memory limit. The limit is in
// bytes. [math.MaxInt64] means no limit.
func MaxDeletes(memoryLimit int64) int {
	if memoryLimit == math.MaxInt64 {
		return 500_000
	}
	return max(1000, int(memoryLimit/2/deleteBytes))
}

// surplus returns the deletes to purge before the end of their retention period, so that at most
// limit deletes are kept. It takes the oldest deletes of the namespaces that have the most deletes.
// So a namespace with many deletes does not shorten the retention period of the others. surplus
// leaves out deletes that the bus stored at an unknown time, or after latest, in Unix milliseconds.
func surplus(acked *ledger.Term, limit int, latest int64) map[event.Key]event.Acked {
	kept := map[string]int{}       // by namespace
	stored := map[string][]int64{} // times of the deletes that may be purged, by namespace
	for k, a := range acked.Removals() {
		if a.Foreign {
			continue
		}
		kept[k.Namespace]++
		if a.Time != 0 && a.Time <= latest {
			stored[k.Namespace] = append(stored[k.Namespace], a.Time)
		}
	}
	share := fairShare(slices.Collect(maps.Values(kept)), limit)
	type purge struct {
		before int64 // all deletes that the bus stored before this time
		at     int   // and this number of the deletes stored at this time
	}
	purges := map[string]purge{}
	for namespace, times := range stored {
		n := min(kept[namespace]-share, len(times))
		if n <= 0 {
			continue
		}
		slices.Sort(times)
		p := purge{before: times[n-1]}
		first, _ := slices.BinarySearch(times, p.before)
		p.at = n - first
		purges[namespace] = p
	}
	due := map[event.Key]event.Acked{}
	if len(purges) == 0 {
		return due
	}
	for k, a := range acked.Removals() {
		p, ok := purges[k.Namespace]
		switch {
		case !ok || a.Foreign || a.Time == 0 || a.Time > p.before:
			continue
		case a.Time == p.before:
			if p.at == 0 {
				continue
			}
			p.at--
			purges[k.Namespace] = p
		}
		due[k] = a
	}
	return due
}

// fairShare returns the largest n for which the sum of the counts, each limited to n, is at most
// limit.
func fairShare(counts []int, limit int) int {
	slices.Sort(counts)
	for i, count := range counts {
		if n := limit / (len(counts) - i); count > n {
			return n
		}
		limit -= count
	}
	if len(counts) == 0 {
		return limit
	}
	return counts[len(counts)-1]
}
