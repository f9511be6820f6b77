package binding

import "encoding/binary"

// Partition returns the partition that the Java client's default partitioner selects for a
// record with this key: toPositive(murmur2(key)) modulo the number of partitions
// (BuiltInPartitioner.partitionForKey). partitions must be at least 1.
func Partition(key []byte, partitions int) int {
	return Hash(key) % partitions
}

// Hash returns the hash of a key. The hash modulo the number of partitions is the key's
// partition.
func Hash(key []byte) int { return int(murmur2(key) & 0x7fffffff) }

// murmur2 computes the same hash as org.apache.kafka.common.utils.Utils.murmur2: Austin
// Appleby's MurmurHash2 with Kafka's seed.
func murmur2(data []byte) uint32 {
	const (
		seed = 0x9747b28c
		m    = 0x5bd1e995
		r    = 24
	)
	h := seed ^ uint32(len(data))
	for ; len(data) >= 4; data = data[4:] {
		k := binary.LittleEndian.Uint32(data) * m
		k ^= k >> r
		h = h*m ^ k*m
	}
	if len(data) > 0 {
		for i, b := range data {
			h ^= uint32(b) << (8 * i)
		}
		h *= m
	}
	h ^= h >> 13
	h *= m
	return h ^ h>>15
}
