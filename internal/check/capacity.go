package check

import (
	"fmt"

	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/sizing"
)

// capacityChecks returns the checks that compare memory and storage with docs/sizing.md.
func capacityChecks() []Check {
	const group = "capacity"
	return []Check{
		{ID: "memory-limit", Group: group, check: withSelection(checkMemory)},
		{ID: "bus-storage", Group: group, sink: config.SinkNATS, check: withSelection(checkStorage)},
	}
}

// load is the number of watched objects and their average size in a watch.
type load struct{ objects, bytes int64 }

// String describes the load in a few words.
func (l load) String() string {
	return fmt.Sprintf("%d %s of %d bytes on average", l.objects, plural(int(l.objects), "object"), l.bytes)
}

// load adds up the lists. If that is impossible, why is the reason.
func (f *Facts) load() (l load, why string) {
	var total int64
	for _, r := range f.Lists {
		switch {
		case r.Err != nil:
			return l, fmt.Sprintf("%s cannot be listed", r.Resource)
		case r.Objects < 0:
			if s := selectors(f.Settings.Watch); s != "" {
				return l, fmt.Sprintf("the API server does not report the number of objects that match %s; docs/sizing.md has the formula", s)
			}
			return l, fmt.Sprintf("the API server does not report the number of %s; docs/sizing.md has the formula", r.Resource)
		case r.Sampled > 0:
			l.objects += r.Objects
			total += r.Objects * (r.Bytes / r.Sampled)
		}
	}
	if l.objects > 0 {
		l.bytes = total / l.objects
	}
	return l, ""
}

// peak returns the peak resident memory according to docs/sizing.md, without deletes.
func (f *Facts) peak(l load) int64 {
	c := sizing.Measured()
	peak := c.Peak(l.objects, 0, l.bytes)
	if f.Settings.Event.Sink == config.SinkKafka {
		peak += c.Kafka
	}
	return peak
}

func checkMemory(f *Facts) verdict {
	l, why := f.load()
	if why != "" {
		return skip("%s", why)
	}
	peak := f.peak(l)
	ask := sizing.Limit(peak)
	fix := fmt.Sprintf("set the memory limit to %d MiB or more (resources.limits.memory in the chart), or select less", ask)
	needs := fmt.Sprintf("for %s, the forwarder needs %d MiB, and a limit of %d MiB; deletes need more", l, peak>>20, ask)
	switch limit := f.MemoryLimit; {
	case f.severalClusters():
		return skip("the clusters of the forwarder share its memory; docs/sizing.md has the formula: %s", needs)
	case limit == 0:
		return skip("no memory limit is known; to compare, set --memory-limit: %s", needs)
	case limit < peak:
		return fail(fix, "the memory limit is %d MiB: %s", limit>>20, needs)
	case limit>>20 < ask:
		return warn(fix, "the memory limit is %d MiB: %s", limit>>20, needs)
	default:
		return pass("the memory limit is %d MiB: %s", limit>>20, needs)
	}
}

func checkStorage(f *Facts) verdict {
	l, why := f.load()
	if why != "" {
		return skip("%s", why)
	}
	need := sizing.Measured().Stream(l.objects, 0, int64(f.Settings.NATS.History), l.bytes)
	most, name := storage(f.NATS.Stream, f.NATS.Account)
	if f.Settings.BuiltInServer() {
		most, name = f.builtInStorage()
	}
	needs := fmt.Sprintf("for %s with %d events each, the stream needs up to %d MB; deletes need more", l, f.Settings.NATS.History, need/1e6)
	switch {
	case f.severalClusters():
		return skip("the clusters of the forwarder share the stream; docs/sizing.md has the formula: %s", needs)
	case most == 0 && f.BusErr != nil && !f.Settings.BuiltInServer():
		return skip("the bus cannot be queried: %s", needs)
	case most == 0:
		return skip("no storage limit is known: %s", needs)
	case need > most:
		return warn("free space, or lower KUBERELAY_NATS_HISTORY; the bus refuses events when it is full", "%s is %d MB: %s", name, most/1e6, needs)
	}
	return pass("%s is %d MB: %s", name, most/1e6, needs)
}

// builtInStorage returns how many bytes the built-in server may use, and the name of the limit. It
// returns 0 if the limit is unknown.
func (f *Facts) builtInStorage() (most int64, name string) {
	switch {
	case f.Settings.Server.MaxBytes > 0:
		return int64(f.Settings.Server.MaxBytes), "KUBERELAY_NATS_MAX_BYTES"
	case f.DataDir.Err != nil || f.DataDir.Free < 0 || f.Pre:
		return 0, ""
	}
	used := int64(0)
	if s := f.NATS.Stream; s != nil {
		used = int64(s.State.Bytes) //nolint:gosec // far below the limit
	}
	return (f.DataDir.Free + used) / 4 * 3, "three quarters of the volume"
}
