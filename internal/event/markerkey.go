package event

import (
	"fmt"
	"strconv"
	"strings"
)

// ParseMarkerPartitionKey is the exact inverse of [MarkerPartitionKey] and
// [ResolvedPartitionKey], with only group and resource in k, and of [WriterPartitionKey] and
// [ClaimPartitionKey], with the zero value for k. Any other key is an error.
func ParseMarkerPartitionKey(s string) (cluster string, k Key, err error) {
	segments := strings.Split(s, "/")
	if len(segments) != 5 || segments[1] != controlToken {
		return "", Key{}, fmt.Errorf("parse partition key %q: not the key of a marker", s)
	}
	cluster = unescape(segments[0], '%')
	again := ""
	switch segments[2] {
	case snapshotToken, resolvedToken:
		k.Resource = unescape(segments[4], '%')
		if segments[3] != coreToken {
			k.Group = unescape(segments[3], '%')
		}
		again = markerPartitionKey(cluster, segments[2], k.GroupResource())
	case writerToken:
		if partition, err := strconv.Atoi(segments[4]); err == nil && segments[3] != "" {
			again = WriterPartitionKey(cluster, unescape(segments[3], '%'), partition)
		}
	case clusterToken:
		again = ClaimPartitionKey(cluster)
	}
	if again != s {
		return "", Key{}, fmt.Errorf("parse partition key %q: not in canonical form", s)
	}
	return cluster, k, nil
}
