package broker

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
	"github.com/segmentio/kafka-go/protocol/fetch"
	"golang.org/x/sync/errgroup"
)

// fetched is the part of a fetch response for one partition. records contains the encoded
// batches, as the broker stores them.
type fetched struct {
	end     int64 // high watermark
	records []byte
}

// fetchOnce sends one fetch request to the leader of a partition. The leader waits up to wait
// for a first record.
func (c *Client) fetchOnce(ctx context.Context, topic string, partition int, offset, size int64, wait time.Duration) (fetched, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.RequestTimeout)
	defer cancel()
	deadline, _ := ctx.Deadline()
	res, err := c.requests.RoundTrip(ctx, c.kafka.Addr, &fetchRequest{clientID: c.opts.ClientID, Request: &fetch.Request{
		ReplicaID:    -1,
		MaxWaitTime:  int32(min(wait, max(0, time.Until(deadline)/2)).Milliseconds()), // leave time for the response
		MinBytes:     1,
		MaxBytes:     int32(size),
		SessionID:    -1,
		SessionEpoch: -1,
		Topics: []fetch.RequestTopic{{Topic: topic, Partitions: []fetch.RequestPartition{{
			Partition: int32(partition), CurrentLeaderEpoch: -1, FetchOffset: offset, LogStartOffset: -1, PartitionMaxBytes: int32(size),
		}}}},
	}})
	if err != nil {
		return fetched{}, fmt.Errorf("fetch: %w", err)
	}
	r := res.(*fetchResponse)
	switch {
	case r.ErrorCode != 0:
		return fetched{}, kafka.Error(r.ErrorCode)
	case len(r.Topics) == 0:
		return fetched{}, errThrottled
	case len(r.Topics[0].Partitions) == 0:
		return fetched{}, errIncomplete
	}
	p := r.Topics[0].Partitions[0]
	if p.ErrorCode != 0 {
		return fetched{}, kafka.Error(p.ErrorCode)
	}
	return fetched{end: p.HighWatermark, records: p.Records}, nil
}

// fetchRequest is a fetch request whose response kafka-go does not decode. kafka-go's decoder
// would decompress all batches at once without a limit, and trust the lengths and counts in them.
type fetchRequest struct {
	*fetch.Request

	clientID string
	version  int16 // set by Required
}

var (
	_ protocol.BrokerMessage = (*fetchRequest)(nil)
	_ protocol.RawExchanger  = (*fetchRequest)(nil)
)

// Required implements [protocol.RawExchanger].
func (r *fetchRequest) Required(versions map[protocol.ApiKey]int16) bool {
	r.version = versions[protocol.Fetch]
	return true
}

// correlationID is the same for all requests, because a connection has only one request in flight.
const correlationID = 1

// RawExchange implements [protocol.RawExchanger].
func (r *fetchRequest) RawExchange(connection io.ReadWriter) (protocol.Message, error) {
	if err := protocol.WriteRequest(connection, r.version, correlationID, r.clientID, r.Request); err != nil {
		return nil, err
	}
	body, err := readBody(connection)
	if err != nil {
		return nil, err
	}
	response := &fetchResponse{}
	if err := protocol.Unmarshal(body, r.version, response); err != nil {
		return nil, unexpected(err)
	}
	return response, nil
}

// readBody reads a response, and returns what follows its correlation ID.
func readBody(connection io.Reader) ([]byte, error) {
	var head [8]byte
	if _, err := io.ReadFull(connection, head[:]); err != nil {
		return nil, err
	}
	size, id := int64(int32(binary.BigEndian.Uint32(head[:]))), binary.BigEndian.Uint32(head[4:])
	if size < 4 || id != correlationID {
		return nil, protocol.Errorf("a response of %d bytes to request %d, want one to request %d", size, id, correlationID)
	}
	var body bytes.Buffer
	body.Grow(int(min(size-4, fetchBytes+fetchBytes/4)) + bytes.MinRead) // grows further only as bytes arrive
	if _, err := io.CopyN(&body, connection, size-4); err != nil {
		return nil, unexpected(err)
	}
	return body.Bytes(), nil
}

func unexpected(err error) error {
	if err == io.EOF { //nolint:errorlint // as io.ReadFull does
		return io.ErrUnexpectedEOF
	}
	return err
}

// fetchResponse is [fetch.Response] with the records as undecoded bytes.
type fetchResponse struct {
	ThrottleTimeMs int32        `kafka:"min=v1,max=v11"`
	ErrorCode      int16        `kafka:"min=v7,max=v11"`
	SessionID      int32        `kafka:"min=v7,max=v11"`
	Topics         []fetchTopic `kafka:"min=v0,max=v11"`
}

// ApiKey implements [protocol.Message].
func (*fetchResponse) ApiKey() protocol.ApiKey { return protocol.Fetch } //nolint:staticcheck // kafka-go defines the name

type fetchTopic struct {
	Topic      string           `kafka:"min=v0,max=v11"`
	Partitions []fetchPartition `kafka:"min=v0,max=v11"`
}

type fetchPartition struct {
	Partition            int32                       `kafka:"min=v0,max=v11"`
	ErrorCode            int16                       `kafka:"min=v0,max=v11"`
	HighWatermark        int64                       `kafka:"min=v0,max=v11"`
	LastStableOffset     int64                       `kafka:"min=v4,max=v11"`
	LogStartOffset       int64                       `kafka:"min=v5,max=v11"`
	AbortedTransactions  []fetch.ResponseTransaction `kafka:"min=v4,max=v11"`
	PreferredReadReplica int32                       `kafka:"min=v11,max=v11"`
	Records              []byte                      `kafka:"min=v0,max=v11"`
}

