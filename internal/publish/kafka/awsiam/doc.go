// Package awsiam authenticates to Amazon MSK with AWS IAM: the SASL mechanism AWS_MSK_IAM. Credentials come from
// the default chain of the AWS SDK: the environment, the shared files, a web identity (IRSA), EKS Pod Identity, or the
// role of the instance.
//
// It guarantees that credentials are renewed [Window] before they expire, and that the previous ones stay in use
// until they expire if that fails. A change of the SDK's shared files takes effect with the next connection. No error or
// log line contains a credential, the body of a response, or the output of a credential process.
//
// It does not check that the brokers accept the credentials, and does not replace connections, which brokers end
// when the credentials of a connection expire. The caller replaces them when [Mechanism.Renew] reports new ones.
package awsiam
