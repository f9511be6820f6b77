// Package advice explains to an administrator what a Kafka cluster lacks: the permission that a
// request needs, and the settings of a topic that would break a guarantee. It names the commands
// that fix them.
//
// The package sends no request. The commands contain no credentials, only the name of the
// administrator's properties file.
package advice
