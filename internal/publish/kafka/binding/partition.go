package binding

import "encoding/binary"

// Partition returns the partition of a key, for a number of partitions of at least 1, as
// the default partitioner of the Java client selects it for a record with a key:
// toPositive(murmur2(key)) modulo the number (BuiltInPartitioner.partitionForKey).
func Partition(key []byte, partitions int) int {
	return Hash(key) % partitions
}

// Hash returns the number of a key that, modulo the number of partitions, is its partition.
func Hash(key []byte) int { return int(murmur2(key) & 0x7fffffff) }

// murmur2 is org.apache.kafka.common.utils.Utils.murmur2: Austin Appleby's MurmurHash2 with
// Kafka's seed.
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