// idRequest is a metadata request for one topic in idVersion, the first version with topic IDs.
// kafka-go supports only earlier versions.
type idRequest struct{ clientID, topic string }

const idVersion = 10

var (
	_ protocol.BrokerMessage = (*idRequest)(nil)
	_ protocol.RawExchanger  = (*idRequest)(nil)
)

// ApiKey implements [protocol.Message].
func (*idRequest) ApiKey() protocol.ApiKey { return protocol.Metadata } //nolint:staticcheck // kafka-go defines the name

// Broker implements [protocol.BrokerMessage]. The leader of partition 0 receives the request.
func (r *idRequest) Broker(cluster protocol.Cluster) (protocol.Broker, error) {
	return (&fetch.Request{Topics: []fetch.RequestTopic{{Topic: r.topic, Partitions: make([]fetch.RequestPartition, 1)}}}).Broker(cluster)
}

// Required implements [protocol.RawExchanger].
func (*idRequest) Required(map[protocol.ApiKey]int16) bool { return true }

// RawExchange implements [protocol.RawExchanger]. It first asks for the versions that the broker
// supports, because a broker closes the connection if a request has another version.
func (r *idRequest) RawExchange(connection io.ReadWriter) (protocol.Message, error) {
	versions, err := protocol.RoundTrip(connection, 0, correlationID, r.clientID, new(apiversions.Request))
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(versions.(*apiversions.Response).ApiKeys, func(k apiversions.ApiKeyResponse) bool {
		return protocol.ApiKey(k.ApiKey) == protocol.Metadata && k.MinVersion <= idVersion && idVersion <= k.MaxVersion
	}) {
		return &idResponse{}, nil
	}
	if _, err := connection.Write(r.encode()); err != nil {
		return nil, err
	}
	body, err := readBody(connection)
	if err != nil {
		return nil, err
	}
	return decodeID(body)
}

func (r *idRequest) encode() []byte {
	b := make([]byte, 4, 64+len(r.clientID)+len(r.topic)) // the first four bytes are for the size
	b = binary.BigEndian.AppendUint16(b, uint16(protocol.Metadata))
	b = binary.BigEndian.AppendUint16(b, idVersion)
	b = binary.BigEndian.AppendUint32(b, correlationID)
	b = binary.BigEndian.AppendUint16(b, uint16(len(r.clientID)))
	b = append(append(b, r.clientID...), 0)       // 0 tagged fields
	b = append(append(b, 2), make([]byte, 16)...) // a list of 1 topic: no ID, only a name
	b = binary.AppendUvarint(b, uint64(len(r.topic))+1)
	b = append(append(b, r.topic...), 0)
	b = append(b, 0, 0, 0, 0) // does not create the topic, requests no permissions, 0 tagged fields
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// idResponse has the ID of a topic, or the broker's error. The ID is "" if the broker has no topic IDs.
type idResponse struct {
	id  string
	err error
}

// ApiKey implements [protocol.Message].
func (*idResponse) ApiKey() protocol.ApiKey { return protocol.Metadata } //nolint:staticcheck // kafka-go defines the name

func decodeID(body []byte) (*idResponse, error) {
	f := flexible{rest: body}
	f.skipTagged() // of the header
	f.take(4)      // throttle time
	for n := f.length(); n > 0 && !f.short; n-- {
		f.take(4) // ID of a broker
		f.take(f.length())
		f.take(4)
		f.take(f.length())
		f.skipTagged()
	}
	f.take(f.length()) // ID of the cluster
	f.take(4)          // ID of the controller
	topics, code := f.length(), f.take(2)
	f.take(f.length())
	id := f.take(16)
	if f.short || topics != 1 {
		return nil, io.ErrUnexpectedEOF
	}
	res := &idResponse{}
	if !bytes.Equal(id, make([]byte, len(id))) {
		res.id = string(id)
	}
	if code := kafka.Error(int16(binary.BigEndian.Uint16(code))); code != 0 {
		res.err = code
	}
	return res, nil
}

// flexible decodes the fields of a flexible version (KIP-482).
type flexible struct {
	rest  []byte
	short bool // the response is too short; all further fields are empty
}

func (f *flexible) take(n uint64) []byte {
	if f.short = f.short || n > uint64(len(f.rest)); f.short {
		return nil
	}
	field := f.rest[:n]
	f.rest = f.rest[n:]
	return field
}

func (f *flexible) number() uint64 {
	n, size := binary.Uvarint(f.rest)
	f.short = f.short || size <= 0
	f.take(uint64(max(0, size)))
	return n
}

// length returns the length of a list or string. The length of null is 0.
func (f *flexible) length() uint64 { return max(f.number(), 1) - 1 }

func (f *flexible) skipTagged() {
	for n := f.number(); n > 0 && !f.short; n-- {
		f.number()
		f.take(f.number())
	}
}

// parallel limits the number of partitions that [Each] handles concurrently. Each partition uses one
// connection to its broker.
const parallel = 16

// Each calls do with 0 to n-1, up to parallel calls at a time, and returns the first error.
func Each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(parallel)
	for i := range n {
		all.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return do(ctx, i)
		})
	}
	return all.Wait()
}
