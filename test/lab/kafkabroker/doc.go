// Package kafkabroker starts a real Apache Kafka broker as a process of the present user, on free
// ports of the loopback interface, for the demo, the benchmarks and the tests. It is a single node
// in KRaft mode, or one of several ([Options.Join]). It doesn't need Docker.
//
// It needs Java 17 and, once, Maven, which downloads the broker into the user's cache folder. If
// one of them is missing and the user is root on a system with apt-get, the package installs it.
// Otherwise the error says what to install.
//
// It guarantees:
//
//   - When Start returns, the broker answers requests on its plaintext listener and accepts
//     connections on the others, and every partition on it has a leader.
//   - The broker keeps its ports and data when it is killed or stopped and started again. Nobody
//     else gets the ports while the Broker exists.
//   - Close kills the broker and removes a temporary folder. If this process ends without Close,
//     even by SIGKILL, a reaper does the same.
//
// It doesn't guarantee durability or security: nothing is replicated by default, and records
// aren't fsynced before they are acknowledged. A crash of the machine loses them; a SIGKILL of the
// broker doesn't. The plaintext listener allows everything to everybody on the loopback interface.
//
// Tests use package kafkabrokertest.
package kafkabroker
