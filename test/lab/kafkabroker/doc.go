// Package kafkabroker starts a real Apache Kafka broker, one node in KRaft mode or
// one of several ([Options.Join]), as a process of the present user on free ports
// of the loopback interface, for the demo, the benchmarks and the tests. It needs
// no Docker.
//
// It needs Java 17 and, once, Maven, which fetches the broker into the user's
// cache folder. Where one is missing, root on a system with apt-get gets it
// installed; anybody else is told what to install.
//
// What it guarantees:
//
//   - Start returns when the broker answers requests on its plaintext listener,
//     accepts connections on the others, and every partition it has data of has
//     a leader.
//   - The broker keeps its ports and data when it is killed or stopped and
//     started again: the ports are held for as long as the Broker lives.
//   - The broker is killed, and its folder removed if it was a temporary one, by
//     Close, and by a reaper of its own when this process ends without Close,
//     even by kill -9.
//
// What it does not: nothing is replicated by default, and what it
// acknowledges is not fsynced: a crash of the machine loses it, a kill -9 of
// the broker does not. Whoever reaches the loopback interface may do everything
// on the plaintext listener.
//
// Tests use package kafkabrokertest.
package kafkabroker
