package torture

// The faults of a bus that is a cluster of servers. Every seed of a round with a cluster has at
// least one of them.

// clusterKinds returns the faults of a cluster.
func (s sink) clusterKinds() []kind {
	if s == onKafka {
		return kafkaClusterKinds
	}
	return nil
}

// singleOnly returns the names of the kinds that are left out if the bus is a cluster.
func (s sink) singleOnly() []string {
	if s == onKafka {
		return []string{eventsCut, checkpointCut, bothCut} // they cut the files of the only broker
	}
	return nil
}
