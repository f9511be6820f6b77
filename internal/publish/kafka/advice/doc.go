// Package advice explains to an administrator what is wrong in a Kafka cluster: a missing permission, or
// topic settings that would break a guarantee. It names the commands that fix the problem.
//
// The package sends no request. The commands contain no credentials, only the name of the
// administrator's properties file.
package advice
