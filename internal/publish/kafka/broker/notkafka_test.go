package broker

import (
	"errors"
	"net"
	"testing"
)

// TestNotAKafkaBroker verifies that a connection rejects the first response of a server that is not a
// Kafka broker, and passes that of a broker and a TLS alert.
func TestNotAKafkaBroker(t *testing.T) {
	for response, want := range map[string]error{
		"HTTP/1.1 400 Bad Request\r\n":     errNotKafka,
		"INFO {\"server_id\":\"N\"}\r\n":   errNotKafka,
		"\x00\x00\x00\x0a\x00\x00\x00\x01": nil,
		"\x15\x03\x03\x00\x02\x02\x46":     nil,
	} {
		server, client := net.Pipe()
		go func() { _, _ = server.Write([]byte(response)) }()
		if _, err := (&conn{Conn: client}).Read(make([]byte, 4096)); !errors.Is(err, want) {
			t.Errorf("%q: got %v, want %v", response, err, want)
		}
		server.Close()
	}
}
