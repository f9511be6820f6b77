// Package kafkabroker starts a real Apache Kafka broker for the demo, the benchmarks and the tests. The
// broker is a process of the current user that listens on free ports of the loopback interface. It is a
// single node in KRaft mode, or one of several nodes ([Options.Join]). It doesn't need Docker.
//
// The package needs Java 17 or later. The first use also needs Maven, which downloads the broker into
// the user's cache directory. If Java or Maven is missing and the user is root on a system with apt-get,
// the package installs it. Otherwise the error says what to install.
//
// It guarantees:
//
//   - When Start returns, the broker responds to requests on its plaintext listener and accepts
//     connections on the others, and every partition on it has a leader.
//   - The broker keeps its ports and data when it is killed or stopped and started again. No
//     other process receives the ports while the Broker exists.
//   - Close kills the broker and removes a temporary directory. If this process ends without Close,
//     even by SIGKILL, a reaper does the same.
//
// It doesn't guarantee durability or security. By default, nothing is replicated, and the broker
// acknowledges records without fsync. A crash of the machine loses records. A SIGKILL of the broker
// doesn't. The plaintext listener lets every client on the loopback interface do everything.
//
// Tests use package kafkabrokertest.
package kafkabroker
