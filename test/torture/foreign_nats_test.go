package torture

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/kuberelay/kuberelay/test/harness"
)

// forgeriesOnNATS are the forgeries that exist only on NATS.
var forgeriesOnNATS = []forgery{
	{"messages without headers", func(f *forger) []rawMessage {
		m := f.encode(f.object(), false)
		m.headers = nil
		return []rawMessage{m}
	}},
	{"headers that cannot be parsed", func(f *forger) []rawMessage { return f.blocks(unparsable) }},
	{"headers of the server's answers", func(f *forger) []rawMessage { return f.blocks(statuses) }},
	{"headers that purge", func(f *forger) []rawMessage {
		m := f.encode(f.object(), true)
		m.headers = append(m.headers, rawHeader{"Nats-Rollup", []string{"sub", "all"}[f.IntN(2)]})
		return []rawMessage{m}
	}},
	{"headers for the server", func(f *forger) []rawMessage {
		m := f.encode(f.object(), true)
		m.headers = append(m.headers, []rawHeader{
			{"Nats-TTL", "1s"}, {"Nats-Msg-Id", "forged"}, {"Nats-Expected-Last-Sequence", "1"}, {"Nats-Schedule", "@every 1s"},
			{"Nats-Marker-Reason", "MaxAge"}, {"Nats-Incr", "1"}, {"Nats-Sequence", "1"}, {"Nats-Subject", "x"},
		}[f.IntN(8)])
		return []rawMessage{m}
	}},
	{"subjects of nobody", func(f *forger) []rawMessage {
		m := f.encode(f.object(), false)
		m.subject = []string{
			"kuberelay.x", "kuberelay." + clusterName, "kuberelay." + clusterName + ".core", "kuberelay." + clusterName + "._control.x",
			"kuberelay." + clusterName + "._control.snapshot.core.=", "kuberelay." + clusterName + ".core.configmaps.=ZZ.x", "kuberelay." + clusterName + ".a.b.c.d.e.f.g",
		}[f.IntN(7)]
		return []rawMessage{m}
	}},
}

// Header blocks that no client writes
var (
	unparsable = []string{"NATS/1.0\r\nno colon here\r\n\r\n", "NATS/1.0 9\r\n\r\n", "NATS/1.0\r\n: x\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n"}
	statuses   = []string{
		"NATS/1.0 404 No Messages\r\n\r\n", "NATS/1.0 100 Idle Heartbeat\r\n\r\n", "NATS/1.0\r\nStatus: 409\r\nDescription: Consumer Deleted\r\n\r\n",
		"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: -9\r\nNats-Pending-Bytes: x\r\n\r\n", "NATS/1.0\r\nStatus: 503\r\n\r\n", "NATS/1.0\r\nNats-Pin-Id: forged\r\n\r\n",
	}
)

// blocks returns messages with header blocks, on the subjects of objects, of the claim and of a marker.
func (f *forger) blocks(of []string) []rawMessage {
	var all []rawMessage
	for range 1 + f.IntN(3) {
		m := f.encode(f.object(), false)
		m.subject = []string{m.subject, m.subject, "kuberelay." + clusterName + "._control.cluster._.claimed", "kuberelay." + clusterName + "._control.snapshot.core.configmaps"}[f.IntN(4)]
		m.block, m.body = of[f.IntN(len(of))], f.bytes(f.IntN(2))
		all = append(all, m)
	}
	return all
}

// write implements [bus]. It uses the protocol of the server directly, because clients don't send
// every header block.
func (b *natsBus) write(ctx context.Context, m rawMessage) ([]harness.Place, error) {
	before, _, err := b.All()
	if err != nil {
		return nil, err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", strings.TrimPrefix(b.servers[0].URL, "nats://"))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	block := m.block
	if block == "" && len(m.headers) > 0 {
		block = "NATS/1.0\r\n"
		for _, h := range m.headers {
			block += h.name + ": " + h.value + "\r\n"
		}
		block += "\r\n"
	}
	inbox := fmt.Sprintf("_INBOX.foreign.%d", time.Now().UnixNano())
	fmt.Fprintf(conn, "CONNECT {\"verbose\":false,\"headers\":true,\"no_responders\":true}\r\nSUB %s 1\r\n", inbox)
	if block == "" {
		fmt.Fprintf(conn, "PUB %s %s %d\r\n", m.subject, inbox, len(m.body))
	} else {
		fmt.Fprintf(conn, "HPUB %s %s %d %d\r\n%s", m.subject, inbox, len(block), len(block)+len(m.body), block)
	}
	_, _ = conn.Write(append(m.body, "\r\n"...)) // the acknowledgement shows whether the write succeeded
	sequence, err := readAcknowledgement(bufio.NewReader(conn))
	if err != nil {
		return nil, err
	}
	at, err := recorded(ctx, b, len(before), harness.Place{Sequence: sequence})
	return []harness.Place{at}, err
}

// readAcknowledgement reads the acknowledgement of JetStream. It fails with errRefused if no stream
// receives the message.
func readAcknowledgement(r *bufio.Reader) (sequence uint64, err error) {
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return 0, err
		}
		switch fields := strings.Fields(line); {
		case len(fields) == 0:
		case fields[0] == "-ERR":
			return 0, fmt.Errorf("%w: %s", errRefused, strings.TrimSpace(line))
		case fields[0] == "HMSG":
			return 0, fmt.Errorf("%w: no responders", errRefused)
		case fields[0] == "MSG":
			var size int
			if _, err := fmt.Sscan(fields[len(fields)-1], &size); err != nil {
				return 0, err
			}
			body := make([]byte, size)
			if _, err := io.ReadFull(r, body); err != nil {
				return 0, err
			}
			var answer struct {
				Seq   uint64 `json:"seq"`
				Error *struct {
					Description string `json:"description"`
				} `json:"error"`
			}
			if err := json.Unmarshal(body, &answer); err != nil {
				return 0, err
			}
			if answer.Error != nil {
				return 0, fmt.Errorf("%w: %s", errRefused, cmp.Or(answer.Error.Description, string(body)))
			}
			if answer.Seq == 0 {
				return 0, errors.New("an acknowledgement without a sequence")
			}
			return answer.Seq, nil
		}
	}
}
