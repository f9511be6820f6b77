// Package awsiam authenticates to Amazon MSK with AWS IAM: the SASL mechanism AWS_MSK_IAM. Credentials come from
// the default chain of the AWS SDK: the environment, the shared files, a web identity (IRSA), EKS Pod Identity, or the
// instance role.
//
// The package renews credentials five minutes before they expire. If the renewal fails, the previous credentials stay in
// use until they expire. A change of the SDK's shared files takes effect with the next connection. No error or log line
// contains a credential, the body of a response, or the output of a credential process.
//
// The package does not check that the brokers accept the credentials. It also does not replace connections, although a
// broker ends a connection when the connection's credentials expire. The caller replaces its connections when
// [Mechanism.Renew] reports new credentials.
package awsiam
