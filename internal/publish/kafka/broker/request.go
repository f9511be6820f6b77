package broker

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
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
	response := &fetchResponse{}
	if err := protocol.Unmarshal(body.Bytes(), r.version, response); err != nil {
		return nil, unexpected(err)
	}
	return response, nil
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
