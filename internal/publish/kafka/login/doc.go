// Package login establishes the identities of a connection to Kafka: the TLS certificates of both
// sides, and the SASL credentials of the client.
//
// Every handshake and authentication uses the current contents of the password, certificate, key,
// and CA files. The caller replaces the connections that use earlier contents. Errors contain no
// credentials, and name the setting to check.
package login
