// Package oauth provides the tokens of SASL OAUTHBEARER: from a file that somebody else renews,
// or from a token endpoint, with the client credentials grant of OAuth 2.0 (RFC 6749, section 4.4).
//
// It guarantees that a token from an endpoint is renewed after four fifths of its lifetime, and that the
// previous token stays in use until it expires if that fails. No error or log line contains a token, a client
// secret, or the body of a response.
//
// It does not verify tokens: the brokers do. Nor does it replace connections, which brokers end when the
// token of a connection expires. The caller replaces them when [Tokens.Renew] or the file provides a new
// token.
package oauth
