// Package oauth provides tokens for SASL OAUTHBEARER. A token is read from a file that another
// process renews, or fetched from a token endpoint with the client credentials grant of OAuth 2.0
// (RFC 6749, section 4.4).
//
// The package renews a token from an endpoint after four fifths of the token's lifetime. If neither
// the response nor the token says how long the token is valid, each connection gets a new token. If a
// request fails, the previous token stays in use until it expires. No error or log line contains a token, a
// client secret, or the body of a response.
//
// The package does not verify tokens: the brokers do. It also does not replace connections, which
// brokers end when the token of a connection expires. The caller replaces them when [Tokens.Renew]
// or the file provides a new token.
package oauth
